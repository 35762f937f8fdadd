#!/usr/bin/env bash
# restart.sh CARILLON: memory of a node with many pending timers, how long it takes to be ready after kill -9, three times, and what it costs to wait.
# TIMERS=1000000, PAYLOAD=200 bytes (80 at least); PRIORITY and PORT as in run.sh.
set -euo pipefail
carillon=$1 timers=${TIMERS:-1000000}
cd "$(dirname "$0")/../.."
. test/bench/node.sh

each() { echo "$(($(resident "$node") / timers)) B per timer"; }

start_node node $((port + 1))
"${first[@]}" "$carillon" loadtest add --url "$url" -c 16 -n "$timers" --batch 500 --payload "${PAYLOAD:-200}" --delay uniform:100h-8000h --keep -q
echo "resident at the end of the load: $(each)"
pause 5
echo "resident 5 s later, when what the load took has gone back to the system: $(each)"
for _ in 1 2 3; do
	kill -9 "$node" && wait "$node" 2>/dev/null || true
	began=$(date +%s%N)
	start_again node $((port + 1))
	echo "ready after kill -9: $((($(date +%s%N) - began) / 1000000)) ms, resident $(each)"
done
pause 10 # the first seconds are spent on snapshots of what the log held
before=$(cpu_ticks "$node")
pause 10
awk -v t="$(($(cpu_ticks "$node") - before))" -v n="$timers" 'BEGIN {printf "idle with %d far timers: %.1f %% of a core\n", n, t / 10}'
