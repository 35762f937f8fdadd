#!/usr/bin/env bash
# release.sh makes all that is published of a release, of the commit that is checked out, into bin/release, makes it once more elsewhere with an
# empty cache, fails unless both are the same bytes, and checks each part by what reads it (release-check.sh). docs/releasing.md describes it.
#
# RELEASE=v1.0.0 is its version; by default the topmost one of CHANGELOG.md. MODULE=example.com/carillon is the path of the Go module; by default
# the one in go.mod, or this example if that has no host, so that nobody could fetch it. LINKS=https://example.com/carillon/blob/v1.0.0 is where the files of the
# repository can be read; by default there, below MODULE. CYCLONEDX, NFPM, HELM and CRANE are the tools.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/bin/release
refuse() { echo "release: $*" >&2; exit 1; }

# All that is asked for is looked at before anything is built.
changelog=$(git show HEAD:CHANGELOG.md)
release=${RELEASE:-v$(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' <<<"$changelog" | head -n 1)}
[[ $release =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?$ ]] || refuse "a version is v1.2.3 or v1.2.3-rc.4, not '$release'"
[[ $release =~ ^v[01]\. ]] || refuse "$release: from 2 on the version is a part of a Go module's path, and nothing here writes it"
number=${release#v} python_number=${number/-rc./rc}
changes=$(awk -v title="## [$number]" '/^## \[/ {found = index($0, title) == 1; next} found' <<<"$changelog")
[[ $changes =~ [^[:space:]] ]] || refuse "CHANGELOG.md, as committed, has no section [$number], or nothing in it"
if [ "${MODULE:-}" ]; then
	module=$MODULE
	./scripts/rename-module.sh --check "$module" || refuse "MODULE=$module cannot be the module's path"
else
	module=$(go list -m)
	./scripts/rename-module.sh --check "$module" 2>/dev/null || module=example.com/carillon
fi
runs=$(git show HEAD:docs/test-runs.md | sed -n 's/^|.*| `make sim[^`]*`: \([0-9].*\) | \(.*\) |$/The simulated cluster: \1; \2./p')
[ "$runs" ] || refuse "docs/test-runs.md, as committed, has no row of make sim"

for tool in CYCLONEDX NFPM HELM CRANE; do
	[ -x "${!tool:-}" ] || refuse "$tool does not name a program (make release does it)"
	export $tool="$(realpath "${!tool}")"
done
for program in git go gzip node npm tar unzip; do
	command -v $program >/dev/null || refuse "$program is not installed"
done
for python in python3 /usr/bin/python3 ''; do
	if (cd / && "$python" -c 'import setuptools, wheel, pip') 2>/dev/null; then break; fi
done
[ "$python" ] || refuse "there is no Python with pip, setuptools and wheel"

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
	sed -i "s|go mod edit -require .* -replace .*/client.*|go get $module/client@$release|" client/README.md client/doc.go
	sed -i 's|^// from a clone needs$|// needs|' client/doc.go
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
		printf '# Carillon %s\n\nCommit %s, built with %s. `SHA256SUMS` has the checksum of each file.\n%s\n' "$number" "$commit" "$(go env GOVERSION)" "$runs"
		awk -v title="## [$number]" '/^## \[/ {found = index($0, title) == 1; next} found' CHANGELOG.md
	} >"$2/notes.md"
	cd "$2"
	LC_ALL=C sha256sum -- * >SHA256SUMS
)

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
rm -rf "$out"
echo "release: $release of commit $commit, Go module $module"
sources "$work/first"
(cd "$work/first" && go test . ./cmd/carillon -run '^TestPromised' -names.complete) || refuse "what is promised is not listed: docs/releasing.md, Before"
build "$work/first" "$out"
echo "release: once more, elsewhere"
sources "$work/in/another/folder"
GOCACHE=$work/cache build "$work/in/another/folder" "$work/second"
diff "$out/SHA256SUMS" "$work/second/SHA256SUMS" >&2 || refuse "two builds differ"
echo "release: both builds are the same bytes"
rm -rf "$work/cache" "$work/second" 2>/dev/null || true
PYTHON=$python ./scripts/release-check.sh "$out" "$release" "$module" "$work/first"
[ "$module" = "$(go list -m)" ] || echo "The Go module is built as $module: scripts/rename-module.sh gives the sources their path before anything is published."
