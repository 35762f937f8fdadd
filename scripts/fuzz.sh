#!/usr/bin/env bash
# fuzz.sh BUDGET [blind] runs every fuzz target of the module for BUDGET (3s, 1m, 20000x), one after the other. Inputs that reach code that none has
# reached are mutated further. Blind, nobody looks at coverage and the corpus is mutated some fifteen times as often in the same time, which suits
# short budgets.
set -euo pipefail
budget=$1 guided=yes
[ "${2:-}" != blind ] || guided=
cd "$(dirname "$0")/.."
cache=$(go env GOCACHE)/fuzz module=$(go list -m)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

# fuzz DIR TARGET; a run that ends exactly at its deadline may report that as its only fault, and is run once more.
fuzz() {
	local log
	for _ in 1 2; do
		if log=$(cd "$1" && "$bin/${1##*/}.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$budget" -test.fuzzminimizetime 1s \
			-test.fuzzcachedir "$cache/$module/${1#./}" -test.timeout 0 2>&1); then
			log=$(grep -E '^fuzz: elapsed' <<<"$log" | tail -n 1)
			echo "$1 $2 $log"
			[[ $log =~ execs:\ ([0-9]+) ]] && all=$((all + BASH_REMATCH[1])) # a very short run may not have come to any
			return 0
		fi
		if grep -q 'Failing input written' <<<"$log" || ! grep -q 'context deadline exceeded' <<<"$log"; then
			break
		fi
	done
	printf '%s\n' "$log" >&2
	return 1
}

list=$(grep -rE --include='*_test.go' --exclude-dir=.git '^func Fuzz[A-Za-z0-9_]*\(' . | sort)
packages=$(cut -d: -f1 <<<"$list" | xargs -n 1 dirname | sort -u)
if [ "$guided" ]; then
	for p in $packages; do go test -c -fuzz . -o "$bin/" "$p"; done # it takes one at a time
else
	go test -c -ldflags=-w -o "$bin/" $packages
fi
failed=0 count=0 all=0
while IFS=: read -r file line; do
	target=${line#func }
	count=$((count + 1))
	fuzz "$(dirname "$file")" "${target%%(*}" || failed=$((failed + 1))
done <<<"$list"
echo "fuzz: $count targets for $budget each, $all executions, $failed failed"
[ "$failed" -eq 0 ]
