#!/usr/bin/env bash
# Starts and stops the servers that the tests and benchmarks need.
#
#   scripts/services.sh start    install what is missing, start everything
#   scripts/services.sh stop     stop exactly what was started, remove its data
#   scripts/services.sh status   say what runs where
#   scripts/services.sh env      print the variables: eval "$(scripts/services.sh env)"
#
# Everything listens on free ports of 127.0.0.1 only, runs without privileges
# and keeps throw-away data below one temporary directory. A server that the
# environment names already (see internal/testenv) is used and not started.
# Works on Debian 12 or newer, as root or with sudo; without either when all
# packages are there. Starting twice is harmless, and so is a crash: what is
# left of an earlier start is found by process id and command line.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
state=$root/.services

# shellcheck source=services/lib.sh
. "$here/services/lib.sh"
# shellcheck source=services/packages.sh
. "$here/services/packages.sh"
# shellcheck source=services/postgres.sh
. "$here/services/postgres.sh"
# shellcheck source=services/redis.sh
. "$here/services/redis.sh"
# shellcheck source=services/sqs.sh
. "$here/services/sqs.sh"

start() {
	if all_alive; then
		say "already running"
		return
	fi
	stop_all
	check_given
	install_packages
	resolve_sqs
	trap 'rc=$?; if [ $rc -ne 0 ]; then show_logs; stop_all; fi' EXIT
	new_data_dir
	# All servers are launched first and waited for afterwards, side by side.
	launch_postgres
	launch_redis
	launch_sentinel
	launch_cluster
	launch_sqs
	await postgres_ready redis_ready sentinel_ready cluster_ready sqs_ready
	launch_pgbouncer
	await pgbouncer_ready
	touch "$state/complete"
	say "started; variables are in .services/env"
}

status() {
	[ -s "$state/pids" ] || { say "nothing was started"; return 1; }
	local name pid signal mark
	while read -r name pid signal mark; do
		if alive "$pid" "$mark"; then say "$name: running, pid $pid"; else say "$name: not running"; fi
	done <"$state/pids"
	cat "$state/env"
	all_alive
}

mkdir -p "$state"
exec 9>"$state/lock"
case ${1:-} in
start) flock 9 && start ;;
stop) flock 9 && stop_all && say "stopped" ;;
status) status ;;
env) cat "$state/env" 2>/dev/null || true ;;
*)
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
	exit 2
	;;
esac
