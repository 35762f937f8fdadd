#!/usr/bin/env bash
# cluster.sh CARILLON [OTHER...]: durable adds to three nodes with three replicas of each timer, and to three members of
# etcd, in turn, ROUNDS times, at 64 and at 256 connections: operations a second, p99, and the processor time that all
# processes used for one. The last lines are the medians, and the ratio to etcd's, round by round. Clients of ours
# go to the nodes that lead, and in further rounds to any node. Each OTHER is one more build of Carillon, or the same one
# with other flags, or as another number of nodes, measured in the same rounds in the place of etcd.
# ROUNDS=3, SECONDS_EACH=10, CONNECTIONS='64 256', SERVE='--shards 4': flags of all our nodes, SERVE_1 and so on those of
# the first build's alone. NODES=3 (1 to 5), and NODES_1 and so on. BATCH=100 timers a request of ours. PROFILE=DIR leaves profiles of each node there.
# PRIORITY and PORT as in run.sh; PORT is the first of 300.
# With one build, herds of 50,000 timers of one instant follow: spread over these nodes, and through a node alone, in turn.
set -euo pipefail
carillon=$1 rounds=${ROUNDS:-3} each=${SECONDS_EACH:-10}
cd "$(dirname "$0")/../.."
. test/bench/node.sh
builds=("$@") kinds=()

used() { # PID...: ticks of all of them
	local sum=0 p
	for p in "$@"; do sum=$((sum + $(cpu_ticks "$p"))); done
	echo "$sum"
}

nodes() { # K: how many nodes build K is run as
	local own=NODES_$(($1 + 1))
	echo "${!own:-${NODES:-3}}"
}

start_ours() { # K: build K as a cluster; its pids are ours_K, its URLs urls_K
	local k=$1 join="" n at=$((port + 100 + 20 * $1)) p=() u=()
	local flags=SERVE_$((k + 1)) number
	number=$(nodes "$k")
	for ((n = 0; n < number; n++)); do join+="${join:+,}127.0.0.1:$((at + 10 + n))"; done
	if [ "$number" = 1 ]; then join=""; fi
	for ((n = 0; n < number; n++)); do
		free "http://127.0.0.1:$((at + n))"
		# shellcheck disable=SC2086 # flags are several words
		"${first[@]}" "${builds[k]}" serve --data "$dir/ours-$k-$n" --name "n$n" --http "127.0.0.1:$((at + n))" --peer "127.0.0.1:$((at + 5 + n))" \
			--gossip "127.0.0.1:$((at + 10 + n))" ${join:+--join "$join"} --bootstrap-expect "$number" --gossip-key "$dir/key" --log-level warn \
			${PROFILE:+--admin "127.0.0.1:$((at + 15 + n))"} ${SERVE:-} ${!flags:-} >"$dir/ours-$k-$n.log" 2>&1 &
		pids+=("$!")
		p+=("$!")
		u+=(--url "http://127.0.0.1:$((at + n))")
	done
	for ((n = 0; n < number; n++)); do await "http://127.0.0.1:$((at + n))/readyz" "${p[n]}" "$dir/ours-$k-$n.log"; done
	for _ in $(seq 600); do # until all have joined and the leaders are spread
		curl -fsS "http://127.0.0.1:$at/v1/cluster" 2>/dev/null | grep -q '"healthy":true' && break
		pause 0.1
	done
	declare -ga "ours_$k=(${p[*]})" "urls_$k=(${u[*]})"
	kinds+=("ours_$k")
}

three_of_etcd() {
	local cluster="" n at=$((port + 90))
	etcd_addrs=""
	for n in 0 1 2; do
		cluster+="${cluster:+,}m$n=http://127.0.0.1:$((at + 3 + n))"
		etcd_addrs+="${etcd_addrs:+,}127.0.0.1:$((at + n))"
	done
	etcd_pids=()
	for n in 0 1 2; do
		free "http://127.0.0.1:$((at + n))"
		"${first[@]}" etcd --name "m$n" --data-dir "$dir/etcd-$n" --listen-client-urls "http://127.0.0.1:$((at + n))" --advertise-client-urls "http://127.0.0.1:$((at + n))" \
			--listen-peer-urls "http://127.0.0.1:$((at + 3 + n))" --initial-advertise-peer-urls "http://127.0.0.1:$((at + 3 + n))" \
			--initial-cluster "$cluster" --initial-cluster-state new --quota-backend-bytes $((8 << 30)) >"$dir/etcd-$n.log" 2>&1 &
		pids+=("$!")
		etcd_pids+=("$!")
	done
	for n in 0 1 2; do await "http://127.0.0.1:$((at + n))/health" "${etcd_pids[n]}" "$dir/etcd-$n.log"; done
	go build -o "$dir/etcd-puts" ./test/bench/etcd
	kinds+=(etcd)
}

