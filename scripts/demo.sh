#!/usr/bin/env bash
# demo.sh CARILLON: one real node and one receiver on free loopback ports. Timers are added, one is changed, one is
# cancelled, the node is killed with -9 while they wait, and comes back. Exit 0 only if every timer arrived, none of
# them early, none twice, and the cancelled one not at all.
set -euo pipefail
carillon=$1
timers=20
dir=$(mktemp -d)
node= sink=

stop() { # PID: ask, and wait until it is gone
	[ -z "$1" ] || { kill "$1" 2>/dev/null || true; wait "$1" 2>/dev/null || true; }
}
cleanup() {
	stop "$node"
	stop "$sink"
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n%s\n' "$*"; }

# await FILE PATTERN: the first line that matches, within 20 s
await() {
	for _ in $(seq 200); do
		if grep -m 1 -E "$2" "$1" 2>/dev/null; then return 0; fi
		sleep 0.1
	done
	echo "demo: $1 never said $2; the end of it:" >&2
	tail -n 5 "$1" "$dir"/*.err >&2
	return 1
}

start_node() { # FILE for its output
	"$carillon" serve --data "$dir/data" --http "${1:-127.0.0.1:0}" --log-level warn >"$dir/node.out" 2>>"$dir/node.err" &
	node=$!
	address=$(await "$dir/node.out" 'ready on' | sed -E 's|.*(http://[^,]*),.*|\1|')
	export CARILLON_URL=$address
}

say "1. A node and a receiver."
"$carillon" sink --listen 127.0.0.1:0 >"$dir/sink.out" 2>"$dir/sink.err" &
sink=$!
receiver=$(await "$dir/sink.out" 'receiving on' | sed -E 's|.*(http://.*)|\1|')
start_node
echo "node $address, receiver $receiver"

say "2. $timers timers, due in 6 seconds."
for i in $(seq "$timers"); do
	"$carillon" ctl add demo --id "timer-$i" --delay 6s --payload "{\"timer\":$i}" --callback "$receiver/" >/dev/null
done
"$carillon" ctl list demo --limit 3

say "3. One of them is changed, one is cancelled."
"$carillon" ctl patch demo timer-1 --payload '{"timer":"changed"}'
"$carillon" ctl cancel demo timer-2
expected=$((timers - 1))

say "4. kill -9 of the node, then it comes back with what it acknowledged."
kill -9 "$node"
wait "$node" 2>/dev/null || true
start_node "${address#http://}"
"$carillon" ctl topics

say "5. They arrive."
for _ in $(seq 300); do
	left=$("$carillon" ctl list demo --json --limit 0 | { grep -o '"id"' || true; } | wc -l)
	[ "$left" -gt 0 ] || break
	sleep 0.1
done
stop "$node"
node=
stop "$sink"
sink=
summary=$(tail -n 1 "$dir/sink.out")
echo "$summary"

field() { sed -nE "s/.*[^a-z]$1 ([0-9]+).*/\1/p" <<<"$summary"; }
received=$(field received) early=$(field early) repeated=$(field repeated)
say "expected $expected, received $received, early $early, repeated $repeated"
if [ "$received" != "$expected" ] || [ "$early" != 0 ] || [ "$repeated" != 0 ] ||
	! grep -q 'demo/timer-1 .*"changed"' "$dir/sink.out" || grep -q 'demo/timer-2 ' "$dir/sink.out"; then
	echo "demo: that is not as promised; what the receiver saw:" >&2
	cat "$dir/sink.out" >&2
	exit 1
fi
echo "Every timer arrived once, none early; the cancelled one never."
