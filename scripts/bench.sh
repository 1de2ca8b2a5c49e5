#!/usr/bin/env bash
# Runs every benchmark of every module, one package after the other. A
# benchmark of the library has the floor it is judged by (the bare statements,
# the bare channel) beside it in the same file, so that both are measured in
# the same run.
#
#   BENCHTIME   time or count of each (default 1s; 1x runs each once)
#   BENCH       which (default all), COUNT how often
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=modules.sh
. scripts/modules.sh

rc=0
for dir in $(modules); do
	packages=$(cd "$dir" && { grep -rl --include='*_test.go' --exclude-dir=.services '^func Benchmark' . || true; } | xargs -r -n1 dirname | sort -u)
	for package in $packages; do
		owner=$(cd "$dir/$package" && go list -f '{{.Module.Dir}}' .)
		[ "$owner" = "$(cd "$dir" && pwd)" ] || continue # of a nested module
		(cd "$dir" && go test -run '^$' -bench "${BENCH:-.}" -benchtime "${BENCHTIME:-1s}" -count "${COUNT:-1}" -benchmem -timeout 60m "$package") || rc=1
	done
done
exit $rc
