#!/usr/bin/env bash
# fuzz.sh BUDGET runs every fuzz target of the module for BUDGET (3s, 1m, 20000x), one after the other.
set -euo pipefail
budget=$1
cd "$(dirname "$0")/.."

# fuzz DIR TARGET; a run that ends exactly at its deadline may report that as its only fault, and is run once more.
fuzz() {
	local log
	for _ in 1 2; do
		if log=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "$budget" -fuzzminimizetime 1s "$1" 2>&1); then
			printf '%s\n' "$log" | grep -E '^fuzz: .*execs' | tail -n 1 | sed "s|^|$1 $2 |"
			return 0
		fi
		if grep -q 'Failing input written' <<<"$log" || ! grep -q 'context deadline exceeded' <<<"$log"; then
			break
		fi
	done
	printf '%s\n' "$log" >&2
	return 1
}

failed=0 count=0
while IFS=: read -r file line; do
	target=${line#func }
	target=${target%%(*}
	count=$((count + 1))
	fuzz "$(dirname "$file")" "$target" || failed=$((failed + 1))
done < <(grep -rE --include='*_test.go' --exclude-dir=.git '^func Fuzz[A-Za-z0-9_]*\(' . | sort)
echo "fuzz: $count targets for $budget each, $failed failed"
[ "$failed" -eq 0 ]
