#!/usr/bin/env bash
# price.sh BEFORE AFTER: what a durable add costs two builds of carillon in processor time, alone in a request and in batches of
# a thousand, each on a node of its own, in turn. ROUNDS=9 sets how often. PORT=7790 is the port of 127.0.0.1 that it takes.
set -euo pipefail
before=$1 after=$2
cd "$(dirname "$0")/../.."
. test/bench/node.sh

price() { # NAME PROGRAM FLAG...: appends µs an operation to a file
	local ticks
	carillon=$2
	start_node node "$port"
	ticks=$(cpu_ticks "$node")
	"${first[@]}" "$after" loadtest add --url "$url" --warmup 0s --keep -q "${@:3}" >"$dir/tester.out"
	grep -q 'lost 0  early 0  duplicate 0' "$dir/tester.out" || { cat "$dir/tester.out"; return 1; }
	awk -v t=$(($(cpu_ticks "$node") - ticks)) '/operations in/ {print t * 10000 / $1}' "$dir/tester.out" >>"$dir/result.$1"
	stop "$node"
}

for _ in $(seq "${ROUNDS:-9}"); do
	for build in before after; do
		price "$build.batch" "${!build}" -c 8 --batch 1000 -n 150000
		price "$build.one" "${!build}" -c 64 -n 40000
	done
done
for mode in one batch; do
	echo "$mode: before $(median <"$dir/result.before.$mode") µs, after $(median <"$dir/result.after.$mode") µs, ratio $(paste "$dir/result.after.$mode" "$dir/result.before.$mode" | awk '{print $1 / $2}' | median)"
done
echo "an operation of a batch to a single add: before $(paste "$dir/result.before.batch" "$dir/result.before.one" | awk '{print $1 / $2}' | median), after $(paste "$dir/result.after.batch" "$dir/result.after.one" | awk '{print $1 / $2}' | median)"
