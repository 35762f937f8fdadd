#!/usr/bin/env bash
# run.sh CARILLON OUT: the standard measurements, each of Carillon's with its yardstick in the same run, written to OUT.
# It ends by itself in about half an hour. Yardsticks that are not installed (wrk, redis-server, beanstalkd, etcd) are left
# out, and that is said. SECONDS_EACH=10 sets the length of one measurement, ROUNDS=5 how often those in turn are made.
# PRIORITY='chrt -r 10' (as root) runs both sides of each comparison before all else on a machine that others use at the
# same time. PORT=7790 is the first of the 300 ports of 127.0.0.1 that it takes.
set -euo pipefail
carillon=$1 out=$2
cd "$(dirname "$0")/../.."
. test/bench/node.sh
each=${SECONDS_EACH:-10} rounds=${ROUNDS:-5}
exec > >(tee "$out") 2>&1

section() { printf '\n## %s\n\n' "$*"; }
have() { command -v "$1" >/dev/null || { echo "left out: $1 is not installed"; return 1; }; }

echo "# Carillon benchmarks"
echo
"$carillon" version
echo "machine: $(nproc) processors, $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr), $(go version | cut -d' ' -f3)"
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"

# Each measurement of the first part prints a line, and appends "operations/s p99 µs" to a file: the median and the ratios of
# the rounds are of these.
record() { # NAME OPERATIONS/S P99_MS µs
	echo "$2 $3 $4" >>"$dir/result.$1"
	printf '%s: %.0f/s, p99 %.1f ms, %.1f µs of processor time each\n' "$1" "$2" "$3" "$4"
}

