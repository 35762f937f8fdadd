package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
)

// chart renders deploy/helm/carillon as the release of that name.
func chart(t *testing.T, release string, flags ...string) map[string]map[string]any {
	t.Helper()
	out, fault := helmTemplate(t, release, flags...)
	if fault != "" {
		t.Fatalf("helm: %s", fault)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	testkit.Must(t, os.WriteFile(file, out, 0o600))
	return objects(t, file)
}

// helmTemplate gives what helm renders, or why it does not.
func helmTemplate(t *testing.T, release string, flags ...string) (out []byte, fault string) {
	t.Helper()
	program := cmp.Or(os.Getenv("HELM"), "helm")
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("SKIPPED: helm is not installed, so the chart was not checked (make soak-tests builds it; HELM names another)")
	}
	dir := t.TempDir()
	cmd := exec.Command(program, append([]string{"template", release, deployDir + "helm/carillon", "--namespace", "timers", "--kube-version", "1.30.0"}, flags...)...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir, "HOME="+dir)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, err.Error() + ": " + said.String()
	}
	return out, ""
}

// TestHelmChartRefusesValues: a value that the chart does not know, or of another type, is refused
// by its name.
func TestHelmChartRefusesValues(t *testing.T) {
	for set, want := range map[string]string{
		"replicsa=3": "'replicsa' not allowed", "image.tag=1.0.0@sha256:0": "'/image/tag'", "image.tag=a/b": "'/image/tag'", "replicas=three": "'/replicas': got string", "image.tag=7": "'/image/tag'", "image.pullPolicy=Sometimes": "'/image/pullPolicy'",
		"storage.size=big": "'/storage/size'", "serviceMonitor.enabled=yes": "'/serviceMonitor/enabled'", "traces.sample=2": "'/traces/sample'", "backup.to=/backups": "'/backup/to'", "backup.every=1h": "'/backup/every'",
	} {
		if _, fault := helmTemplate(t, "carillon", "--set", set); !strings.Contains(fault, want) {
			t.Errorf("%s: %q lacks %q", set, fault, want)
		}
	}
}

// TestHelmChartNames: names that Services must not have are refused with what to do, and labels are
// those of Kubernetes, whatever names the image and the release have.
func TestHelmChartNames(t *testing.T) {
	for _, release := range []string{"my.rel", "1timers", "a.carillon"} {
		if _, fault := helmTemplate(t, release); !strings.Contains(fault, "take another name for the release, such as") {
			t.Errorf("%s: %q", release, fault)
		}
	}
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for tag, want := range map[string][2]string{
		"1.0.0": {"1.0.0", ":1.0.0"}, "1.0.0@" + digest: {"1.0.0", ":1.0.0@" + digest}, digest: {"sha256-" + digest[7:63], "@" + digest},
		strings.Repeat("a", 62) + ".b": {strings.Repeat("a", 62), ":" + strings.Repeat("a", 62) + ".b"}, "_x": {"x", ":_x"},
	} {
		for _, release := range []string{"true", "carillon"} {
			out, fault := helmTemplate(t, release, "--set-string", "image.tag="+tag)
			if fault != "" {
				t.Errorf("%s: %s", tag, fault)
				continue
			}
			file := filepath.Join(t.TempDir(), "rendered.yaml")
			testkit.Must(t, os.WriteFile(file, out, 0o600))
			for _, doc := range documents(t, file) {
				labels := at(t, doc, "metadata", "labels").(map[string]any)
				for key, value := range labels {
					if text, is := value.(string); !is || !label.MatchString(text) {
						t.Errorf("%s of the %v for the tag %s is %#v", key, doc["kind"], tag, value)
					}
				}
				if labels["app.kubernetes.io/version"] != want[0] {
					t.Errorf("the version for the tag %s is %v", tag, labels["app.kubernetes.io/version"])
				}
				if doc["kind"] == "StatefulSet" {
					if image := at(t, doc, "spec", "template", "spec", "containers", "0", "image"); image != "carillon"+want[1] {
						t.Errorf("the image for the tag %s is %v", tag, image)
					}
				}
			}
		}
	}
}

