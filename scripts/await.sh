# await FILE PATTERN: the first match in what a process prints. To be sourced.
await() {
	for _ in $(seq 300); do
		if grep -som1 -E "$2" "$1"; then return; fi
		sleep 0.1
	done
	cat "$1" >&2
	exit 1
}
