# Processes, ports and waiting. Sourced by services.sh.
# shellcheck shell=bash

say() { echo "services: $*" >&2; }
die() { say "$*"; exit 1; }

# account is who the servers run as: PostgreSQL and PgBouncer refuse root.
account() { if [ "$(id -u)" = 0 ]; then echo postgres; else id -un; fi; }

# as_account runs a command without privileges and without a process between,
# so that $! is the server itself.
as_account() {
	if [ "$(id -u)" = 0 ]; then
		exec setpriv --reuid=postgres --regid=postgres --init-groups --reset-env "$@"
	fi
	exec "$@"
}

# new_data_dir makes the directory for everything that the servers write. It is
# not below the checkout, which the account may not be able to enter, and its
# path is short enough for a Unix socket.
new_data_dir() {
	data=$(mktemp -d /tmp/secondrun-services.XXXXXX)
	echo "$data" >"$state/data"
	[ "$(id -u)" != 0 ] || chown "$(account)" "$data"
	: >"$state/pids"
	(umask 077 && : >"$state/env")
	used_ports=" "
}

# pick_port sets the variable to a free port below the ephemeral range. The
# port 10000 above is free too: it is a Redis Cluster node's second one.
pick_port() {
	local -n picked=$1
	local try
	for try in {1..200}; do
		picked=$((12000 + (RANDOM * 32768 + RANDOM) % 10000))
		case $used_ports in *" $picked "*) continue ;; esac
		if ! listens "$picked" && ! listens $((picked + 10000)); then
			used_ports+="$picked "
			return
		fi
	done
	die "found no free port after $try tries"
}

listens() { (exec 3<>"/dev/tcp/${2:-127.0.0.1}/$1") 2>/dev/null; }

# launch NAME SIGNAL MARK COMMAND... starts a server in the background. SIGNAL
# ends it at once; MARK is a text of its command line that no other process
# has. The lock stays with this script.
launch() {
	local name=$1 signal=$2 mark=$3
	shift 3
	(cd "$data" && as_account setsid "$@") </dev/null >"$data/$name.log" 2>&1 9>&- &
	echo "$name $! $signal $mark" >>"$state/pids"
}

# alive PID MARK: the process exists and is the one that was started; a number
# that the system gave to another process since is not touched.
alive() {
	[ -r "/proc/$1/cmdline" ] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -- "$2"
}

all_alive() {
	[ -e "$state/complete" ] && [ -e "$state/pids" ] || return 1
	local name pid signal mark
	while read -r name pid signal mark; do
		alive "$pid" "$mark" || return 1
	done <"$state/pids"
}

# stop_all ends what pids names, last first, and waits for the end.
stop_all() {
	rm -f "$state/complete"
	if [ -s "$state/pids" ]; then
		local name pid signal mark
		while read -r name pid signal mark; do
			if alive "$pid" "$mark"; then
				kill -s "$signal" "$pid" 2>/dev/null || true
				kill -s CONT "$pid" 2>/dev/null || true # a test may have stopped it
			fi
		done < <(tac "$state/pids")
		while read -r name pid signal mark; do
			await_end "$name" "$pid" "$mark"
		done <"$state/pids"
	fi
	remove_data
	rm -f "$state/pids" "$state/env" "$state/data" "$state/auto"
}

await_end() {
	local i
	for i in {1..100}; do
		alive "$2" "$3" || return 0
		sleep 0.1
	done
	say "$1 did not end within 10 s; killed"
	kill -s KILL "$2" 2>/dev/null || true
}

remove_data() {
	[ -s "$state/data" ] || return 0
	local dir
	dir=$(<"$state/data")
	case $dir in
	/tmp/secondrun-services.*) rm -rf -- "$dir" ;;
	*) say "left alone: $dir" ;;
	esac
}

# await runs the checks until each has succeeded, 60 s at most and not longer
# than the servers live.
await() {
	local check deadline=$((SECONDS + 60))
	for check; do
		until "$check"; do
			[ $SECONDS -lt $deadline ] || die "$check: no success within 60 s"
			sleep 0.1
			none_ended
		done
	done
}

none_ended() {
	local name pid signal mark
	while read -r name pid signal mark; do
		[ -d "/proc/$pid" ] || die "$name ended at once"
	done <"$state/pids"
}

show_logs() {
	local log
	for log in "${data:-/nonexistent}"/*.log; do
		[ -s "$log" ] || continue
		say "end of $(basename "$log"):"
		tail -n 15 "$log" >&2
	done
}

# publish NAME VALUE adds a variable to .services/env.
publish() { printf "export %s='%s'\n" "$1" "$2" >>"$state/env"; }

# given NAME: the environment names this server already.
given() { [ -n "${!1:-}" ]; }

# check_given fails early when a server that the environment names is away.
check_given() {
	local variable address
	for variable in SECONDRUN_POSTGRES_URL SECONDRUN_PGBOUNCER_URL SECONDRUN_REDIS_ADDR \
		SECONDRUN_SENTINEL_ADDRS SECONDRUN_CLUSTER_ADDRS SECONDRUN_SQS_ENDPOINT; do
		given "$variable" || continue
		address=$(sed -E 's#^[a-z]+://##; s#^[^@/]*@##; s#[/?,].*##' <<<"${!variable}")
		case $address in
		*:*) listens "${address##*:}" "${address%:*}" || die "$variable is set, but $address does not answer" ;;
		esac
		say "$variable is set: used as it is"
	done
}
