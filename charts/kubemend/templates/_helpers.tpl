{{/* The image, by its digest if there is one. */}}
{{- define "kubemend.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Where the leases on nodes are. */}}
{{- define "kubemend.leaseNamespace" -}}
{{- index .Values.flags "node-lease-namespace" | default "medik8s-leases" -}}
{{- end -}}

{{/* The one namespace in which the manager has its rights; empty if it has them in all. */}}
{{- define "kubemend.within" -}}
{{- if not .Values.rights.allNamespaces }}{{ index .Values.flags "namespace" | default "" }}{{ end -}}
{{- end -}}

{{/* The DNS policy of the pods; empty for that of Kubernetes. Those in the network of their nodes need one by which they find Services. */}}
{{- define "kubemend.dnsPolicy" -}}
{{- .Values.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" .Values.hostNetwork) -}}
{{- end -}}

{{/* The flags of the manager, sorted by their names. Without webhooks there is no certificate. With rights in one namespace it stores nothing anew in
others, and leaves nodes, which have none, alone unless it has rights to them; see config/namespaced. */}}
{{- define "kubemend.args" -}}
{{- $flags := dict -}}
{{- if include "kubemend.within" . -}}
{{- $_ := set $flags "skip-crd-migration-phases" "StorageVersionMigration,CleanupManagedFields" -}}
{{- if not (or .Values.kinds.nodeHealthCheck .Values.rights.nodes) -}}
{{- $_ := set $flags "node-health-checks" "off" -}}
{{- end -}}
{{- end -}}
{{- if ne (int .Values.webhooks.port) 9443 -}}
{{- $_ := set $flags "webhook-port" .Values.webhooks.port -}}
{{- end -}}
{{- range $name, $value := .Values.flags -}}
{{- $_ := set $flags $name $value -}}
{{- end -}}
{{- $args := list -}}
{{- range $name, $value := $flags -}}
{{- if not (or (kindIs "invalid" $value) (and (eq $name "webhook-cert-dir") (not $.Values.webhooks.enabled))) -}}
{{- /* Of large numbers JSON is what a flag can read. */ -}}
{{- $args = append $args (printf "--%s=%s" $name (kindIs "string" $value | ternary $value (toJson $value))) -}}
{{- end -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}
