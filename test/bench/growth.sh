#!/usr/bin/env bash
# growth.sh CARILLON: what an add costs the node when few and when many timers are pending, in one topic and in many; and
# how long pages of a listing take where there are many shards. Two nodes take bursts of a second in turn, so that a
# minute in which the machine is slow is slow for both.
# PENDING=1000000, TOPICS=10000, SHARDS=1024, ROUNDS=8; PRIORITY and PORT as in run.sh.
set -euo pipefail
carillon=$1 pending=${PENDING:-1000000} topics=${TOPICS:-10000} shards=${SHARDS:-1024} rounds=${ROUNDS:-8}
cd "$(dirname "$0")/../.."
. test/bench/node.sh

burst() { # PID PORT TOPICS: a second of adds; prints µs of the node's processor time per add
	local before requests
	before=$(cpu_ticks "$1")
	TOPICS=$3 "${first[@]}" wrk -t1 -c64 -d1s -s test/bench/topics.lua "http://127.0.0.1:$2" >"$dir/wrk"
	if grep -q Non-2xx "$dir/wrk"; then cat "$dir/wrk" >&2; return 1; fi
	requests=$(awk '/requests in/ {print $1}' "$dir/wrk")
	awk -v t="$(($(cpu_ticks "$1") - before))" -v n="$requests" 'BEGIN {printf "%.1f", t * 10000 / n}'
}

in_turn() { # LABEL, then PID PORT TOPICS of one and of the other
	local one other _
	: >"$dir/pairs"
	for _ in $(seq "$rounds"); do
		one=$(burst "$2" "$3" "$4")
		other=$(burst "$5" "$6" "$7")
		echo "$one $other" >>"$dir/pairs"
	done
	awk '{print $2 / $1}' "$dir/pairs" | sort -n | awk -v label="$1" '{r[NR] = $1} END {printf "%s: × %.2f (median of %d pairs, %.2f to %.2f)\n", label, r[int((NR + 1) / 2)], NR, r[1], r[NR]}'
	awk '{a += $1; b += $2} END {printf "  on average %.1f and %.1f µs\n", a / NR, b / NR}' "$dir/pairs"
}

start_node few $((port + 6))
few=$node
start_node many $((port + 7))
many=$node
"$carillon" loadtest add --url http://127.0.0.1:$((port + 6)) -c 16 -n 10000 --batch 500 --payload 80 --delay uniform:100h-8000h --keep -q >"$dir/load"
"$carillon" loadtest add --url http://127.0.0.1:$((port + 7)) -c 16 -n "$pending" --batch 500 --payload 80 --delay uniform:100h-8000h --keep -q >"$dir/load"
in_turn "processor time of an add among $pending pending timers, to that among 10,000" "$few" $((port + 6)) 1 "$many" $((port + 7)) 1

TOPICS=$topics wrk -t1 -c64 -d30s -s test/bench/topics.lua "http://127.0.0.1:$((port + 7))" >"$dir/wrk" # makes the topics
in_turn "the same in $topics topics, to that in one, among $pending" "$many" $((port + 7)) 1 "$many" $((port + 7)) "$topics"
stop "$few"
stop "$many"

# Pages of 100, in order of the due time, so that each page takes a part from every shard.
start_node wide $((port + 8)) --shards "$shards"
"$carillon" loadtest add --url "$url" -c 16 -n 100000 --batch 500 --payload 80 --delay uniform:100h-8000h --topic listed --keep -q >"$dir/load"
echo "pages of a listing of 100,000 timers in $shards shards, one at a time:"
"${first[@]}" wrk -t1 -c1 -d10s --latency -s test/bench/pages.lua "$url/v1/topics/listed/timers?limit=100" | grep -E '50%|99%|Requests/sec|Non-2xx'
