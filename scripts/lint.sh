#!/usr/bin/env bash
# Checks formatting (gofumpt) and runs go vet and staticcheck over every
# module. The versions of the tools are pinned in tools/go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=modules.sh
. scripts/modules.sh

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tools && go build -o "$bin/" mvdan.cc/gofumpt honnef.co/go/tools/cmd/staticcheck)

rc=0
unformatted=$(find . -name '*.go' -not -path './.services/*' -not -path '*/testdata/*' -print0 | xargs -0 "$bin/gofumpt" -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted (gofumpt -w mends it):\n%s\n' "$unformatted"
	rc=1
fi
for dir in $(modules); do
	echo "go vet and staticcheck in $dir"
	(cd "$dir" && go mod verify >/dev/null && go mod tidy -diff && go vet ./... && "$bin/staticcheck" ./...) || rc=1
done
exit $rc
