# node.sh: for the other scripts, which have set $carillon to the program. It has a directory and processes that go when the script ends.
read -ra first <<<"${PRIORITY:-}" # goes before each measured command
port=${PORT:-7790}
dir=$(mktemp -d)
pids=()
trap end EXIT

end() { # all at once: nodes of a cluster that stop alone hand over first
	if [ ${#pids[@]} -gt 0 ]; then
		kill "${pids[@]}" 2>/dev/null || true
		wait "${pids[@]}" 2>/dev/null || true # not a bare wait: that waits for run.sh's tee, too, which waits for us
	fi
	rm -rf "$dir"
}

# Somebody else's server on one of our ports would be measured in place of ours.
free() { # URL: fails when something listens there
	! (: <>"/dev/tcp/127.0.0.1/${1##*:}") 2>/dev/null || { echo "something listens at $1 already; PORT=N takes other ports" >&2; return 1; }
}

await() { # URL PID [LOG]: until it answers, as long as the process lives
	for _ in $(seq 2400); do
		kill -0 "$2" 2>/dev/null || { echo "what was started for $1 has ended" >&2; tail -n 3 "${3:-/dev/null}" >&2; return 1; }
		curl -fsS -o /dev/null "$1" 2>/dev/null && return
		pause 0.05
	done
	echo "no answer from $1" >&2
	return 1
}

pause() { read -rt "$1" <> <(:) || true; } # SECONDS

start_node() { # NAME PORT [FLAG...]: on an empty directory; sets node and url
	rm -rf "${dir:?}/$1"
	start_again "$@"
}

start_again() { # NAME PORT [FLAG...]: on the directory that it had
	url=http://127.0.0.1:$2
	free "$url"
	"${first[@]}" "$carillon" serve --data "$dir/$1" --http "${url#http://}" --peer 127.0.0.1:0 --gossip 127.0.0.1:0 "${@:3}" >"$dir/$1.log" 2>&1 &
	node=$!
	pids+=("$node")
	await "$url/readyz" "$node" "$dir/$1.log"
}

stop() { kill "$@" && wait "$@" 2>/dev/null || true; } # PID...

cpu_ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

resident() { awk '/VmRSS/ {print $2 * 1024}' "/proc/$1/status"; }

median() { sort -g | awk '{v[NR] = $1} END {printf "%.4g (%.4g to %.4g)", v[int((NR + 1) / 2)], v[1], v[NR]}'; } # and range
