#!/usr/bin/env bash
# tool.sh PACKAGE FILE-vVERSION builds a tool at that version into FILE-vVERSION.
set -euo pipefail
package=$1 file=$2
version=v${file##*-v}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
echo "building ${package##*/} $version (once; this takes a while)"
GOFLAGS='' GOBIN=$dir go install "$package@$version"
mkdir -p "$(dirname "$file")"
mv "$dir/${package##*/}" "$file"
