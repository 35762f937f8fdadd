#!/usr/bin/env bash
# fixture.sh BINARY FILE: makes the data directory of a release, which every later build must read, and notes what is in it.
# FILE (node/testdata/release/RELEASE.tar.gz) gets data/, a backup and what a restore makes of it, secrets.key, and as JSON what the API shows: *.json. See docs/testing.md.
set -euo pipefail
binary=$(realpath "$1")
file=$(realpath -m "$2")
dir=$(mktemp -d)
node= sink=
trap 'kill $node $sink 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
cd "$dir"
head -c 32 /dev/urandom | base64 >secrets.key
chmod 600 secrets.key

# await FILE PATTERN: the first match in what a process prints.
await() {
	for _ in $(seq 300); do
		if grep -om1 -E "$2" "$1"; then return; fi
		sleep 0.1
	done
	cat "$1" >&2
	exit 1
}
"$binary" sink --listen 127.0.0.1:0 --no-print >sink.log 2>&1 &
sink=$!
receiver=$(await sink.log 'http://127\.0\.0\.1:[0-9]+')

begin() {
	"$binary" serve --data data --http 127.0.0.1:0 --shards 4 --name fixture --secrets-key secrets.key --log-level warn >node.log 2>&1 &
	node=$!
	url=$(await node.log 'http://127\.0\.0\.1:[0-9]+')
}
end() {
	kill "$node"
	wait "$node" || true
}
ask() { # METHOD PATH [BODY]
	curl -sS --fail-with-body -X "$1" "$url/v1/$2" ${3:+-H 'Content-Type: application/json' -d "$3"}
}
quiet() { ask "$@" >answer || { cat answer >&2; return 1; }; }

# called waits until the receivers of two topics have been called.
called() {
	for _ in $(seq 100); do
		if [ "$(ask GET 'topics/called/history?limit=100' | grep -o '"id":"c' | wc -l)" = 10 ] &&
			[ "$(ask GET 'topics/failed/dead?limit=100' | grep -o '"id":"f' | wc -l)" = 10 ]; then return; fi
		sleep 0.2
	done
	echo "not all were called" >&2
	exit 1
}

begin
keep='"history":"87600h","dead_retention":"87600h"'
quiet PUT topics/later "{\"callback\":{\"url\":\"$receiver/later\",\"headers\":{\"X-From\":\"fixture\"}},$keep}"
quiet PUT topics/called "{\"callback\":{\"url\":\"$receiver/called\"},$keep}"
quiet PUT topics/failed "{\"callback\":{\"url\":\"http://127.0.0.1:1/\"},\"retry\":{\"max_attempts\":1},\"breaker\":{\"failures\":1000},$keep}"
quiet PUT topics/signed "{\"callback\":{\"url\":\"$receiver/signed\",\"headers\":{\"Authorization\":\"Bearer of-a-topic\"}},\"secrets\":[\"whsec_$(head -c 32 /dev/zero | base64)\"],$keep}"
quiet PUT topics/pulled '{"delivery":"pull"}'
quiet PUT topics/waiting "{\"callback\":{\"url\":\"$receiver/waiting\"},\"retry\":{\"max_attempts\":7},\"concurrency\":3,\"rate\":{\"per_second\":5},$keep}"
quiet POST topics/waiting/pause
quiet PUT topics/line "{\"callback\":{\"url\":\"$receiver/line\"},\"serial\":true,\"key\":\"all\"}"
for i in $(seq 200); do
	echo "{\"op\":\"add\",\"id\":\"l$i\",\"delay\":\"$((80000 + i))h\",\"payload\":{\"n\":$i},\"labels\":[\"half$((i % 2))\"]}"
done | curl -sS --fail-with-body -H 'Content-Type: application/x-ndjson' --data-binary @- "$url/v1/topics/later/batch?brief=true" >/dev/null
for i in $(seq 10); do
	quiet POST topics/called/timers "{\"id\":\"c$i\",\"delay\":\"0s\",\"payload\":$i}"
	quiet POST topics/failed/timers "{\"id\":\"f$i\",\"delay\":\"0s\",\"payload\":\"$i\"}"
	quiet POST topics/waiting/timers "{\"id\":\"w$i\",\"delay\":\"0s\"}"
	quiet POST topics/pulled/timers "{\"id\":\"p$i\",\"delay\":\"0s\",\"payload\":[$i]}"
	quiet POST topics/line/timers "{\"id\":\"o$i\",\"delay\":\"80000h\"}"
done
quiet POST topics/signed/timers '{"id":"own","delay":"80000h","callback":{"headers":{"Authorization":"Bearer of-a-timer"}}}'
quiet POST topics/later/timers '{"id":"again","delay":"80000h","repeat":{"every":"24h"}}'
called

# What follows is in the log alone, behind a stop and a start.
end
begin
for i in 1 2 3 4 5; do
	quiet PATCH "topics/later/timers/l$i" '{"payload":"changed"}'
	quiet DELETE "topics/later/timers/l$((i + 10))"
	quiet PATCH "topics/later/timers/l$((i + 20))" '{"delay":"70000h"}'
done
quiet POST topics/failed/dead/redrive '{"ids":["f1"]}'
called

ask GET topics >topics.json
for topic in later signed pulled waiting line; do ask GET "topics/$topic/timers?state=scheduled,leased&limit=1000&payload=true" >"timers-$topic.json"; done
ask GET 'topics/failed/dead?limit=1000' >dead-failed.json
ask GET 'topics/called/history?limit=1000' >history-called.json
ask GET cluster >cluster.json
"$binary" ctl --url "$url" backup fixture.backup 2>/dev/null
end
kill "$sink"
wait "$sink" || true
node= sink=
"$binary" restore --from fixture.backup --data restored --name fixture --secrets-key secrets.key >/dev/null # it has snapshots
mkdir -p "$(dirname "$file")"
tar -czf "$file" --owner=0 --group=0 data restored fixture.backup secrets.key ./*.json
ls -l "$file"