profile() { # K CONNECTIONS: of the middle of a measurement, in the background
	local n
	for ((n = 0; n < $(nodes "$1"); n++)); do
		curl -fsS -o "$PROFILE/cpu.$1.$2.$n" "http://127.0.0.1:$((port + 115 + 20 * $1 + n))/debug/pprof/profile?seconds=$((each - 2))" &
		curl -fsS -o "$PROFILE/allocs.$1.$2.$n" "http://127.0.0.1:$((port + 115 + 20 * $1 + n))/debug/pprof/allocs?seconds=$((each - 2))" &
	done
}

measure() { # KIND CONNECTIONS: appends "operations/s p99 µs" to the file of both
	local before out="$dir/out" result="$dir/result.$1.$2" k=${1#*_} any=""
	if [ "$1" = any_0 ]; then any=--any-node; fi
	if [ "$1" = etcd ]; then
		before=$(used "${etcd_pids[@]}")
		"${first[@]}" "$dir/etcd-puts" "$etcd_addrs" "$2" "$each" >"$out"
		awk -v t=$(($(used "${etcd_pids[@]}") - before)) '{print $5 + 0, $(NF - 1), t * 10000 / $3}' "$out" >>"$result"
	else
		local -n p="ours_$k" u="urls_$k"
		before=$(used "${p[@]}")
		if [ -n "${PROFILE:-}" ] && [ -z "$any" ]; then profile "$k" "$2"; fi
		"${first[@]}" "${builds[k]}" loadtest add "${u[@]}" $any -c "$2" ${BATCH:+--batch "$BATCH"} -d "${each}s" --warmup 0s --keep -q >"$out"
		awk -v t=$(($(used "${p[@]}") - before)) '$1 == "latency" {p99 = $4} /operations in/ {n = $1; gsub(",", "", $5); s = $5 + 0} END {print s, p99, t * 10000 / n}' "$out" >>"$result"
	fi
	tail -n 1 "$result" | awk -v name="$(name "$1")" -v c="$2" '{printf "%s, %d connections: %d/s, p99 %.1f ms, %.1f µs of processor time each\n", name, c, $1, $2, $3}'
}

name() { if [ "$1" = etcd ]; then echo "etcd"; elif [ "$1" = any_0 ]; then echo "carillon, any node"; elif [ ${#builds[@]} = 1 ]; then echo "carillon"; else echo "carillon $((${1#ours_} + 1))"; fi; }

compare() { # KIND OTHER CONNECTIONS: by round, the first to the other
	local column=0 label
	for label in "operations/s" "p99" "processor time"; do
		column=$((column + 1))
		printf '  %s × %s' "$label" "$(paste -d ' ' "$dir/result.$1.$3" "$dir/result.$2.$3" | awk -v c=$column '{print $c / $(c + 3)}' | median)"
	done
	echo
}

herd() { # LABEL --url URL...: fires 50,000 timers of one instant
	"${first[@]}" "$carillon" loadtest fire "${@:2}" -n 50000 --same-instant --delay 5s --batch 100 -q >"$dir/out"
	grep -E '^ *lateness' "$dir/out" | sed "s/^ */herd, $1: /"
}

head -c 32 /dev/urandom | base64 >"$dir/key"
for k in "${!builds[@]}"; do start_ours "$k"; done
if [ ${#builds[@]} = 1 ]; then
	kinds+=(any_0)
	if command -v etcd >/dev/null; then three_of_etcd; else echo "left out: etcd is not installed"; fi
fi
for c in ${CONNECTIONS:-64 256}; do
	for _ in $(seq "$rounds"); do
		for kind in "${kinds[@]}"; do measure "$kind" "$c"; done
	done
done
echo "medians of $rounds rounds (and their range), $(nproc) processors:"
for c in ${CONNECTIONS:-64 256}; do
	for kind in "${kinds[@]}"; do
		result="$dir/result.$kind.$c"
		echo "$(name "$kind"), $c connections: $(awk '{print $1}' "$result" | median)/s, p99 $(awk '{print $2}' "$result" | median) ms, $(awk '{print $3}' "$result" | median) µs"
	done
	for kind in "${kinds[@]:1}"; do
		echo "$(name ours_0) to $(name "$kind"), $c connections: $(compare ours_0 "$kind" "$c")"
		if [ "$kind" = etcd ]; then echo "$(name any_0) to $(name etcd), $c connections: $(compare any_0 etcd "$c")"; fi
	done
done

if [ ${#builds[@]} = 1 ]; then
	if [ -n "${etcd_pids:-}" ]; then stop "${etcd_pids[@]}"; fi
	start_node alone $((port + 1))
	for _ in $(seq "$rounds"); do
		herd "$(nodes 0) nodes" "${urls_0[@]}"
		herd "one node" --url "$url"
	done
fi
