#!/usr/bin/env bash
# lateness.sh CARILLON PAGE measures how late timers fire, at several rates and under five conditions, and writes PAGE (docs/lateness.md) with the
# machine, the day and the command. It takes about ten minutes. SECONDS_EACH=20 is how long timers are added in each measurement; RATES='100 1000
# 5000 20000'; CONDITIONS='quiet adds herd kill disk' names some of them. PRIORITY and PORT as in test/bench/run.sh; PORT is the first of 30.
set -euo pipefail
carillon=$(realpath "$1") page=$(realpath -m "$2") each=${SECONDS_EACH:-20} rates=${RATES:-100 1000 5000 20000}
cd "$(dirname "$0")/.."
. test/bench/node.sh
load_before=$(cut -d' ' -f1-3 /proc/loadavg) began=$SECONDS text=$dir/page
herd=50000 adds=2000 disk_ms=10

# Timers are added by a hundred requests a second at any rate. They fall due one to three seconds later, spread evenly.
paced() { # RATE URL...
	local rate=$1 urls=() u
	shift
	for u in "$@"; do urls+=(--url "$u"); done
	"${first[@]}" "$carillon" loadtest fire "${urls[@]}" -R "$rate" -d "${each}s" --delay uniform:1s-3s --batch $((rate / 100)) --json "$dir/report" -q >"$dir/out" ||
		{ cat "$dir/out" >&2; return 1; }
}

value() { awk -v block="$1" -v name="\"$2\":" '$1 == "\"" block "\":" {in_block = 1} in_block && $1 == name {gsub(",", "", $2); print $2; exit}' "$dir/report"; }
field() { awk -v name="\"$1\":" '$1 == name {gsub(",", "", $2); print $2; exit}' "$dir/report"; }

row() { # RATE
	local mark="" percentile
	if [ "$(field tester_was_bottleneck)" = true ] || [ "$(field tester_was_starved)" = true ]; then mark=" *"; fi
	{
		printf '| %s%s |' "$1" "$mark"
		for percentile in p50 p99 p999 max; do awk -v v="$(value lateness_ms $percentile)" 'BEGIN {printf v < 10 ? " %.1f |" : " %.0f |", v}'; done
		printf ' %s | %s | %s |\n' "$(field fired)" "$(field lost)" "$(field early)"
	} | tee -a "$text"
}

table() { # TITLE
	printf '\n## %s\n\n%s\n\n| timers a second | p50, ms | p99 | p99.9 | max | fired | lost | early |\n|---|---|---|---|---|---|---|---|\n' "$1" "$(cat)" | tee -a "$text"
}

three_nodes() { # sets urls and members
	local n join="" flags
	urls=() members=()
	head -c 32 /dev/urandom | base64 >"$dir/key"
	for n in 0 1 2; do join+="${join:+,}127.0.0.1:$((port + 20 + n))"; done
	for n in 0 1 2; do
		rm -rf "$dir/three-$n"
		urls+=("http://127.0.0.1:$((port + 10 + n))")
		free "${urls[n]}"
		member "$n" "$join"
	done
	for n in 0 1 2; do await "${urls[n]}/readyz" "${members[n]}" "$dir/three-$n.log"; done
	for _ in $(seq 600); do
		curl -fsS "${urls[0]}/v1/cluster" 2>/dev/null | grep -q '"healthy":true' && return
		pause 0.1
	done
	echo "the three nodes are not healthy" >&2
	return 1
}

member() { # N JOIN
	"${first[@]}" "$carillon" serve --data "$dir/three-$1" --name "n$1" --http "127.0.0.1:$((port + 10 + $1))" --peer "127.0.0.1:$((port + 15 + $1))" \
		--gossip "127.0.0.1:$((port + 20 + $1))" --join "$2" --bootstrap-expect 3 --gossip-key "$dir/key" --log-level warn >>"$dir/three-$1.log" 2>&1 &
	members[$1]=$!
	pids+=("$!")
	joined=$2
}

