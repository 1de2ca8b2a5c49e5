# PostgreSQL, and PgBouncer in transaction mode before it. Sourced by
# services.sh.
# shellcheck shell=bash

# postgres_bin prints the directory of the newest installed server.
postgres_bin() {
	local newest
	newest=$(find /usr/lib/postgresql -mindepth 3 -maxdepth 3 -name initdb -path '*/bin/*' 2>/dev/null | sort -V | tail -n 1)
	[ -n "$newest" ] && dirname "$newest"
}

launch_postgres() {
	given SECONDRUN_POSTGRES_URL && return
	local bin
	bin=$(postgres_bin)
	pick_port postgres_port
	postgres_password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
	echo "$postgres_password" >"$data/password"
	[ "$(id -u)" != 0 ] || chown "$(account)" "$data/password"
	chmod 600 "$data/password"
	# A linguistic collation, as most installations have one: a store that
	# relies on byte order must say so.
	(cd "$data" && as_account "$bin/initdb" -D "$data/postgres" -U secondrun -E UTF8 \
		--locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US \
		--auth=scram-sha-256 --pwfile="$data/password" --no-sync) >"$data/initdb.log" 2>&1 ||
		{ cat "$data/initdb.log" >&2; die "initdb failed"; }
	# Durability stays at its defaults: the benchmarks measure against it.
	launch postgres INT "$data/postgres" "$bin/postgres" -D "$data/postgres" -p "$postgres_port" \
		-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=300
}

postgres_ready() {
	given SECONDRUN_POSTGRES_URL && return
	psql_as_owner postgres -c 'SELECT 1' || return 1
	psql_as_owner postgres -c 'CREATE DATABASE secondrun' || return 1
	publish SECONDRUN_POSTGRES_URL "postgres://secondrun:$postgres_password@127.0.0.1:$postgres_port/secondrun?sslmode=disable"
}

psql_as_owner() {
	PGPASSWORD=$postgres_password "$(postgres_bin)/psql" -h 127.0.0.1 -p "$postgres_port" -U secondrun -d "$1" -X -q -A -t "${@:2}" >"$data/psql.log" 2>&1
}

# PgBouncer is started before the own server only. Newer versions can track
# prepared statements; that is switched off, since the installations that
# matter to the tests don't have it.
launch_pgbouncer() {
	given SECONDRUN_PGBOUNCER_URL && return
	if given SECONDRUN_POSTGRES_URL; then
		say "SECONDRUN_POSTGRES_URL is set without SECONDRUN_PGBOUNCER_URL: no PgBouncer"
		return
	fi
	pick_port pgbouncer_port
	cat >"$data/pgbouncer.ini" <<-INI
		[databases]
		secondrun = host=127.0.0.1 port=$postgres_port dbname=secondrun
		[pgbouncer]
		listen_addr = 127.0.0.1
		listen_port = $pgbouncer_port
		unix_socket_dir =
		auth_type = scram-sha-256
		auth_file = $data/pgbouncer.users
		admin_users = secondrun
		pool_mode = transaction
		default_pool_size = 20
		max_client_conn = 500
	INI
	local version signal=TERM
	version=$(pgbouncer --version | sed -n 's/^PgBouncer //p')
	if version_at_least 1.21 "$version"; then
		echo 'max_prepared_statements = 0' >>"$data/pgbouncer.ini"
	fi
	if version_at_least 1.23 "$version"; then
		signal=QUIT # TERM waits for the clients since then
	fi
	echo "\"secondrun\" \"$postgres_password\"" >"$data/pgbouncer.users"
	[ "$(id -u)" != 0 ] || chown "$(account)" "$data/pgbouncer.users"
	chmod 600 "$data/pgbouncer.users"
	launch pgbouncer "$signal" "$data/pgbouncer.ini" "$(command -v pgbouncer)" "$data/pgbouncer.ini"
}

pgbouncer_ready() {
	[ -n "${pgbouncer_port:-}" ] || return 0
	PGPASSWORD=$postgres_password "$(postgres_bin)/psql" -h 127.0.0.1 -p "$pgbouncer_port" -U secondrun -d secondrun -X -q \
		-c 'SELECT 1' >"$data/psql.log" 2>&1 || return 1
	publish SECONDRUN_PGBOUNCER_URL "postgres://secondrun:$postgres_password@127.0.0.1:$pgbouncer_port/secondrun?sslmode=disable"
}

version_at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }
