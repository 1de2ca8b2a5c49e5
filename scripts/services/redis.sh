# Redis alone, behind Sentinel, and as a cluster. Sourced by services.sh.
# shellcheck shell=bash

# launch_redis_node NAME PORT OPTION... starts one server without persistence.
launch_redis_node() {
	local name=$1 port=$2
	shift 2
	make_dir "$name"
	launch "$name" TERM "127.0.0.1:$port" "$(command -v redis-server)" --bind 127.0.0.1 --port "$port" --dir "$data/$name" \
		--save '' --appendonly no --shutdown-timeout 0 --repl-diskless-sync-delay 0 --enable-debug-command local "$@"
}

make_dir() {
	mkdir "$data/$1"
	[ "$(id -u)" != 0 ] || chown "$(account)" "$data/$1"
}

# redis PORT COMMAND... prints the answer, with errors as text.
redis() { redis-cli -h 127.0.0.1 -p "$@" 2>&1; }

launch_redis() {
	given SECONDRUN_REDIS_ADDR && return
	pick_port redis_port
	launch_redis_node redis "$redis_port"
}

redis_ready() {
	given SECONDRUN_REDIS_ADDR && return
	[ "$(redis "$redis_port" PING)" = PONG ] || return 1
	publish SECONDRUN_REDIS_ADDR "127.0.0.1:$redis_port"
}

# Sentinel: one master, two replicas, three sentinels that agree on a failover
# after one second.
launch_sentinel() {
	given SECONDRUN_SENTINEL_ADDRS && return
	local port i conf
	pick_port master_port
	launch_redis_node sentinel-master "$master_port"
	for i in 1 2; do
		pick_port port
		launch_redis_node "sentinel-replica-$i" "$port" --replicaof "127.0.0.1 $master_port"
	done
	sentinel_ports=()
	for i in 1 2 3; do
		pick_port port
		sentinel_ports+=("$port")
		make_dir "sentinel-$i"
		conf=$data/sentinel-$i/sentinel.conf
		cat >"$conf" <<-CONF
			bind 127.0.0.1
			port $port
			dir $data/sentinel-$i
			sentinel monitor secondrun 127.0.0.1 $master_port 2
			sentinel down-after-milliseconds secondrun 1000
			sentinel failover-timeout secondrun 5000
		CONF
		[ "$(id -u)" != 0 ] || chown "$(account)" "$conf"
		launch "sentinel-$i" TERM "127.0.0.1:$port" "$(command -v redis-server)" "$conf" --sentinel
	done
}

sentinel_ready() {
	given SECONDRUN_SENTINEL_ADDRS && return
	[ "$(redis "$master_port" INFO replication | grep -c 'state=online')" = 2 ] || return 1
	local port facts
	for port in "${sentinel_ports[@]}"; do
		facts=$(redis "$port" SENTINEL master secondrun | paste -d' ' - -)
		grep -qx 'num-slaves 2' <<<"$facts" && grep -qx 'num-other-sentinels 2' <<<"$facts" || return 1
	done
	publish SECONDRUN_SENTINEL_ADDRS "$(printf ',127.0.0.1:%s' "${sentinel_ports[@]}" | cut -c2-)"
}

launch_cluster() {
	given SECONDRUN_CLUSTER_ADDRS && return
	local port i
	cluster_ports=()
	for i in 1 2 3; do
		pick_port port
		cluster_ports+=("$port")
		launch_redis_node "cluster-$i" "$port" --cluster-enabled yes --cluster-node-timeout 2000
	done
}

cluster_ready() {
	given SECONDRUN_CLUSTER_ADDRS && return
	local port
	for port in "${cluster_ports[@]}"; do
		[ "$(redis "$port" PING)" = PONG ] || return 1
	done
	if [ -z "${cluster_created:-}" ]; then
		redis-cli --cluster create "${cluster_ports[@]/#/127.0.0.1:}" --cluster-yes >"$data/cluster-create.log" 2>&1 ||
			die "redis-cli --cluster create failed"
		cluster_created=1
	fi
	for port in "${cluster_ports[@]}"; do
		redis "$port" CLUSTER INFO | grep -q 'cluster_state:ok' || return 1
	done
	publish SECONDRUN_CLUSTER_ADDRS "$(printf ',127.0.0.1:%s' "${cluster_ports[@]}" | cut -c2-)"
}