var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// TestHelmChartTexts: a text that looks like something else in YAML stays a text, and a number
// where Kubernetes wants a text becomes one, by --set and in a file.
func TestHelmChartTexts(t *testing.T) {
	texts := map[string][]string{
		"storage.className": {"spec", "volumeClaimTemplates", "0", "spec", "storageClassName"}, "serviceAccountName": {"spec", "template", "spec", "serviceAccountName"},
		"auth.existingSecret": {"spec", "template", "spec", "volumes", "0", "secret", "secretName"}, "imagePullSecrets[0].name": {"spec", "template", "spec", "imagePullSecrets", "0", "name"},
		"podAnnotations.a": {"spec", "template", "metadata", "annotations", "a"}, "nodeSelector.a": {"spec", "template", "spec", "nodeSelector", "a"},
	}
	for name, path := range texts {
		for _, text := range []string{"true", "1e3", "a: b # c"} {
			if got := at(t, chart(t, "carillon", "--set-string", name+"="+text)["StatefulSet carillon"], path...); got != text {
				t.Errorf("%s=%s is %#v", name, text, got)
			}
		}
	}
	all := chart(t, "carillon", "--set-string", "backup.to=s3://1,backup.credentialsSecret=true,backup.region=1,serviceMonitor.interval=1,serviceMonitor.tokenSecret.name=true,serviceMonitor.tokenSecret.key=null",
		"--set", "serviceMonitor.enabled=true", "--set-string", "traces.endpoint=http://c # d")
	set, endpoint := all["StatefulSet carillon"], at(t, all["ServiceMonitor carillon"], "spec", "endpoints", "0")
	if volumes := at(t, set, "spec", "template", "spec", "volumes").([]any); at(t, volumes[1], "secret", "secretName") != "true" {
		t.Errorf("volumes are %v", volumes)
	}
	credentials := map[string]any{"name": "true", "key": "null"}
	if at(t, endpoint, "interval") != "1" || !reflect.DeepEqual(at(t, endpoint, "authorization", "credentials"), credentials) {
		t.Errorf("the endpoint is %v", endpoint)
	}
	if args := at(t, set, "spec", "template", "spec", "containers", "0", "args").([]any); !slices.Contains(args, any("--otlp-endpoint=http://c # d")) {
		t.Errorf("%v", args)
	}

	file := filepath.Join(t.TempDir(), "values.yaml")
	testkit.Must(t, os.WriteFile(file, []byte("storage: {size: 20000000000}\npodAnnotations: {a: 1000000, b: true}\nnodeSelector: {a: 7}\n"), 0o600))
	for _, flags := range [][]string{{"--values", file}, {"--set", "storage.size=20000000000,podAnnotations.a=1000000,podAnnotations.b=true,nodeSelector.a=7"}} {
		set := chart(t, "carillon", flags...)["StatefulSet carillon"]
		annotations := at(t, set, "spec", "template", "metadata", "annotations")
		if at(t, annotations, "a") != "1000000" || at(t, annotations, "b") != "true" || at(t, set, "spec", "template", "spec", "nodeSelector", "a") != "7" ||
			at(t, set, "spec", "volumeClaimTemplates", "0", "spec", "resources", "requests", "storage") != "20000000000" {
			t.Errorf("%v: %v", flags, set)
		}
	}
}

// objects are the documents of a file by kind and name, without the labels that nothing selects by.
func objects(t *testing.T, file string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, doc := range documents(t, file) {
		if doc != nil {
			meta := at(t, doc, "metadata").(map[string]any)
			delete(meta, "labels")
			all[fmt.Sprint(doc["kind"], " ", meta["name"])] = doc
		}
	}
	return all
}

// TestHelmChartIsTheManifest: with its default values the chart is deploy/kubernetes/carillon.yaml,
// and the secrets that one makes by hand for that.
func TestHelmChartIsTheManifest(t *testing.T) {
	manifest := objects(t, deployDir+"kubernetes/carillon.yaml")
	for name, flags := range map[string][]string{"": nil, "by hand": {"--set", "auth.existingSecret=carillon"}} {
		rendered := chart(t, "carillon", flags...)
		for kind, want := range manifest {
			if got := rendered[kind]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s is\n%v, not\n%v", kind, got, want)
			}
			delete(rendered, kind)
		}
		if name == "" {
			delete(rendered, "Secret carillon")
			delete(rendered, "Secret carillon-tokens")
		}
		if len(rendered) > 0 {
			t.Errorf("there is more: %v", rendered)
		}
	}
}

