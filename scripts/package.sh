#!/usr/bin/env bash
# package.sh NFPM builds bin/dist/carillon_VERSION_ARCH.deb for each binary in bin/dist (make dist).
set -euo pipefail
nfpm=$1
cd "$(dirname "$0")/.."
described=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
when=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
# A version of Debian begins with a digit, and what comes before a release sorts below it. Without a tag it is the day and the commit.
case $described in
v[0-9]*.*)
	version=${described#v}
	version=${version/-rc/\~rc}
	version=${version//-/+}
	;;
*) version="0~git$(date --utc --date="@$when" +%Y%m%d).${described//-/.}" ;;
esac
umask 022
for arch in amd64 arm64; do
	export ARCH=$arch VERSION=$version BINARY=bin/dist/carillon-linux-$arch COMPLETIONS=bin/dist/completions
	SOURCE_DATE_EPOCH=$when "$nfpm" package --config deploy/debian/nfpm.yaml --packager deb --target bin/dist/
done
(cd bin/dist && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
