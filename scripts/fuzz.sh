#!/usr/bin/env bash
# fuzz.sh BUDGET [blind] runs every fuzz target of the module for BUDGET (3s, 1m, 20000x), one after the other. Inputs that reach code that none has
# reached are mutated further. Blind, nobody looks at coverage and the corpus is mutated some fifteen times as often in the same time, which suits
# short budgets.
set -euo pipefail
budget=$1 guided='-fuzz .'
[ "${2:-}" != blind ] || guided=
cd "$(dirname "$0")/.."
cache=$(go env GOCACHE)/fuzz module=$(go list -m)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT

# fuzz DIR TARGET; a run that ends exactly at its deadline may report that as its only fault, and is run once more.
fuzz() {
	local log
	for _ in 1 2; do
		if log=$(cd "$1" && "$bin/test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$budget" -test.fuzzminimizetime 1s \
			-test.fuzzcachedir "$cache/$module/${1#./}" -test.timeout 0 2>&1); then
			log=$(grep -E '^fuzz: .*execs' <<<"$log" | tail -n 1)
			echo "$1 $2 $log"
			log=${log#*execs: }
			all=$((all + ${log%% *}))
			return 0
		fi
		if grep -q 'Failing input written' <<<"$log" || ! grep -q 'context deadline exceeded' <<<"$log"; then
			break
		fi
	done
	printf '%s\n' "$log" >&2
	return 1
}

failed=0 count=0 all=0 built=
while IFS=: read -r file line; do
	target=${line#func }
	target=${target%%(*}
	dir=$(dirname "$file")
	count=$((count + 1))
	if [ "$dir" != "$built" ]; then # once for all targets of a package
		go test -c $guided -o "$bin/test" "$dir"
		built=$dir
	fi
	fuzz "$dir" "$target" || failed=$((failed + 1))
done < <(grep -rE --include='*_test.go' --exclude-dir=.git '^func Fuzz[A-Za-z0-9_]*\(' . | sort)
echo "fuzz: $count targets for $budget each, $all executions, $failed failed"
[ "$failed" -eq 0 ]
