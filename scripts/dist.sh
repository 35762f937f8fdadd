#!/usr/bin/env bash
# dist.sh builds what is released into bin/dist: static binaries for Linux, completions for shells, a list of what each binary is made of
# (CycloneDX), the licences of that, and checksums of all of it. Nothing in it depends on the machine, the folder or the hour.
#
# dist.sh --twice builds the binary of this machine once more, of a copy of the sources elsewhere and with an empty cache, and fails unless
# both are the same bytes.
#
# VERSION and COMMIT are what the binaries call themselves; by default as git describes them. CYCLONEDX is the tool for the lists.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=bin/dist
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
commit=${COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}

# compile GOARCH FILE builds the binary of the sources in the working directory.
compile() {
	CGO_ENABLED=0 GOOS=linux GOARCH=$1 GOFLAGS='' go build -trimpath -buildvcs=false -ldflags "-s -w -X main.release=$version -X main.commit=$commit" -o "$2" ./cmd/carillon
}

if [ "${1:-}" = --twice ]; then
	arch=$(go env GOHOSTARCH)
	copy=$(mktemp -d)
	trap 'chmod -R u+w "$copy"; rm -rf "$copy"' EXIT
	mkdir "$copy/elsewhere"
	git ls-files --cached --others --exclude-standard -z | xargs -0 ls -d 2>/dev/null | tar --create --files-from=- | tar --extract --directory "$copy/elsewhere"
	compile "$arch" "$copy/here"
	cd "$copy/elsewhere"
	GOCACHE=$copy/cache compile "$arch" "$copy/there"
	cmp "$copy/here" "$copy/there"
	echo "two builds are the same: $(sha256sum <"$copy/here" | cut -d' ' -f1)"
	exit
fi

rm -rf "$dist"
mkdir -p "$dist/completions"
for arch in amd64 arm64; do
	compile "$arch" "$dist/carillon-linux-$arch"
	if [ -n "${CYCLONEDX:-}" ]; then
		GOOS=linux GOARCH=$arch CGO_ENABLED=0 "$CYCLONEDX" bin -json -noserial -notimestamp -std -version "$version" -output "$dist/carillon-linux-$arch.cdx.json" \
			"$dist/carillon-linux-$arch" 2>"$dist/log" || { cat "$dist/log" >&2; exit 1; }
	fi
done
rm -f "$dist/log"
(cd deploy/pack && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -trimpath -o ../../bin/pack .)
bin/pack licences -version "$version" -out "$dist/third-party-notices.txt" "$dist"/carillon-linux-{amd64,arm64}
binary=$dist/carillon-linux-$(go env GOHOSTARCH)
if readelf --program-headers "$binary" 2>/dev/null | grep -q INTERP; then
	echo "dist: the binary is not static" >&2
	exit 1
fi
for shell in bash zsh fish; do "$binary" completion "$shell" >"$dist/completions/carillon.$shell"; done
(cd "$dist" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
ls -l "$dist"
