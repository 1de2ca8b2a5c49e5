#!/usr/bin/env bash
# Checks dashboards/: the Prometheus rules and their unit tests with promtool,
# and every query of the Grafana dashboard against a real Prometheus that
# scrapes examples/observability. Installs Debian's prometheus where it is
# missing (its own service is not started). Everything listens on free ports of
# 127.0.0.1 and is gone afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
state=$PWD/.services
mkdir -p "$state"
# shellcheck source=services/lib.sh
. scripts/services/lib.sh
# shellcheck source=services/packages.sh
. scripts/services/packages.sh
say() { echo "check-dashboards: $*" >&2; }

if ! command -v promtool >/dev/null; then
	say "installing prometheus"
	install_quietly prometheus
	if [ "$(id -u)" = 0 ]; then update-rc.d prometheus disable; else sudo update-rc.d prometheus disable; fi >/dev/null 2>&1 || true
fi

promtool check rules dashboards/rules.yml
promtool test rules dashboards/rules_test.yml

tmp=$(mktemp -d)
pids=()
finish() {
	local rc=$?
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait
	[ $rc = 0 ] || tail -n 20 "$tmp"/*.log >&2
	rm -rf "$tmp"
}
trap finish EXIT

app='' server=''
# shellcheck disable=SC2034 # pick_port reads it
used_ports=" "
pick_port app
pick_port server
(cd examples/observability && go build -o "$tmp/observability" .)
go build -o "$tmp/checkdashboards" ./scripts/checkdashboards
"$tmp/observability" -serve "127.0.0.1:$app" >"$tmp/observability.log" 2>&1 &
pids+=($!)
cat >"$tmp/prometheus.yml" <<-END
	global: {scrape_interval: 1s, evaluation_interval: 1s}
	rule_files: [$PWD/dashboards/rules.yml]
	scrape_configs:
	  - job_name: observability
	    static_configs: [{targets: ["127.0.0.1:$app"]}]
END
prometheus --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/data" \
	--web.listen-address="127.0.0.1:$server" --log.level=warn >"$tmp/prometheus.log" 2>&1 &
pids+=($!)
"$tmp/checkdashboards" -prometheus "http://127.0.0.1:$server" -patience 90s dashboards/secondrun.json dashboards/rules.yml
