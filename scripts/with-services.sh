#!/usr/bin/env bash
# Runs a command with the test servers at hand and their addresses in the
# environment:
#
#   scripts/with-services.sh go test ./store/pgstore/...
#
# Servers that it had to start are stopped afterwards, whatever the command's
# result, unless another command uses them still. Servers that were running
# before stay.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
state=$root/.services
services=$root/scripts/services.sh

# Every user holds a shared lock; who gets it exclusively is the last one.
mkdir -p "$state"
exec 8>"$state/users"
flock -s 8
finish() {
	if flock -n -x 8 && [ -e "$state/auto" ]; then
		"$services" stop 8>&-
	fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if ! "$services" status >/dev/null 2>&1; then
	"$services" start 8>&-
	touch "$state/auto"
fi
eval "$("$services" env)"
"$@" 8>&-
