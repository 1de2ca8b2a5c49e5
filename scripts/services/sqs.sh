# ElasticMQ, an SQS-compatible server that is not ours. Sourced by services.sh.
# shellcheck shell=bash

elasticmq_version=1.6.12

# resolve_sqs lets Maven put the server and what it needs into
# .services/elasticmq, which outlives a stop.
resolve_sqs() {
	given SECONDRUN_SQS_ENDPOINT && return
	local dir=$state/elasticmq
	[ "$(cat "$dir/complete" 2>/dev/null)" = "$elasticmq_version" ] && return
	say "resolving ElasticMQ $elasticmq_version"
	rm -rf "$dir"
	mkdir -p "$dir/jars"
	sed "s/VERSION/$elasticmq_version/" "$here/services/elasticmq.pom.xml" >"$dir/pom.xml"
	mvn -q -B -f "$dir/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$dir/jars" >"$state/maven.log" 2>&1 ||
		{ tail -n 20 "$state/maven.log" >&2; die "Maven could not resolve ElasticMQ"; }
	echo "$elasticmq_version" >"$dir/complete"
}

launch_sqs() {
	given SECONDRUN_SQS_ENDPOINT && return
	pick_port sqs_port
	# The account may not be able to enter the checkout.
	cp -r "$state/elasticmq/jars" "$data/elasticmq"
	chmod -R a+rX "$data/elasticmq"
	cat >"$data/elasticmq.conf" <<-CONF
		include classpath("application.conf")
		node-address { protocol = http, host = "127.0.0.1", port = $sqs_port, context-path = "" }
		rest-sqs { enabled = true, bind-hostname = "127.0.0.1", bind-port = $sqs_port, sqs-limits = strict }
		rest-stats.enabled = false
		generate-node-address = false
		queues {}
	CONF
	launch elasticmq TERM "$data/elasticmq.conf" "$(command -v java)" -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
		-Dconfig.file="$data/elasticmq.conf" -cp "$data/elasticmq/*" org.elasticmq.server.Main
}

sqs_ready() {
	given SECONDRUN_SQS_ENDPOINT && return
	curl -fsS -m 2 --noproxy '*' "http://127.0.0.1:$sqs_port/?Action=ListQueues&Version=2012-11-05" >/dev/null 2>&1 || return 1
	publish SECONDRUN_SQS_ENDPOINT "http://127.0.0.1:$sqs_port"
}
