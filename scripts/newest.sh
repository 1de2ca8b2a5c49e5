#!/usr/bin/env bash
# Runs the tests of a copy of the tree with the newest versions of every
# dependency. go.mod requires the oldest versions that pass; this shows that
# users with newer ones are fine too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
	xargs -0 cp --parents -t "$copy"
cd "$copy"
# shellcheck source=modules.sh
. scripts/modules.sh
# A nested module requires the root module by a replace directive, which
# `go get -u` would look past.
for dir in $(modules); do
	echo "newest versions in $dir:"
	(
		cd "$dir"
		go mod tidy # the root module has changed
		direct=$(go list -m -f '{{if not (or .Indirect .Main .Replace)}}{{.Path}}@latest{{end}}' all)
		# shellcheck disable=SC2086 # several modules
		[ -z "$direct" ] || go get $direct
		[ "$dir" != . ] || go get -u -t ./...
		go mod tidy
		go list -m -f '{{if not (or .Indirect .Main .Replace)}}  {{.Path}} {{.Version}}{{end}}' all
	)
done
scripts/test.sh full
