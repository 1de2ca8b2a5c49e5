#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 30s), one after the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rc=0
while IFS=: read -r file target; do
	echo "== $(dirname "$file") $target"
	(cd "$(dirname "$file")" && go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" .) || rc=1
done < <(find . -name '*_test.go' -not -path './.services/*' -exec grep -oE '^func Fuzz[A-Za-z0-9_]*' {} + | sed 's/func //' | sort)
exit $rc
