#!/bin/sh
# Takes the time zone data base of the Go distribution into the tree, with its version and sum.
set -eu
from=$(go env GOROOT)/lib/time
to=timer/recurrence
cp "$from/zoneinfo.zip" "$to/zoneinfo.zip"
version=$(sed -n 's/^DATA=//p' "$from/update.bash")
sum=$(sha256sum "$to/zoneinfo.zip" | cut -d' ' -f1)
sed -i "s/^const Version = .*/const Version = \"$version\"/" "$to/zones.go"
sed -i "s/const sum = .*/const sum = \"$sum\"/" "$to/zones_test.go"
echo "zones of $version"
