#!/usr/bin/env bash
# trace.sh CARILLON: which part of a node's processor time goes into tracing, by Go's profiler, while RATE timers a second
# are added and fired: with a collector that gets SAMPLE of the changes, and with one that is down. It needs Go.
# SAMPLE=0.01, RATE=4000, EACH=30 seconds; PRIORITY and PORT as in run.sh.
set -euo pipefail
carillon=$1 sample=${SAMPLE:-0.01} rate=${RATE:-4000} each=${EACH:-30}
cd "$(dirname "$0")/../.."
. test/bench/node.sh

part() { # LABEL PORT COLLECTOR
	local admin=127.0.0.1:$(($2 + 1)) load
	start_node node "$2" --admin "$admin" --otlp-endpoint "$3" --trace-sample "$sample"
	"$carillon" loadtest fire --url "$url" -c 64 -R "$rate" -d "$((each + 4))s" --delay uniform:100ms-1s -q >"$dir/load" &
	load=$!
	pause 2
	curl -fsS -o "$dir/profile" "http://$admin/debug/pprof/profile?seconds=$each"
	wait "$load"
	echo "$1: $(go tool pprof -top -focus 'internal/tracing|opentelemetry' "$dir/profile" 2>/dev/null | sed -n 's/^Showing nodes accounting for //p')"
	curl -fsS "$url/metrics" | grep -E '^carillon_spans_' | sed 's/^/  /'
	stop "$node"
}

"$carillon" sink --listen "127.0.0.1:$((port + 5))" >"$dir/sink" 2>&1 &
pids+=($!)
part "a collector" $((port + 6)) "http://127.0.0.1:$((port + 5))"
part "a collector that is down" $((port + 8)) http://127.0.0.1:1
