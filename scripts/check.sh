#!/usr/bin/env bash
# check.sh GOLANGCI-LINT GOVULNCHECK DEADCODE: all that is checked without running the product.
set -euo pipefail
lint=$(realpath "$1") vulncheck=$(realpath "$2") deadcode=$(realpath "$3")
cd "$(dirname "$0")/.."

echo "== gofmt"
unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
	printf 'not formatted (make fmt mends it):\n%s\n' "$unformatted" >&2
	exit 1
fi

echo "== import rules"
go test -count 1 .

echo "== the module gets another path"
./scripts/rename-check.sh quick

echo "== mutants apply and compile"
go test -count 1 ./test/sim/mutants

echo "== benchmarks of other libraries compile"
(cd test/bench/libs && go vet .)

echo "== openapi"
./scripts/openapi.sh lint

echo "== golangci-lint"
"$lint" run --allow-parallel-runners ./...
(cd client && "$lint" run --allow-parallel-runners ./...) # a module of its own

echo "== dead code"
# Of both modules with their tests, and then of what is linked into the program; of the client, whose callers are other programs, no more. What only
# the simulator and tests call is named here.
for_tests='ReplicaID|Without|Seal|Unseal'
all=$("$deadcode" -test ./... carillon/client)
linked=$("$deadcode" ./cmd/...)
if { echo "$all"; grep -v '^client/' <<<"$linked"; } | grep -Ev "^$|unreachable func: ($for_tests)\$" >&2; then
	exit 1
fi
echo "no function is unreachable"

echo "== govulncheck"
status=0
log=$(timeout 300 "$vulncheck" ./... 2>&1) || status=$?
case $status in
0) echo "no known vulnerability is reached" ;;
3)
	printf '%s\n' "$log" >&2
	exit 1
	;;
*)
	# Without its database nothing can be said; that is the network's fault and not the code's.
	if [ "$status" -ne 124 ] && ! grep -q 'vuln\.go\.dev' <<<"$log"; then
		printf '%s\n' "$log" >&2
		exit 1
	fi
	echo "NOT CHECKED: the vulnerability database cannot be reached from here"
	;;
esac