// TestHelmChartValues: names follow the release, scaling leaves the founders, and what is optional
// can be had.
func TestHelmChartValues(t *testing.T) {
	all := chart(t, "blue", "--set", "replicas=5,serviceAccountName=vault,storage.className=fast,serviceMonitor.enabled=true,networkPolicy.enabled=true,image.tag=1.0.0", "--set", "extraArgs={--replicas=5}")
	set := all["StatefulSet blue-carillon"]
	if set == nil || at(t, set, "spec", "replicas") != 5 || at(t, set, "spec", "volumeClaimTemplates", "0", "spec", "storageClassName") != "fast" || at(t, set, "spec", "template", "spec", "serviceAccountName") != "vault" {
		t.Fatalf("%v", all)
	}
	container := at(t, set, "spec", "template", "spec", "containers", "0")
	args := texts(at(t, container, "args"))
	line := strings.NewReplacer("$(POD_NAME)", "blue-carillon-4", "$(POD_NAMESPACE)", "timers").Replace(strings.Join(args[1:], " "))
	_, value := serveParser(t, strings.Fields(line)...)
	if join := value("join").([]string); len(join) != 3 || join[2] != "blue-carillon-2.blue-carillon-nodes:7702" || value("bootstrap-expect") != 3 || value("replicas") != 5 || at(t, container, "image") != "carillon:1.0.0" {
		t.Errorf("%v of %v", args, container)
	}
	if joined := strings.Join(args, " "); strings.Contains(joined, "backup") || strings.Contains(joined, "otlp") {
		t.Errorf("backups and traces are not off: %v", args)
	}
	for kind, path := range map[string][]string{
		"ServiceMonitor blue-carillon": {"spec", "selector", "matchLabels", "app"}, "NetworkPolicy blue-carillon": {"spec", "podSelector", "matchLabels", "app"},
		"PodDisruptionBudget blue-carillon": {"spec", "selector", "matchLabels", "app"}, "Service blue-carillon-nodes": {"spec", "selector", "app"},
	} {
		if all[kind] == nil || at(t, all[kind], path...) != "blue-carillon" {
			t.Errorf("%s: %v", kind, all[kind])
		}
	}
}

// TestHelmChartProbesByHTTPS: a node with a certificate is asked by HTTPS, any other is not.
func TestHelmChartProbesByHTTPS(t *testing.T) {
	for flag, want := range map[string]any{"--http-cert=/etc/tls/tls.crt": "HTTPS", "--replicas=5": nil} {
		set := chart(t, "carillon", "--set", "extraArgs={"+flag+"}")["StatefulSet carillon"]
		for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			get := at(t, set, "spec", "template", "spec", "containers", "0", probe, "httpGet").(map[string]any)
			if get["scheme"] != want {
				t.Errorf("%s: the %s has scheme %v, not %v", flag, probe, get["scheme"], want)
			}
		}
	}
}

