#!/usr/bin/env bash
# rename-module.sh PATH gives the Go module, its client and the modules beside them the path PATH, such as
# example.com/carillon, in all files of the sources that this script lies in. `make rename-check` does it in a copy and builds it.
# rename-module.sh --check PATH says whether that can be one.
set -euo pipefail
check=
if [ "${1:-}" = --check ]; then
	check=yes
	shift
fi
new=${1:-}
if ! [[ $new =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)*$ ]]; then
	echo "rename-module: the path of a module that others can fetch begins with a host's name: rename-module.sh example.com/carillon" >&2
	exit 2
fi
if [[ $new =~ /v[0-9]+$ ]]; then
	echo "rename-module: $new ends in a version, which begins with 2 there, and this is 1" >&2
	exit 2
fi
[ -z "$check" ] || exit 0
cd "$(dirname "$0")/.."
old=$(sed -n 's/^module //p' go.mod)
[ "$old" != "$new" ] || exit 0
was=${old//./\\.}

# The folders that hold Go; elsewhere "carillon/" is part of a path of the file system.
folders=$(find . -name '*.go' -not -path '*/node_modules/*' -not -path './bin/*' -printf '%P\n' | sed -n 's|/.*||p' | LC_ALL=C sort -u | paste -sd '|')
files() { grep -rlIE "$1" --exclude-dir={.git,bin,node_modules,dist} "${@:2}" . || true; }

files "^(module|replace|	)($was) |^module $was\$|$was/" --include=go.mod |
	xargs -r sed -Ei "s#^(module |replace |require |	)$was( |/|\$)#\\1$new\\2#"
# In Go, every path in quotes; in other texts, a folder's path that nothing stands before that makes it another path.
files "\"$was/" --include='*.go' | xargs -r sed -Ei "s#\"$was/#\"$new/#g"
files "(^|[^A-Za-z0-9._/@-])$was/($folders)\\b" --exclude=go.mod | xargs -r sed -Ei "s#(^|[^A-Za-z0-9._/@-])$was/($folders)\\b#\\1$new/\\2#g"
gofmt -l . | xargs -r gofmt -w # imports are sorted by their paths
