#!/usr/bin/env bash
# rename-check.sh renames the module in a copy of the sources, and builds and vets all that is Go there. No old path may remain.
# rename-check.sh quick, of `make check`, compiles the product alone, without optimizing it, and looks for what tests import.
set -euo pipefail
cd "$(dirname "$0")/.."
old=$(go list -m) new=example.com/renamed/carillon
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files --cached --others --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar --create --files-from=- | tar --extract --directory "$copy"
cd "$copy"
./scripts/rename-module.sh "$new"
[ "$(go list -m)" = "$new" ]
if grep -rnE "\"$old/|^(module|replace|	)$old[ /]" --include='*.go' --include=go.mod .; then
	echo "rename-check: the old path is still there" >&2
	exit 1
fi
[ -z "$(gofmt -l .)" ]
export GOFLAGS=-trimpath
if [ "${1:-}" = quick ]; then
	go list -deps -test ./... "$new/client/..." >/dev/null
	go build -gcflags='-N -l -dwarf=false' ./...
	exit
fi
while read -r file; do
	echo "rename-check: ${file%/go.mod}"
	(cd "${file%/go.mod}" && go build -o /dev/null ./... && go vet ./...)
done < <(find . -name go.mod -not -path '*/node_modules/*' | LC_ALL=C sort)
go test . # the rules of imports name the module
