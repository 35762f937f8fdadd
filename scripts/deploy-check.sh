#!/usr/bin/env bash
# deploy-check.sh BINARY asks the tools that will read them whether the files in deploy/ are right; a tool that is not installed is named.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$(realpath "$1")
skipped() { echo "NOT CHECKED: $1, for want of $2"; }

# By the types of the Kubernetes API, strictly.
(cd deploy/kubernetes/decode && GOFLAGS='' go run . ../carillon.yaml)

if command -v helm >/dev/null; then
	chart=$(mktemp -d)
	export HELM_CACHE_HOME="$chart/helm" HELM_CONFIG_HOME="$chart/helm" HELM_DATA_HOME="$chart/helm"
	helm lint --strict --kube-version 1.30.0 deploy/helm/carillon
	for options in image.tag= auth.existingSecret=carillon serviceMonitor.enabled=true,networkPolicy.enabled=true,storage.className=fast backup.to=s3://vault/carillon,backup.credentialsSecret=vault,backup.region=eu-west-1,backup.endpoint=https://minio:9000,traces.endpoint=http://collector:4318; do
		helm template carillon deploy/helm/carillon --kube-version 1.30.0 --set "$options" >"$chart/carillon.yaml"
		(cd deploy/kubernetes/decode && GOFLAGS='' go run . "$chart/carillon.yaml")
	done
	rm -rf "$chart"
	go test -count=1 -run '^TestHelmChart' ./cmd/carillon
else
	skipped "helm/carillon" "helm (go install helm.sh/helm/v3/cmd/helm@v3.22.0)"
fi

if command -v promtool >/dev/null; then
	promtool check rules deploy/alerts.yaml
	promtool test rules deploy/alerts-test.yaml
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp deploy/alerts.yaml "$copy"
	sed "s|/etc/prometheus/alerts.yaml|$copy/alerts.yaml|" deploy/docker/prometheus.yaml >"$copy/prometheus.yaml"
	promtool check config "$copy/prometheus.yaml"
else
	skipped "alerts.yaml and prometheus.yaml" promtool
fi

if command -v systemd-analyze >/dev/null; then
	unit=$(mktemp -d)
	sed "s|^ExecStart=carillon |ExecStart=$binary |; s|^User=.*|User=root|" deploy/systemd/carillon.service >"$unit/carillon.service"
	said=$(systemd-analyze verify "$unit/carillon.service" 2>&1) || { echo "$said" >&2; exit 1; }
	said=$(grep -F carillon.service: <<<"$said" || true) # other units are not ours
	rm -rf "$unit"
	if [ -n "$said" ]; then
		echo "$said" >&2
		exit 1
	fi
	echo "carillon.service is right"
else
	skipped carillon.service systemd-analyze
fi

if command -v docker >/dev/null && docker compose version >/dev/null 2>&1; then
	docker compose -f deploy/docker/compose.yaml config --quiet
	echo "compose.yaml is right"
else
	skipped compose.yaml "docker compose"
fi

for script in deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm; do sh -n "$script"; done
