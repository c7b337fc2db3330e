{{/* The image, by its digest if there is one. */}}
{{- define "kubemend.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Refuses values that would render, and then not work. */}}
{{- define "kubemend.refuse" -}}
{{- $flags := .Values.flags -}}
{{- $monitor := .Values.serviceMonitor.enabled -}}
{{- $none := list "" "0" -}}
{{- range $sentence, $refused := dict
  "flags.leader-elect must be true: else several managers act at once, with more than one replica, and whenever the Deployment replaces a pod"
    (ne (toString (index $flags "leader-elect")) "true")
  "kinds.metal3Remediation needs webhooks.enabled: without conversion the API server drops fields of Metal3Remediations"
    (and .Values.kinds.metal3Remediation (not .Values.webhooks.enabled))
  "serviceMonitor.enabled needs webhooks.enabled: Prometheus verifies the manager by the certificate of the webhooks"
    (and $monitor (not .Values.webhooks.enabled))
  "serviceMonitor.enabled collects metrics by HTTPS, with a token: it excludes flags.insecure-diagnostics"
    (and $monitor (eq (toString (index $flags "insecure-diagnostics")) "true"))
  "serviceMonitor.enabled needs a port in flags.diagnostics-address, such as :8443"
    (and $monitor (has (toString (index $flags "diagnostics-address")) $none))
  "flags.health-addr needs a port, such as :9440: the kubelet asks there whether the manager is alive"
    (has (toString (index $flags "health-addr")) $none)
  "webhooks.enabled mounts the certificate in /etc/kubemend/webhook, which flags.webhook-cert-dir must name"
    (and .Values.webhooks.enabled (ne (toString (index $flags "webhook-cert-dir")) "/etc/kubemend/webhook"))
  "flags.webhook-port is set by webhooks.port"
    (hasKey $flags "webhook-port")
  "serviceAccount.name must be kubemend-manager, or begin with kubemend-manager-: kubectl mend believes no other account that it is a manager's"
    (not (regexMatch "^kubemend-manager(-.+)?$" .Values.serviceAccount.name))
-}}
{{- if $refused }}{{ fail $sentence }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Labels, or annotations, without those of some names. */}}
{{- define "kubemend.others" -}}
{{- $others := last . -}}
{{- range splitList "," (first .) }}{{ $others = omit $others . }}{{ end -}}
{{- toJson $others -}}
{{- end -}}

{{/* The ports that the manager's flags name. */}}
{{- define "kubemend.metricsPort" -}}
{{- index .Values.flags "diagnostics-address" | toString | regexFind "[0-9]+$" | int | default 8443 -}}
{{- end -}}
{{- define "kubemend.healthPort" -}}
{{- index .Values.flags "health-addr" | toString | regexFind "[0-9]+$" | int | default 9440 -}}
{{- end -}}

{{/* Whether the manager acts on NodeHealthChecks; empty if not. */}}
{{- define "kubemend.nodeHealthChecks" -}}
{{- $off := has (toString (index .Values.flags "node-health-checks")) (list "off" "false") -}}
{{- if and (or .Values.kinds.nodeHealthCheck .Values.rights.nodes) (not $off) }}yes{{ end -}}
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
{{- include "kubemend.refuse" . -}}
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
{{- if and (kindIs "bool" $value) (has $name (list "metal3-remediations" "node-health-checks")) -}}
{{- /* YAML reads on and off as true and false. */ -}}
{{- $value = ternary "on" "off" $value -}}
{{- end -}}
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
