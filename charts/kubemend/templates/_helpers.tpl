{{/* The image, by its digest if there is one. */}}
{{- define "kubemend.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The flags of the manager, sorted by their names. Without webhooks there is no certificate. */}}
{{- define "kubemend.args" -}}
{{- $args := list -}}
{{- range $name, $value := .Values.flags -}}
{{- if not (and (eq $name "webhook-cert-dir") (not $.Values.webhooks.enabled)) -}}
{{- /* Of large numbers JSON is what a flag can read. */ -}}
{{- $args = append $args (printf "--%s=%s" $name (kindIs "string" $value | ternary $value (toJson $value))) -}}
{{- end -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}
