#!/usr/bin/env bash
# release-check.sh DIR RELEASE MODULE SOURCES checks what release.sh has made in DIR, each part by what reads it, and ends with a table.
# HELM and CRANE are the tools, PYTHON is a Python with pip. What cannot be checked here is named.
set -euo pipefail
. "$(dirname "$0")/await.sh"
dir=$1 release=$2 module=$3 sources=$4
number=${release#v} python_number=${number/-rc./rc}
host=$(go env GOHOSTARCH)
work=$(mktemp -d)
pids=()
trap 'for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; wait; chmod -R u+w "$work"; rm -rf "$work"' EXIT
declare -A checked

fail() { echo "release-check: $*" >&2; exit 1; }
listed() { # LIST MODULE VERSION: whether it is in a CycloneDX list, with a licence
	"$PYTHON" - "$@" <<-'END'
		import json, sys
		name, version = sys.argv[2:]
		for c in json.load(open(sys.argv[1]))["components"]:
		    if c["name"] == name and c["version"] == version and c["purl"].startswith(f"pkg:golang/{name}@{version}?"):
		        sys.exit(not all(l["license"]["id"] for l in c["licenses"]))
		sys.exit(1)
	END
}
reads() { # PACKAGE <PAGE: it is right for those who have the package alone, of a release
	local page
	page=$(cat)
	! grep -nE '\]\([^):#]+\)' <<<"$page" >&2 || fail "$1: its page has links to files that are not there"
	! grep -niE 'not on (npm|pypi)|no proxy|v0\.0\.0|-0\.1\.0|(nothing|not) (has been |is )?published|no release yet' <<<"$page" >&2 || fail "$1: its page is of what was before the release"
}
has() { grep -qF -- "$2" <<<"$1" || fail "$3: '$2' is not in: $1"; }

cd "$dir"
sha256sum --quiet --check SHA256SUMS
checked[SHA256SUMS]="names all files, and they have these sums"
[ "$(ls | grep -cvx SHA256SUMS)" = "$(wc -l <SHA256SUMS)" ] || fail "a file is not in SHA256SUMS"

for arch in amd64 arm64; do
	file=carillon-linux-$arch
	readelf --program-headers "$file" | grep -q INTERP && fail "$file is not static"
	has "$(go version -m "$file")" "GOARCH=$arch" "$file"
	has "$(go version -m "$file")" "$module/cmd/carillon" "$file"
	checked[$file]="static, $arch"
	if [ "$arch" = "$host" ]; then
		has "$("./$file" version)" "carillon $release " "$file"
		checked[$file]+=", its version"
	fi
	while read -r dependency version; do
		case $dependency in "$module/client") version=$release ;; std) ;; *) has "$(cat third-party-notices.txt)" "$dependency $version (" third-party-notices.txt ;; esac
		listed "$file.cdx.json" "$dependency" "$version" || fail "$file.cdx.json lacks $dependency $version, its address or its licence"
	done < <(go version -m "$file" | awk '$1 == "dep" {print $2, $3} NR == 1 {print "std", $2}')
	checked[$file.cdx.json]="names each module in the binary, and its licence"

	deb=$(echo carillon_*_"$arch".deb)
	if command -v dpkg-deb >/dev/null; then
		[ "$(dpkg-deb --field "$deb" Version Architecture | tr '\n' ' ')" = "Version: ${number/-rc/\~rc} Architecture: $arch " ] || fail "$deb has another version"
		dpkg-deb --fsys-tarfile "$deb" | tar --extract --to-stdout ./usr/bin/carillon | cmp - "$file"
		dpkg-deb --fsys-tarfile "$deb" | tar --extract --to-stdout ./usr/share/doc/carillon/third-party-notices.txt | cmp - third-party-notices.txt
		has "$(dpkg-deb --fsys-tarfile "$deb" | tar --extract --to-stdout ./usr/share/doc/carillon/changelog.gz | gunzip)" "carillon (${number/-rc/\~rc}) " "$deb"
		checked[$deb]="its version, and the binary in it"
		if command -v lintian >/dev/null; then
			lintian --allow-root --fail-on error,warning "$deb" >"$work/lintian.log" 2>&1 || { cat "$work/lintian.log" >&2; exit 1; }
			checked[$deb]+=", lintian"
		fi
	else
		checked[$deb]="NOT CHECKED: dpkg-deb is not installed"
	fi
