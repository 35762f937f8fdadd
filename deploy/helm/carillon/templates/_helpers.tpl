{{- define "carillon.name" -}}
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

{{- define "carillon.labels" -}}
app: {{ include "carillon.name" . }}
app.kubernetes.io/name: carillon
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
