# Debian's packages. Sourced by services.sh.
# shellcheck shell=bash

# needs COMMAND PACKAGE adds the package to missing unless the command exists.
needs() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }

install_packages() {
	local missing=()
	PATH=$PATH:/usr/sbin:/usr/local/sbin
	given SECONDRUN_POSTGRES_URL || postgres_bin >/dev/null || missing+=(postgresql)
	given SECONDRUN_POSTGRES_URL || needs pgbouncer pgbouncer
	if ! given SECONDRUN_REDIS_ADDR || ! given SECONDRUN_SENTINEL_ADDRS || ! given SECONDRUN_CLUSTER_ADDRS; then
		needs redis-server redis-server
		needs redis-cli redis-tools
	fi
	if ! given SECONDRUN_SQS_ENDPOINT; then
		needs java default-jre-headless
		[ -s "$state/elasticmq/complete" ] || needs mvn maven
		needs curl curl
	fi
	needs setpriv util-linux
	needs gcc gcc # the race detector links with it
	[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "missing: ${missing[*]}; install them, this is no Debian"
	say "installing ${missing[*]}"
	install_quietly "${missing[@]}"
}

# install_quietly installs without starting the distribution's own services,
# neither now nor at the next boot.
install_quietly() {
	local sudo=() policy=/usr/sbin/policy-rc.d log=$state/apt.log made=0
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "missing: $*; run as root or install sudo"
		sudo=(sudo)
	fi
	if [ ! -e $policy ]; then
		made=1
		printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
		"${sudo[@]}" chmod +x $policy
	fi
	local rc=0
	{ "${sudo[@]}" apt-get update -q &&
		"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; } >"$log" 2>&1 || rc=$?
	[ $made = 0 ] || "${sudo[@]}" rm -f $policy
	if [ $rc != 0 ]; then
		tail -n 20 "$log" >&2
		die "apt-get failed; its output is in .services/apt.log"
	fi
	local package
	for package; do
		case $package in
		postgresql | pgbouncer | redis-server)
			"${sudo[@]}" update-rc.d "$package" disable >/dev/null 2>&1 || true
			;;
		esac
	done
}