done

[ "$(grep -c '^github.com/.* (.*)$' third-party-notices.txt)" -gt 20 ] || fail "third-party-notices.txt: modules are missing"
for words in 'Permission is hereby granted' 'Apache License' 'Mozilla Public License' 'Redistribution and use'; do has "$(cat third-party-notices.txt)" "$words" third-party-notices.txt; done
checked[third-party-notices.txt]="names each module in the binaries; is in packages and image"

# A registry takes the image and gives it out; its files, in a folder that is the root of a process, are a node.
image=carillon-image-$number.tar
mkdir "$work/layout" "$work/root"
tar --extract --file "$image" --directory "$work/layout"
has "$(cat "$work/layout/index.json")" "\"org.opencontainers.image.ref.name\":\"carillon:$number\"" "$image" # its name once it is loaded
"$CRANE" registry serve --address 127.0.0.1:0 >"$work/registry.log" 2>&1 &
pids+=($!)
registry=127.0.0.1:$(await "$work/registry.log" 'port [0-9]+' | tr -dc 0-9)
"$CRANE" push "$work/layout" "$registry/carillon:$number" >/dev/null 2>&1 || fail "$image: a registry does not take it"
for arch in amd64 arm64; do
	"$CRANE" validate --remote "$registry/carillon:$number" --platform "linux/$arch" >/dev/null 2>&1 || fail "$image: not valid for $arch"
	"$CRANE" export --platform "linux/$arch" "$registry/carillon:$number" - | tar --extract --to-stdout carillon | cmp - "carillon-linux-$arch"
done
"$CRANE" export --platform "linux/$host" "$registry/carillon:$number" - | tar --extract --directory "$work/root"
cmp "$work/root/usr/share/doc/carillon/third-party-notices.txt" third-party-notices.txt
cmp "$work/root/usr/share/doc/carillon/copyright" "$sources/LICENSE"
settings=$("$CRANE" config --platform "linux/$host" "$registry/carillon:$number")
has "$settings" '"User":"65532:65532"' "$image"
has "$settings" '"Entrypoint":["/carillon"],"Cmd":["serve"]' "$image"
has "$settings" '"CARILLON_DATA=/data"' "$image"
[ "$(grep -c 'BEGIN CERTIFICATE' "$work/root/etc/ssl/certs/ca-certificates.crt")" -gt 100 ] || fail "$image: authorities are missing"
[ -d "$work/root/tmp" ] || fail "$image: the demo and an import from stdin need /tmp"
checked[$image]="a registry takes it and gives it out"
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$work"
	env -i CARILLON_DATA=/data CARILLON_HTTP=127.0.0.1:0 "$(command -v chroot)" --userspec=65532:65532 "$work/root" /carillon serve >"$work/node.log" 2>&1 &
	node=$!
	pids+=("$node")
	url=$(await "$work/node.log" 'http://127\.0\.0\.1:[0-9]+')
	for _ in $(seq 100); do curl -fsS "$url/readyz" >/dev/null 2>&1 && break; sleep 0.1; done
	has "$(curl -sS -X POST "$url/v1/topics/release/timers" -H 'Content-Type: application/json' -d '{"id":"one","delay":"1h","callback":{"url":"http://127.0.0.1:9/"}}')" '"id":"one"' "$image"
	kill "$node"
	wait "$node" || fail "$image: the node ended with $?"
	unset 'pids[-1]'
	checked[$image]+=", a node starts of it as 65532"
else
	checked[$image]+="; NOT CHECKED: that a node starts of it (needs root)"
fi

chart=carillon-$number.tgz
export HELM_CACHE_HOME="$work/helm" HELM_CONFIG_HOME="$work/helm" HELM_DATA_HOME="$work/helm"
"$HELM" lint --strict --kube-version 1.30.0 "$chart" >"$work/lint" || { cat "$work/lint" >&2; exit 1; }
has "$("$HELM" show chart "$chart")" "version: $number" "$chart"
tar --extract --to-stdout --file "$chart" carillon/LICENSE | cmp - "$sources/LICENSE"
reads "$chart" < <("$HELM" show readme "$chart")
has "$("$HELM" show readme "$chart")" "helm install carillon" "$chart"
"$HELM" template carillon "$chart" --kube-version 1.30.0 >"$work/carillon.yaml"
has "$(cat "$work/carillon.yaml")" "image: \"carillon:$number\"" "$chart"
(cd "$sources/deploy/kubernetes/decode" && GOFLAGS='' go run . "$work/carillon.yaml") >/dev/null
checked[$chart]="linted, rendered, read by Kubernetes' types"

