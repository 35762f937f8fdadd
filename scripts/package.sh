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
mkdir -p bin/dist/debian
trap 'rm -rf bin/dist/debian' EXIT
# Debian's changelog has the topmost section of ours; its manual page is what --help says.
{
	printf 'carillon (%s) unstable; urgency=medium\n\n' "$version"
	awk '/^## \[/ {if (found++) exit; next} found && !/^#/' CHANGELOG.md | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g; s/(`|\*\*)//g' |
		awk '/^$/ || /^- / {if (text) print text; text = ""} {sub(/^(- | +)/, ""); if ($0) text = text (text ? " " : "") $0} END {if (text) print text}' |
		while read -r line; do fold -s -w 74 <<<"$line" | sed -E '1s/^/  * /; 2,$s/^/    /; s/ +$//'; done
	printf '\n -- %s  %s\n' "$(sed -n 's/^maintainer: //p' deploy/debian/nfpm.yaml)" "$(date --utc --rfc-email --date="@$when")"
} | gzip --no-name --best >bin/dist/debian/changelog.gz
{
	printf '.TH CARILLON 8 "%s" "carillon %s"\n.SH NAME\ncarillon \\- timer service that calls other services back\n.SH DESCRIPTION\n.nf\n' "$(date --utc --date="@$when" +%F)" "$version"
	"bin/dist/carillon-linux-$(go env GOHOSTARCH)" --help | sed 's/\\/\\e/g; s/-/\\-/g; s/^\([.'"'"']\)/\\\&\1/'
	printf '.fi\n'
} | gzip --no-name --best >bin/dist/debian/carillon.8.gz
for arch in amd64 arm64; do
	export ARCH=$arch VERSION=$version BINARY=bin/dist/carillon-linux-$arch COMPLETIONS=bin/dist/completions
	SOURCE_DATE_EPOCH=$when "$nfpm" package --config deploy/debian/nfpm.yaml --packager deb --target bin/dist/
done
(cd bin/dist && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
