#!/usr/bin/env bash
# openapi.sh lint: docs/openapi.yaml is valid for two public linters.
# openapi.sh page FILE: renders it as one page that a browser reads from the disk.
# Both need Node.js. Where it or npm's registry is missing, lint is skipped with a notice, except in CI.
set -euo pipefail
cd "$(dirname "$0")/.."
redocly=@redocly/cli@2.77.0 spectral=@stoplight/spectral-cli@6.16.3
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true

if [ "$1" = page ]; then
	npx --yes "$redocly" build-docs docs/openapi.yaml --inlineBundle --output "$2"
	exit
fi
if ! command -v npx >/dev/null; then
	echo "NOT CHECKED: docs/openapi.yaml, because Node.js (npx) is not installed"
	[ -z "${CI:-}" ] || exit 1
	exit 0
fi
if ! npm view --fetch-retries=0 --fetch-timeout=20000 "$redocly" version >/dev/null 2>&1 && [ -z "${CI:-}" ]; then
	echo "NOT CHECKED: docs/openapi.yaml, because npm's registry cannot be reached"
	exit 0
fi
status=0
log=$(npx --yes "$redocly" lint docs/openapi.yaml 2>&1) || status=$?
if [ "$status" -ne 0 ] || grep -q '^Warning was generated' <<<"$log"; then
	printf '%s\n' "$log" >&2
	exit 1
fi
npx --yes "$spectral" lint --quiet --fail-severity hint --ruleset scripts/spectral.yaml docs/openapi.yaml >&2
echo "docs/openapi.yaml is valid"