kill_busiest() { # the node that leads most shards; it is started again after two seconds
	local n
	n=$(curl -fsS "${urls[0]}/v1/cluster" | grep -oE '"leader":"n[0-2]"' | sort | uniq -c | sort -rn | grep -om1 'n[0-2]')
	n=${n#n}
	kill -9 "${members[n]}"
	wait "${members[n]}" 2>/dev/null || true
	pause 2
	member "$n" "$joined"
}

on_one_node() { # NAME PORT [LOADTEST…]: each rate on a node, while another client does the rest of the words
	start_node "$1" "$2"
	shift 2
	for rate in $rates; do
		others=
		if [ $# -gt 0 ]; then
			"${first[@]}" "$carillon" loadtest "$@" --url "$url" -q >"$dir/others" &
			others=$!
		fi
		paced "$rate" "$url"
		row "$rate"
		[ -z "$others" ] || wait "$others"
	done
	stop "$node"
}

measure_quiet() {
	table "Quiet" <<<"One node that does nothing else."
	on_one_node quiet $((port + 1))
}

measure_adds() {
	table "While others add" <<<"One node. Another client adds $adds timers a second, one a request; they are due in an hour."
	on_one_node adds $((port + 2)) add -R "$adds" -d "$((each + 3))s" --topic others --keep
}

measure_herd() {
	table "While a herd fires" <<<"One node. In the middle $herd timers of another topic are due in one instant."
	on_one_node herd $((port + 3)) fire -n "$herd" --same-instant --delay "$((each / 2 + 1))s" --batch 100 --topic herd
}

measure_kill() {
	table "At a kill -9" <<<"Three nodes, three replicas. In the middle the node that leads most shards is killed; it starts again two seconds later. The
calls that it was making are made again when it is certain that it makes none: those are the latest. Adds that got no answer are not counted."
	for rate in $rates; do
		three_nodes
		paced "$rate" "${urls[@]}" &
		load=$!
		pause $((each / 2))
		kill_busiest
		wait "$load"
		row "$rate"
		stop "${members[@]}"
	done
}

measure_disk() {
	if ! command -v strace >/dev/null; then
		echo "left out: strace is not installed"
		return
	fi
	table "With a slow disk" <<<"One node. Each fsync takes $disk_ms ms longer (by strace)."
	local plain=$carillon # -D: strace is the child, so that the node's process id is the one that was started
	printf '#!/bin/sh\nexec strace -D -f --seccomp-bpf -qq -o /dev/null -e signal=none -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_exit=%s "%s" "$@"\n' $((disk_ms * 1000)) "$plain" >"$dir/slow"
	chmod +x "$dir/slow"
	carillon=$dir/slow
	start_node disk $((port + 4))
	carillon=$plain
	for rate in $rates; do
		paced "$rate" "$url"
		row "$rate"
	done
	stop "$node"
}

for condition in ${CONDITIONS:-quiet adds herd kill disk}; do "measure_$condition"; done
{
	cat <<END
# Lateness

From the due time of a timer to the arrival of its call, on one clock, in milliseconds. \`make lateness\` writes this page.

\`\`\`sh
SECONDS_EACH=$each RATES='$rates' make lateness
\`\`\`

* **When**: $(date -u +%Y-%m-%d), $(((SECONDS - began + 59) / 60)) minutes, load average before: $load_before.
* **What**: $("$carillon" version).
* **Machine**: $(nproc) processors ($(awk -F ': ' '/^model name/ {print $2; exit}' /proc/cpuinfo)), $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr), $(findmnt -no FSTYPE -T "$dir" 2>/dev/null || echo "an unknown file system"). Nodes, load
  generator and receiver share them.
* **How**: timers of 200 bytes are added for $each seconds, at 100 requests a second, and fall due one to three seconds later, spread evenly.
  The receiver answers at once. All calls count, also those after a takeover. \`*\`: the load generator had too little processor time, so
  that the figures include its own waiting.
END
	cat "$text"
} >"$dir/whole"
cp "$dir/whole" "$page"
echo "$page: $((SECONDS - began)) s"