// TestHelmChartBackupsAndTraces: the nodes have the flags, and the credentials as files.
func TestHelmChartBackupsAndTraces(t *testing.T) {
	all := chart(t, "carillon", "--set", "backup.to=s3://vault/carillon,backup.every=30 2 * * *,backup.keep=7,backup.credentialsSecret=vault,backup.region=eu-west-1,backup.endpoint=https://minio:9000",
		"--set", "traces.endpoint=http://collector:4318,traces.sample=0.5")
	pod := at(t, all["StatefulSet carillon"], "spec", "template", "spec")
	container := at(t, pod, "containers", "0")
	args := texts(at(t, container, "args"))
	line := strings.NewReplacer("$(POD_NAME)", "carillon-0", "$(POD_NAMESPACE)", "timers").Replace(strings.Join(args[1:], "\x00"))
	_, value := serveParser(t, strings.Split(line, "\x00")...)
	sample := value("trace-sample").(*float64)
	if value("backup-to") != "s3://vault/carillon" || value("backup-every") != "30 2 * * *" || value("backup-keep") != 7 || value("otlp-endpoint") != "http://collector:4318" || sample == nil || *sample != 0.5 {
		t.Errorf("%v", args)
	}
	env := map[string]any{}
	for _, e := range at(t, container, "env").([]any) {
		env[e.(map[string]any)["name"].(string)] = e.(map[string]any)["value"]
	}
	mounts, volumes := at(t, container, "volumeMounts").([]any), at(t, pod, "volumes").([]any)
	if len(mounts) != 3 || len(volumes) != 2 {
		t.Fatalf("%v, %v", mounts, volumes)
	}
	mounted := at(t, mounts[2], "mountPath")
	if env["AWS_ACCESS_KEY_ID_FILE"] != fmt.Sprint(mounted, "/AWS_ACCESS_KEY_ID") || env["AWS_SECRET_ACCESS_KEY_FILE"] != fmt.Sprint(mounted, "/AWS_SECRET_ACCESS_KEY") ||
		env["AWS_REGION"] != "eu-west-1" || env["AWS_ENDPOINT_URL_S3"] != "https://minio:9000" || at(t, volumes[1], "secret", "secretName") != "vault" {
		t.Errorf("%v, %v", env, pod)
	}
}

// TestHelmChartKeepsItsSecrets: a node takes the key and the tokens that the chart makes, and an
// upgrade leaves them as they are in the cluster.
func TestHelmChartKeepsItsSecrets(t *testing.T) {
	made := chart(t, "carillon")
	tokens, secret := made["Secret carillon-tokens"], made["Secret carillon"]
	operator, err := base64.StdEncoding.DecodeString(at(t, tokens, "data", "operator").(string))
	testkit.Must(t, err)
	key, err := base64.StdEncoding.DecodeString(at(t, secret, "data", "cluster.key").(string))
	testkit.Must(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{"cluster.key": string(key), "tokens.yaml": at(t, secret, "stringData", "tokens.yaml").(string)} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o400))
	}
	_, url := serve(t, "--gossip-key", filepath.Join(dir, "cluster.key"), "--auth-file", filepath.Join(dir, "tokens.yaml"))
	if out := ctlSays(t, url, "--token", string(operator), "cluster"); !strings.Contains(out, "healthy") {
		t.Error(out)
	}

	kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answers := map[string]any{
			"/version":                    map[string]string{"major": "1", "minor": "30", "gitVersion": "v1.30.0"},
			"/api":                        map[string]any{"kind": "APIVersions", "versions": []string{"v1"}},
			"/apis":                       map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}},
			"/api/v1":                     map[string]any{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{map[string]any{"name": "secrets", "kind": "Secret", "namespaced": true, "verbs": []string{"get"}}}},
			secretsOf + "carillon":        secret,
			secretsOf + "carillon-tokens": tokens,
		}
		if answers[r.URL.Path] == nil {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	defer kubernetes.Close()
	config := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, namespace: timers}}]}", kubernetes.URL)
	testkit.Must(t, os.WriteFile(config, []byte(text), 0o600))
	upgraded := chart(t, "carillon", "--is-upgrade", "--dry-run=server", "--kubeconfig", config, "--set-json", `auth.tokens=[{"name":"shop","sha256":"`+strings.Repeat("0", 64)+`","scopes":["add"],"topics":["*"]}]`)
	if !reflect.DeepEqual(upgraded["Secret carillon-tokens"], tokens) || at(t, upgraded["Secret carillon"], "data", "cluster.key") != at(t, secret, "data", "cluster.key") {
		t.Errorf("an upgrade makes\n%v\n%v, before\n%v\n%v", upgraded["Secret carillon-tokens"], upgraded["Secret carillon"], tokens, secret)
	}
	lines := at(t, upgraded["Secret carillon"], "stringData", "tokens.yaml").(string)
	if before := at(t, secret, "stringData", "tokens.yaml").(string); !strings.HasPrefix(lines, before) || !strings.Contains(lines, "name: shop\n") {
		t.Errorf("tokens are\n%s, before\n%s", lines, before)
	}
}

const secretsOf = "/api/v1/namespaces/timers/secrets/"
