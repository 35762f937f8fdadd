#!/usr/bin/env bash
# corpus.sh [CACHE] takes what fuzzing has found to add coverage into testdata/fuzz, where every `go test` runs it: at most 60 files of each
# target, none above 2 KiB, spread over the sizes. CACHE is where the targets' findings are; default: Go's own.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${1:-$(go env GOCACHE)/fuzz/$(go list -m)}
most=60 bytes=2048 list=$(mktemp)
trap 'rm -f "$list"' EXIT
while IFS=: read -r file line; do
	target=${line#func }
	target=${target%%(*}
	pkg=$(dirname "$file")
	from=$cache/${pkg#./}/$target to=$pkg/testdata/fuzz/$target
	[ -d "$from" ] || continue
	mkdir -p "$to"
	have=$(find "$to" -type f | wc -l)
	room=$((most - have))
	[ "$room" -gt 0 ] || continue
	find -L "$from" -type f -size -"$((bytes + 1))"c -printf '%s %f\n' | sort -n | awk '{print $2}' >"$list"
	count=$(wc -l <"$list")
	[ "$count" -gt 0 ] || continue
	awk -v n="$count" -v room="$room" 'int(NR * room / n) > int((NR - 1) * room / n) || n <= room' "$list" | while read -r name; do
		cp "$from/$name" "$to/$name"
	done
	echo "$pkg $target: $count found, $(find "$to" -type f | wc -l) kept"
done < <(grep -rE --include='*_test.go' --exclude-dir=.git '^func Fuzz[A-Za-z0-9_]*\(' . | sort)
