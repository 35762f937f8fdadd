#!/usr/bin/env bash
# fixture.sh BINARY FILE: makes the data directory of a release, which every later build must read, and notes what is in it.
# FILE (node/testdata/release/RELEASE.tar.gz) gets data/, a backup and what a restore makes of it, secrets.key, and as JSON what the API shows: *.json. See docs/testing.md.
set -euo pipefail
. "$(dirname "$0")/await.sh"
binary=$(realpath "$1")
file=$(realpath -m "$2")
dir=$(mktemp -d)
node= sinks=()
trap 'kill $node "${sinks[@]}" 2>/dev/null || true; wait; rm -rf "$dir"' EXIT
cd "$dir"
head -c 32 /dev/urandom | base64 >secrets.key
chmod 600 secrets.key

# Receivers that answer 200, 202 (the call is reported later) and 410 (the timer is dead).
for status in 200 202 410; do
	"$binary" sink --listen 127.0.0.1:0 --no-print --status $status >sink-$status.log 2>&1 &
	sinks+=($!)
done
receiver=$(await sink-200.log 'http://127\.0\.0\.1:[0-9]+')
accepts=$(await sink-202.log 'http://127\.0\.0\.1:[0-9]+')
refuses=$(await sink-410.log 'http://127\.0\.0\.1:[0-9]+')

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

# shows waits until an answer has a text, and leaves it in the file answer.
shows() { # PATH TEXT
	for _ in $(seq 100); do
		if ask GET "$1" >answer && grep -qF "$2" answer; then return; fi
		sleep 0.1
	done
	cat answer >&2
	exit 1
}

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

# One timer of each kind, named by what it shows, and topics that timers wait in for other reasons.
quiet PUT topics/outcomes "{\"callback\":{\"url\":\"$receiver/outcomes\"},$keep}"
quiet POST topics/outcomes/pause
quiet PUT topics/kinds "{\"callback\":{\"url\":\"$receiver/kinds\"},\"on_done\":{\"topic\":\"outcomes\"},$keep}"
kind() { quiet POST topics/kinds/timers "$1"; }
kind '{"id":"at","at":"2035-01-02T03:04:05.678Z","payload":null}'
kind '{"id":"at-local","at_local":"2035-07-01T09:00:00","zone":"Europe/Berlin","payload":"text"}'
kind '{"id":"bytes","delay":"80000h","payload_base64":"AP/+","content_type":"application/octet-stream"}'
kind '{"id":"own-call","delay":"80000h","callback":{"url":"http://127.0.0.1:9/own","method":"PUT","headers":{"X-Own":"1"},"timeout":"3s"},"retry":{"max_attempts":3,"min_backoff":"2s","max_backoff":"1m","multiplier":3,"jitter":0}}'
kind '{"id":"labelled","delay":"80000h","priority":7,"labels":["a:1","b"],"expires_after":"48h"}'
kind '{"id":"{k}keyed","delay":"80000h"}'
kind '{"id":"every","delay":"80000h","repeat":{"every":"24h","count":5,"catch_up":"skip","overlap":true}}'
kind '{"id":"cron","delay":"80000h","repeat":{"cron":"30 9 * * mon-fri","zone":"America/New_York","until":"2040-01-01T00:00:00Z","catch_up":"all"}}'
kind '{"id":"outcome","delay":"80000h","on_done":null,"on_dead":{"topic":"outcomes"}}'
kind '{"id":"paused","delay":"80000h"}'
quiet POST topics/kinds/timers/paused/pause
for part in a b c; do kind "{\"id\":\"collects\",\"delay\":\"80000h\",\"merge\":\"collect\",\"collect_max\":5,\"part\":\"$part\",\"payload\":\"$part\"}"; done
for i in 1 2; do kind "{\"id\":\"debounced\",\"delay\":\"8000${i}h\",\"merge\":\"debounce\",\"max_wait\":\"80005h\",\"payload\":$i}"; done
for i in 1 2; do kind "{\"id\":\"replaced\",\"delay\":\"8000${i}h\",\"merge\":\"replace\",\"payload\":$i}"; done
curl -sS --fail-with-body "$url/v1/topics/kinds/timers" -H 'Content-Type: application/json' -H 'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' -H 'tracestate: v=1' -d '{"id":"traced","delay":"80000h"}' >answer
kind '{"id":"ended","delay":"0s"}'
shows 'topics/outcomes/timers?limit=10' '"outcome"' # of the one that ended
quiet PUT topics/by-key "{\"callback\":{\"url\":\"$receiver/by-key\"},\"per_key\":{\"concurrency\":2,\"rate\":{\"per_second\":5},\"fair\":true},$keep}"
for i in 1 2 3; do quiet POST topics/by-key/timers "{\"id\":\"{k$i}t\",\"delay\":\"80000h\",\"weight\":$i}"; done
quiet PUT topics/batched "{\"callback\":{\"url\":\"$receiver/batched\"},\"batch\":{\"max\":10,\"wait\":\"1s\",\"by\":\"key\"},\"format\":\"cloudevents\",\"spread\":\"5m\",$keep}"
quiet PUT topics/deduped "{\"callback\":{\"url\":\"$receiver/deduped\"},\"dedup\":\"content\",\"window\":{\"zone\":\"Asia/Tokyo\",\"days\":\"mon-fri\",\"from\":\"08:00\",\"to\":\"20:00\",\"except\":[\"2035-12-25\"]},$keep}"
for i in 1 2 2; do
	quiet POST topics/batched/timers "{\"id\":\"{k}b$i\",\"delay\":\"80000h\",\"merge\":\"keep\"}"
	quiet POST topics/deduped/timers "{\"at\":\"2035-01-02T03:04:05Z\",\"payload\":$i}"
