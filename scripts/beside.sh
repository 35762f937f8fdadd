#!/usr/bin/env bash
# beside.sh NAME 'COMMAND' FRONT… runs FRONT in the foreground, and COMMAND behind it on the
# processor time that FRONT leaves. The output of COMMAND is kept and shown under NAME when both are
# over. It fails if either does; if FRONT fails, COMMAND is ended.
set -euo pipefail
name=$1 behind=$2
shift 2
log=$(mktemp)
set -m # the command behind has a process group of its own, so that it ends with all that it started
pid=
trap '[ -z "$pid" ] || kill -- "-$pid" 2>/dev/null || true; rm -f "$log"' EXIT
began=$SECONDS
nice -n 19 bash -c "$behind" >"$log" 2>&1 </dev/null &
pid=$!
echo "== beside, at a low priority: $name"
"$@"
front=$((SECONDS - began))
status=0
wait "$pid" || status=$?
pid=
echo "== $name, over after $((SECONDS - began)) s (the rest: $front s)"
cat "$log"
[ "$status" -eq 0 ] || echo "FAILED: $name" >&2
exit "$status"