mkdir "$work/npm"
(
	cd "$work/npm"
	npm init --yes >/dev/null
	npm install --silent --offline --no-audit --no-fund "$dir/carillon-client-$number.tgz"
	node --input-type=module -e 'const c = await import("carillon-client"), t = await import("carillon-client/testing"); if (typeof c.Client !== "function" || !t) throw "no client"'
	# A program of TypeScript that names no types, as is its default from 6 on, finds those of node.
	echo 'import { Client } from "carillon-client"; import "carillon-client/testing"; export const client = new Client("http://127.0.0.1:7700");' >program.mts
	echo '{"compilerOptions": {"noEmit": true, "strict": true, "module": "nodenext", "target": "es2022", "types": []}, "include": ["program.mts"]}' >tsconfig.json
	modules=$sources/clients/typescript/node_modules
	mkdir -p node_modules/@types
	ln -s "$modules/@types/node" node_modules/@types/node
	"$modules/.bin/tsc" >&2
)
reads carillon-client-$number.tgz <"$work/npm/node_modules/carillon-client/README.md"
checked[carillon-client-$number.tgz]="installed, imported, its types read"

wheel=carillon_client-$python_number-py3-none-any.whl
"$PYTHON" -m pip install --quiet --no-index --no-deps --target "$work/python" "$wheel" 2>/dev/null
(cd / && PYTHONPATH=$work/python "$PYTHON" -c 'import carillon, carillon.testing; carillon.Client')
reads "$wheel" < <(unzip -p "$wheel" '*/METADATA')
checked[$wheel]="installed, imported"

# A program elsewhere gets the Go client through a proxy of files.
zip=carillon-client-go-$number.zip
reads "$zip" < <(unzip -p "$zip" '*/README.md' '*/doc.go')
has "$(unzip -p "$zip" '*/README.md')" "go get $module/client@$release" "$zip"
proxy=$work/proxy/$(sed 's/[A-Z]/!\L&/g' <<<"$module")/client/@v # a proxy's files have no capitals
mkdir -p "$proxy" "$work/go"
cp "$zip" "$proxy/$release.zip"
unzip -p "$zip" "$module/client@$release/go.mod" >"$proxy/$release.mod"
echo "{\"Version\":\"$release\"}" >"$proxy/$release.info"
(
	cd "$work/go"
	export GOPROXY="file://$work/proxy" GONOSUMDB='*' GOFLAGS=-mod=mod GOMODCACHE="$work/modules"
	printf 'module example.org/shop\n\ngo 1.26.0\n' >go.mod
	printf 'package main\n\nimport "%s/client"\n\nfunc main() { _ = client.Now }\n' "$module" >main.go
	{ go get "$module/client@$release" && go build -o shop .; } >"$work/go.log" 2>&1 || { cat "$work/go.log" >&2; exit 1; }
)
checked[$zip]="fetched through a proxy, built into a program"

has "$(cat notes.md)" "# Carillon $number" notes.md
has "$(cat notes.md)" "$(go env GOVERSION)" notes.md
has "$(cat notes.md)" "simulated" notes.md
reads notes.md <notes.md
[ "$(wc -l <notes.md)" -gt 20 ] || fail "notes.md: CHANGELOG.md has nothing of this release"
checked[notes.md]="from CHANGELOG.md"
tar --list --file "carillon-completions-$number.tar.gz" | grep -q 'carillon\.zsh$'
checked[carillon-completions-$number.tar.gz]="bash, zsh, fish"

echo
printf '%-42s %9s  %-12s  %s\n' file bytes sha256 checked
for file in *; do
	printf '%-42s %9s  %-12s  %s\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -c1-12)" "${checked[$file]:-NOT CHECKED}"
done