done
# Timers that wait for their second attempt while their topic is paused, with what the first one was answered.
quiet PUT topics/retried "{\"callback\":{\"url\":\"http://127.0.0.1:1/\"},\"retry\":{\"min_backoff\":\"720h\",\"max_backoff\":\"720h\"},\"breaker\":{\"failures\":1000},$keep}"
quiet POST topics/retried/timers '{"id":"r1","delay":"0s"}'
shows topics/retried/timers/r1 '"next_attempt"'
quiet POST topics/retried/pause
quiet PUT topics/stopped "{\"callback\":{\"url\":\"$refuses/stopped\"},$keep}"
quiet POST topics/stopped/timers '{"id":"s1","delay":"0s","payload":{"why":"gone"}}'
shows 'topics/stopped/dead?limit=10' '"stopped"'
# Timers that a worker, or a receiver that answered 202, has at the moment.
quiet PUT topics/taken '{"delivery":"pull","lease":"12h"}'
quiet POST topics/taken/timers '{"id":"leased","delay":"0s","payload":1}'
shows topics/taken/timers/leased '"scheduled"'
quiet POST topics/taken/pull '{"max":1,"wait":"10s"}'
quiet PUT topics/reported "{\"callback\":{\"url\":\"$accepts/reported\"},\"ack\":\"report\",\"lease\":\"12h\",$keep}"
quiet POST topics/reported/timers '{"id":"accepted","delay":"0s","payload":2}'
shows topics/reported/timers/accepted '"leased"'
quiet POST topics/reported/pause # so that nobody is called when the lease is over

# What follows is in the log alone, behind a stop and a start: the shards double, and timers change.
end
begin
quiet POST cluster/shards '{"shards":8}'
shows cluster '"shards_total":8'
for _ in $(seq 100); do
	ask GET cluster >answer
	if ! grep -q '"resharding"' answer; then break; fi
	sleep 0.1
done
for i in 1 2 3 4 5; do
	quiet PATCH "topics/later/timers/l$i" '{"payload":"changed"}'
	quiet DELETE "topics/later/timers/l$((i + 10))"
	quiet PATCH "topics/later/timers/l$((i + 20))" '{"delay":"70000h"}'
done
quiet POST topics/failed/dead/redrive '{"ids":["f1"]}'
called
quiet PATCH topics/kinds/timers/labelled '{"labels":["c"],"retry":{"max_attempts":2}}'
quiet POST topics/kinds/timers '{"id":"cancelled","delay":"80000h"}'
quiet DELETE topics/kinds/timers/cancelled

ask GET topics >topics.json
for topic in later signed pulled waiting line kinds outcomes by-key batched deduped retried taken reported; do ask GET "topics/$topic/timers?state=scheduled,leased&limit=1000&payload=true" >"timers-$topic.json"; done
for topic in failed stopped; do ask GET "topics/$topic/dead?limit=1000" >"dead-$topic.json"; done
for topic in called kinds stopped; do ask GET "topics/$topic/history?limit=1000" >"history-$topic.json"; done
ask GET cluster >cluster.json
"$binary" ctl --url "$url" backup fixture.backup 2>/dev/null
end
node=
"$binary" restore --from fixture.backup --data restored --name fixture --secrets-key secrets.key >/dev/null # it has snapshots
mkdir -p "$(dirname "$file")"
tar -czf "$file" --owner=0 --group=0 data restored fixture.backup secrets.key ./*.json
ls -l "$file"
