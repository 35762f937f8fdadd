#!/usr/bin/env bash
# release.sh makes all that is published of a release, of the commit that is checked out, into bin/release, makes it once more elsewhere with an
# empty cache, fails unless both are the same bytes, and checks each part by what reads it (release-check.sh). docs/releasing.md describes it.
#
# RELEASE=v1.0.0 is its version; by default the topmost one of CHANGELOG.md. MODULE=example.com/carillon is the path of the Go module; by default
# the one in go.mod, or this example if nobody could fetch that. LINKS=https://example.com/carillon/blob/v1.0.0 is where the files of the
# repository can be read; by default there, below MODULE. CYCLONEDX, NFPM, HELM and CRANE are the tools.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/bin/release
for tool in CYCLONEDX NFPM HELM CRANE; do export $tool="$(realpath "${!tool}")"; done
for program in git go gzip node npm tar unzip; do
	command -v $program >/dev/null || { echo "release: $program is not installed" >&2; exit 1; }
done
for python in python3 /usr/bin/python3 ''; do
	if (cd / && "$python" -c 'import setuptools, wheel, pip') 2>/dev/null; then break; fi
done
[ "$python" ] || { echo "release: there is no Python with pip, setuptools and wheel" >&2; exit 1; }

release=${RELEASE:-v$(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)}
[[ $release =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] || { echo "release: a version is v1.2.3 or v1.2.3-rc.4, not '$release'" >&2; exit 1; }
number=${release#v} python_number=${number/-rc./rc}
module=${MODULE:-$(go list -m)}
case $module in *.*/*) ;; *) module=example.com/carillon ;; esac
links=${LINKS:-https://$module/blob/$release}
commit=$(git rev-parse --short=12 HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
[ -z "$(git status --porcelain)" ] || echo "release: changes that are not committed are not in it"

# sources DIR: those of the commit, with the release's path and numbers.
sources() {
	mkdir -p "$1"
	git -c tar.umask=022 archive HEAD | tar --extract --directory "$1"
	cd "$1"
	./scripts/rename-module.sh "$module"
	sed -i "s/^  \"version\": .*/  \"version\": \"$number\",/" clients/typescript/package.json
	sed -i "s/^version = .*/version = \"$python_number\"/" clients/python/pyproject.toml
	sed -i "s/^version: .*/version: $number/; s/^appVersion: .*/appVersion: $number/" deploy/helm/carillon/Chart.yaml
	sed -i "s/carillon-client-[0-9].*\.tgz/carillon-client-$number.tgz/; s/carillon_client-[0-9].*-py3/carillon_client-$python_number-py3/" clients/*/README.md
	for page in client/README.md clients/*/README.md deploy/helm/carillon/README.md CHANGELOG.md; do
		./scripts/links.sh "$links" "$page" >page
		mv page "$page"
	done
	cp LICENSE client/ # as the go command does with a module in a folder
	cp LICENSE deploy/helm/carillon/
	cd "$root"
}

archive() { # FOLDER NAME: a tar file of the folder's NAME, which depends on names and bytes alone
	tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar --directory "$1" "$2" | gzip --no-name --best
}

build() ( # DIR OUT: of the sources in DIR
	cd "$1"
	mkdir -p "$2"
	VERSION=$release COMMIT=$commit ./scripts/dist.sh >/dev/null
	VERSION=$release ./scripts/package.sh "$NFPM" >/dev/null
	cp bin/dist/carillon-linux-* bin/dist/*.deb bin/dist/third-party-notices.txt "$2"
	archive bin/dist completions >"$2/carillon-completions-$number.tar.gz"
	bin/pack image -version "$number" -time "$SOURCE_DATE_EPOCH" -dockerfile deploy/docker/Dockerfile -binaries bin/dist -out "$2/carillon-image-$number.tar"
	bin/pack module -path "$module/client" -version "$release" -dir client -out "$2/carillon-client-go-$number.zip"
	archive deploy/helm carillon >"$2/carillon-$number.tgz"
	(cd clients/typescript && npm ci --silent --prefer-offline --ignore-scripts --no-audit --no-fund && npm pack --silent --pack-destination "$2" >/dev/null)
	"$python" -m pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$2" ./clients/python
	{
		printf '# Carillon %s\n\nCommit %s. `SHA256SUMS` has the checksum of each file.\n' "$number" "$commit"
		awk '/^## \[/ {if (found++) exit; next} found' CHANGELOG.md
	} >"$2/notes.md"
	cd "$2"
	LC_ALL=C sha256sum -- * >SHA256SUMS
)

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
rm -rf "$out"
echo "release: $release of commit $commit, Go module $module"
sources "$work/first"
build "$work/first" "$out"
echo "release: once more, elsewhere"
sources "$work/in/another/folder"
GOCACHE=$work/cache build "$work/in/another/folder" "$work/second"
diff "$out/SHA256SUMS" "$work/second/SHA256SUMS" >&2 || { echo "release: two builds differ" >&2; exit 1; }
echo "release: both builds are the same bytes"
rm -rf "$work/cache" "$work/second" 2>/dev/null || true
PYTHON=$python ./scripts/release-check.sh "$out" "$release" "$module" "$work/first"
[ "$module" = "$(go list -m)" ] || echo "The Go module is built as $module: scripts/rename-module.sh gives the sources their path before anything is published."
