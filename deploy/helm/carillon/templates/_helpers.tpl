{{- /* A Service's name begins with a letter and has no dot, though a release's may. */ -}}
{{- define "carillon.name" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) }}
{{- fail (printf "%s would be the name of Services, which begins with a letter and has no dot: take another name for the release, such as timers" .Release.Name) }}
{{- end }}
{{- if contains "carillon" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-carillon" (.Release.Name | trunc 31 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "carillon.nodes" -}}
{{ include "carillon.name" . }}-nodes
{{- end }}

{{- define "carillon.secret" -}}
{{ .Values.auth.existingSecret | default (include "carillon.name" .) }}
{{- end }}

{{- /* The secret with tokens that the chart makes; no node reads it. */ -}}
{{- define "carillon.tokens" -}}
{{ include "carillon.name" . }}-tokens
{{- end }}

{{- define "carillon.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* By its tag, by tag@sha256:…, or by sha256:… alone. */ -}}
{{- define "carillon.image" -}}
{{- $tag := include "carillon.tag" . -}}
{{ .Values.image.repository }}{{ ternary "@" ":" (hasPrefix "sha256:" $tag) }}{{ $tag }}
{{- end }}

{{- /* A map of texts, as annotations are, in which --set made numbers of some. */ -}}
{{- define "carillon.texts" -}}
{{- range $key, $value := . }}
{{ $key | quote }}: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{- /* Of probes, after their port: a node with --http-cert speaks no HTTP in clear. */ -}}
{{- define "carillon.scheme" -}}
{{- range .Values.extraArgs }}{{ if hasPrefix "--http-cert=" . }}, scheme: HTTPS{{ end }}{{ end }}
{{- end }}

{{- define "carillon.labels" -}}
app: {{ include "carillon.name" . }}
app.kubernetes.io/name: carillon
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ regexReplaceAll "@.*" (include "carillon.tag" .) "" | replace ":" "-" | trunc 63 | trimAll "._-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
