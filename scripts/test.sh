#!/usr/bin/env bash
# Runs the tests of every module and sums up what ran and what was skipped.
#
#   scripts/test.sh full    with the race detector, in random order
#   scripts/test.sh fast    without servers and without the race detector
#   scripts/test.sh soak    full, with long scenarios at full size
#
# SEED repeats the order and the random choices of an earlier run; PACKAGES
# narrows it to some of the root module. The exit code is 0 only if everything passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=modules.sh
. scripts/modules.sh

mode=${1:-full}
export SECONDRUN_SEED=${SEED:-$(($(date +%s%N) / 1000 % 1000000000))}
flags=(-shuffle="$SECONDRUN_SEED" -count=1)
case $mode in
full) flags+=(-race -timeout=10m) ;;
fast)
	unset "${!SECONDRUN_@}"
	flags=(-timeout=5m)
	;;
soak)
	export SECONDRUN_SOAK=1
	flags+=(-race -timeout=4h)
	;;
*)
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
	exit 2
	;;
esac

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/testreport" ./scripts/testreport

run() {
	local dir rc=0
	for dir in $(if [ -n "${PACKAGES:-}" ]; then echo .; else modules; fi); do
		# shellcheck disable=SC2086 # several patterns
		(cd "$dir" && go test -json "${flags[@]}" ${PACKAGES:-./...}) || rc=1
	done
	return $rc
}

[ "$mode" = fast ] || echo "seed $SECONDRUN_SEED (SEED=$SECONDRUN_SEED make test repeats this order)"
run | "$bin/testreport"