by_wrk() { # NAME PID SCRIPT URL
	local before
	before=$(cpu_ticks "$2")
	"${first[@]}" wrk -t1 -c64 -d"${each}s" --latency -s "test/bench/$3" "$4" >"$dir/wrk.out"
	if grep Non-2xx "$dir/wrk.out"; then return 1; fi
	# shellcheck disable=SC2046 # three words
	record "$1" $(awk -v t=$(($(cpu_ticks "$2") - before)) '
		$1 == "99%" {p = $2 + 0; if ($2 ~ /us$/) p /= 1000; else if ($2 !~ /ms$/) p *= 1000}
		/requests in/ {n = $1} /^Requests\/sec/ {print $2, p, t * 10000 / n}' "$dir/wrk.out")
}

by_tester() { # NAME FLAG...: on the node
	local before
	before=$(cpu_ticks "$node")
	"${first[@]}" "$carillon" loadtest "${@:2}" --url "$url" -d "${each}s" --warmup 0s -q >"$dir/tester.out"
	grep -q 'lost 0  early 0  duplicate 0' "$dir/tester.out" || { cat "$dir/tester.out"; return 1; }
	# shellcheck disable=SC2046
	record "$1" $(awk -v t=$(($(cpu_ticks "$node") - before)) '$1 == "latency" {p = $4} /operations in/ {gsub(",", "", $5); print $5 + 0, p, t * 10000 / $1}' "$dir/tester.out")
}

by_redis() { # NAME CONNECTIONS REQUESTS [FLAG...]
	local before
	before=$(cpu_ticks "$redis")
	"${first[@]}" redis-benchmark -p $((port + 3)) -c "$2" -n "$3" "${@:4}" -r 100000000 --csv EVALSHA "$sha" 0 timer-__rand_int__ "$payload" | tail -1 | sed 's/^"EVALSHA[^"]*"/EVALSHA/; s/"//g' >"$dir/redis.out"
	# shellcheck disable=SC2046
	record "$1" $(awk -F , -v t=$(($(cpu_ticks "$redis") - before)) -v n="$3" '{print $2, $7, t * 10000 / n}' "$dir/redis.out")
}

ratio() { # NAME OTHER: medians, and of the rounds the first to the other; nothing where one was left out
	if [ ! -s "$dir/result.$1" ] || [ ! -s "$dir/result.$2" ]; then return; fi
	local column=0 label
	printf '%s to %s:' "$1" "$2"
	for label in "operations/s" "p99" "processor time"; do
		column=$((column + 1))
		printf '  %s × %s' "$label" "$(paste -d ' ' "$dir/result.$1" "$dir/result.$2" | awk -v c=$column '{print $c / $(c + 3)}' | median)"
	done
	echo
}

section "in turn: an echo server of fasthttp, Redis (appendfsync always, ZADD + HSET in a script), and a node"
start_node node $((port + 1))
wrk=$(have wrk >&2 && echo yes || true)
redis=""
if [ -n "$wrk" ]; then
	go build -o "$dir/echo" ./test/bench/echo
	free "http://127.0.0.1:$((port + 2))"
	"${first[@]}" "$dir/echo" "127.0.0.1:$((port + 2))" &
	echo_pid=$!
	pids+=("$echo_pid")
	await "http://127.0.0.1:$((port + 2))" "$echo_pid"
fi
if have redis-server && have redis-benchmark; then
	mkdir "$dir/redis"
	free "http://127.0.0.1:$((port + 3))"
	"${first[@]}" redis-server --port $((port + 3)) --dir "$dir/redis" --appendonly yes --appendfsync always --save '' >"$dir/redis.log" &
	redis=$!
	pids+=("$redis")
	for _ in $(seq 100); do redis-cli -p $((port + 3)) ping >/dev/null 2>&1 && break; pause 0.05; done
	sha=$(redis-cli -p $((port + 3)) -x SCRIPT LOAD <test/bench/add.redis.lua)
	payload=$(head -c 200 /dev/zero | tr '\0' x)
fi
for _ in $(seq "$rounds"); do
	if [ -n "$wrk" ]; then by_wrk echo "$echo_pid" add.lua "http://127.0.0.1:$((port + 2))/"; fi
	if [ -n "$redis" ]; then by_redis redis 64 $((each * 40000)); fi
	if [ -n "$wrk" ]; then by_wrk "adds by wrk" "$node" add.lua "$url/v1/topics/bench/timers"; fi
	by_tester adds add -c 64 --keep
	by_tester churn churn -c 64
done
for _ in $(seq "$rounds"); do
	if [ -n "$redis" ]; then by_redis "redis, 256 connections" 256 $((each * 40000)); fi
	by_tester "adds, 256 connections" add -c 256 --keep
	if [ -n "$redis" ]; then by_redis "redis, pipelines of 100" 64 $((each * 60000)) -P 100; fi
	by_tester "adds, batches of 100" add -c 64 --batch 100
	by_tester "adds, batches of 1000" add -c 8 --batch 1000
done
if [ -n "$wrk" ]; then stop "$echo_pid"; fi
if [ -n "$redis" ]; then stop "$redis"; fi
echo "medians of $rounds rounds (and their range):"
for result in "$dir"/result.*; do
	echo "${result##*/result.}: $(awk '{print $1}' "$result" | median)/s, p99 $(awk '{print $2}' "$result" | median) ms, $(awk '{print $3}' "$result" | median) µs"
done
ratio "adds by wrk" redis
ratio "adds by wrk" echo
ratio adds redis
ratio churn adds
ratio "adds, 256 connections" "redis, 256 connections"
ratio "adds, batches of 100" "redis, pipelines of 100"
ratio "adds, batches of 1000" "redis, pipelines of 100"
ratio "adds, batches of 1000" adds

section "processor time of a request: the load tester and wrk with a script that posts the same bodies"
if have wrk; then
	TIMEFORMAT='%U %S'
	for _ in 1 2 3; do
		used=$( { time "${first[@]}" "$carillon" loadtest add --url "$url" -c 64 -d "${each}s" --keep -q >"$dir/tester.out"; } 2>&1)
		awk -v used="$used" '/operations in/ {split(used, t, " "); printf "load tester %.1f µs", (t[1] + t[2]) * 1e6 / $1}' "$dir/tester.out"
		used=$( { time "${first[@]}" wrk -t1 -c64 -d"${each}s" -s test/bench/same.lua "$url/v1/topics/bench/timers" >"$dir/wrk.out"; } 2>&1)
		awk -v used="$used" '/requests in/ {split(used, t, " "); printf ", wrk %.1f µs\n", (t[1] + t[2]) * 1e6 / $1}' "$dir/wrk.out"
	done
fi
section "mixed"
"${first[@]}" "$carillon" loadtest mixed --url "$url" -c 64 -d "${each}s"
stop "$node"

section "yardstick: beanstalkd, binlog fsynced at each write, delayed puts"
if have beanstalkd; then
	mkdir "$dir/beanstalk"
	go build -o "$dir/beanstalk-puts" ./test/bench/beanstalk
	free "http://127.0.0.1:$((port + 4))"
	"${first[@]}" beanstalkd -l 127.0.0.1 -p $((port + 4)) -b "$dir/beanstalk" -f 0 >"$dir/beanstalk.log" 2>&1 &
	beanstalkd=$!
	pids+=("$beanstalkd")
	for _ in $(seq 100); do (: <>/dev/tcp/127.0.0.1/$((port + 4))) 2>/dev/null && break; pause 0.05; done
	for c in 64 256; do "${first[@]}" "$dir/beanstalk-puts" "127.0.0.1:$((port + 4))" "$c" "$each"; done
	stop "$beanstalkd"
fi

section "yardstick: the receiver of the load tester alone, 64 connections (it should take twice what a node fires)"
if have wrk; then
	free "http://127.0.0.1:$((port + 5))"
	"${first[@]}" "$carillon" sink --no-print --listen "127.0.0.1:$((port + 5))" >"$dir/sink.log" 2>&1 &
	sink=$!
	pids+=("$sink")
	await "http://127.0.0.1:$((port + 5))" "$sink"
	"${first[@]}" wrk -t1 -c64 -d"${each}s" --latency -s test/bench/add.lua "http://127.0.0.1:$((port + 5))/" | grep -E '50%|99%|Requests/sec'
	stop "$sink"
fi

start_node node $((port + 1))
section "lateness: 1,000 timers a second at random times"
"${first[@]}" "$carillon" loadtest fire --url "$url" -R 1000 -d "$((each * 6))s" --delay uniform:1s-5s
section "lateness: N in one instant"
for n in 3500 3500 3500 50000; do "${first[@]}" "$carillon" loadtest fire --url "$url" -n $n --same-instant --delay 5s --batch 100; done

section "adds, 2,000 a second: in quiet, while 50,000 timers of one instant fire, and beside a busy loop on each processor for as long (goal 1.5 ×, floor 2 × of that)"
adds() { # NAME
	"${first[@]}" "$carillon" loadtest add --url "$url" -R 2000 -d 2s --warmup 0s --topic kept --keep -q >"$dir/adds"
	awk -v name="$1" '$1 == "latency" {print name ": p99 " $4 " ms"}' "$dir/adds"
	awk '$1 == "latency" {print $4}' "$dir/adds" >"$dir/adds.$1"
}
for _ in 1 2 3; do
	adds quiet
	"${first[@]}" "$carillon" loadtest fire --url "$url" -n 50000 --same-instant --delay 5s --batch 100 -q >"$dir/fire" &
	fire=$!
	pause 4.8 # the instant is 5 s after its start
	adds herd
	wait "$fire"
	grep -E '^ *lateness' "$dir/fire"
	loops=()
	for _ in $(seq "$(nproc)"); do
		"${first[@]}" timeout "$(awk '$1 == "lateness" {print $NF / 1000}' "$dir/fire")" sh -c 'while :; do :; done' &
		loops+=("$!")
	done
	adds busy
	wait "${loops[@]}" || true # 124: the time is over
	paste "$dir/adds.quiet" "$dir/adds.herd" "$dir/adds.busy" | awk '{printf "herd to busy loops: %.2f ×, to quiet: %.2f ×\n", $2 / $3, $2 / $1}'
done

receivers=${RECEIVERS:-100000}
section "timers of one instant to $receivers receivers: a node and a bare fasthttp client that calls as many addresses, 2,048 at once, in turn (goal 1.5 ×, floor 2 ×)"
go build -o "$dir/bare" ./test/bench/receivers
free "http://127.0.0.1:$((port + 6))"
"${first[@]}" "$carillon" sink --no-print --listen "0.0.0.0:$((port + 6))" >"$dir/sink.log" 2>&1 &
sink=$!
pids+=("$sink")
await "http://127.0.0.1:$((port + 6))" "$sink"
for _ in 1 2 3; do
	bare=$("${first[@]}" "$dir/bare" $((port + 6)) "$receivers" 2048)
	"${first[@]}" "$carillon" loadtest fire --url "$url" --topic receivers --receivers "$receivers" --same-instant -q >"$dir/many.out" || true # the table says what was wrong
	drained=$(awk '/receivers \(answer\)/ {print $NF + 0}' "$dir/many.out")
	echo "bare client: $bare s; node: $drained s: $(awk -v a="$drained" -v b="$bare" 'BEGIN {printf "%.2f", a / b}') ×"
	grep -E '^ +(before|during|!)|^lost|^FAILED' "$dir/many.out"
done
stop "$sink"
stop "$node"

section "callbacks: the pool and a bare fasthttp client, same receiver"
"${first[@]}" go test -run '^$' -bench 'Calls/(raw|raw-paced|pool)$' -benchtime "$(((each + 1) / 2))s" -count 3 ./transport/callback | grep -E 'Benchmark|cpu:'

section "three nodes, three replicas of each timer, and three members of etcd, in turn"
SECONDS_EACH=$each test/bench/cluster.sh "$carillon"

section "16 shards and 4, three nodes, in turn: the first to the second (goal: processor time 1.1 ×)"
SECONDS_EACH=$each CONNECTIONS=64 SERVE_1='--shards 16' SERVE_2='--shards 4' test/bench/cluster.sh "$carillon" "$carillon"

section "one million timers of 200 B: memory, and restart to ready"
test/bench/restart.sh "$carillon"

section "growth: an add among many pending timers, and in many topics"
if have wrk; then test/bench/growth.sh "$carillon"; fi

section "Go benchmarks"
go test -run '^$' -bench . -skip LongestTurn -benchmem -benchtime 300ms ./... | grep -E '^(Benchmark|pkg:)' || true
(cd test/bench/libs && go test -run '^$' -bench . -benchmem -benchtime 300ms .) | grep -E '^(Benchmark|pkg:)' || true
go test -run '^$' -bench LongestTurn -benchtime 1x ./shard | grep -E '^Benchmark' || true # what goes before each takes seconds
