package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A value is one setting of the chart. Its default is that of the manifests if they have it.
type value struct {
	path    string // with dots
	meaning string
	initial any
	schema  tree
}

var (
	text   = tree{"type": "string"}
	digest = tree{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}
	yes    = tree{"type": "boolean"}
	port   = tree{"type": "integer", "minimum": 1, "maximum": 65535}
	count  = tree{"type": "integer", "minimum": 0}
	list   = tree{"type": "array", "items": tree{"type": "object"}}
	labels = tree{"type": "object", "additionalProperties": text}
	object = tree{"type": "object"}
)

// valuesOf returns all settings in the order of the documents.
func valuesOf(objects []tree) ([]value, error) {
	deployment, certificate := find(objects, "Deployment"), find(objects, "Certificate")
	pod := at(deployment, "spec", "template", "spec")
	container := at(pod, "containers")
	repository, _, found := strings.Cut(fmt.Sprint(at(container, "image")), ":")
	if !found {
		return nil, fmt.Errorf("the image %v has no tag", at(container, "image"))
	}
	return slices.Concat([]value{
		{"kinds.hostRemediation", "Install the CRDs of HostRemediation and its template.", true, yes},
		{"kinds.remediationRecord", "Install the CRD of RemediationRecord. Without it kubemend does not wait longer before it repeats a remediation.",
			true, yes},
		{"kinds.remediationPolicy", "Install the CRDs of RemediationPolicy and RemediationOverride.", true, yes},
		{"kinds.metal3Remediation", "Install the CRDs of Metal3Remediation and its template, and their webhooks. " +
			"CAPM3 brings its own: never enable this beside it.", false, yes},
		{"kinds.nodeHealthCheck", "Install the CRD of NodeHealthCheck, and its webhook. " +
			"The operator of medik8s brings its own: never enable this beside it.", false, yes},
		{"kinds.keep", "Keep the CRDs, and all their objects, when the release is uninstalled.", true, yes},
		{"rights.hosts", "Give the manager the rights to power-cycle hosts also if this release does not install the kinds of " +
			"remediations: because they exist already, or for a teardown.", false, yes},
		{"rights.nodes", "Give the manager the rights to act on NodeHealthChecks also if this release does not install their kind: " +
			"because it exists already.", false, yes},
		{
			"rights.allNamespaces", "Give the manager its rights in all namespaces also if flags.namespace names one, to which they are limited otherwise: " +
				"it then migrates stored versions for other shards.", false, yes,
		},
		{
			"rights.createLeaseNamespace", "Create the namespace of the leases on nodes, where the manager acts on NodeHealthChecks. " +
				"Disable it where the namespace exists already, such as beside medik8s' Node Maintenance Operator.", true, yes,
		},
		{
			"flags", "Flags of the manager, name and value, as listed in docs/reference/flags.md; null removes one of these defaults.",
			given(container), nil,
		},
		{"replicas", "Number of managers. One of them acts.", at(deployment, "spec", "replicas"), count},
		{"image.repository", "Repository of the image.", repository, text},
		{"image.tag", "Tag of the image. If empty, the version of the chart's application.", "", text},
		{"image.digest", "Digest of the image, sha256:..., which takes precedence over the tag.", "", digest},
		{"image.pullPolicy", "When the image is pulled.", at(container, "imagePullPolicy"), tree{"enum": []string{"Always", "IfNotPresent", "Never"}}},
		{"image.pullSecrets", "Secrets for pulling the image, such as {name: registry}.", []any{}, list},
		{"webhooks.enabled", "Serve webhooks, with a certificate by cert-manager. Needed for Metal3Remediations.", true, yes},
		{"webhooks.port", "Port of the webhooks in the manager's pods; another one where hostNetwork is set and 9443 is taken on the nodes.", 9443, port},
		{"webhooks.issuerRef", "The cert-manager issuer of the webhooks' certificate.", at(certificate, "spec", "issuerRef"), object},
		{"serviceAccount.create", "Create the manager's ServiceAccount; if not, it has to exist.", true, yes},
		{"serviceAccount.name", "Name of that ServiceAccount: kubemend-manager, or one that begins with kubemend-manager-, by which " +
			"kubectl mend finds the manager.", at(pod, "serviceAccountName"), text},
		{"serviceAccount.annotations", "Annotations of the manager's ServiceAccount.", tree{}, labels},
	}, valuesOfPods(deployment, pod, container), valuesOfMonitoring(objects)), nil
}

// valuesOfPods returns the settings of the manager's pods and of the objects that schedule and protect them.
func valuesOfPods(deployment, pod, container any) []value {
	return []value{
		{"resources", "Requests of the manager, and its memory limit: see docs/sizing.md. There is no CPU limit, since a throttled " +
			"manager is of no use while many nodes fail.", at(container, "resources"), object},
		{"env", "Further environment variables, such as those of a proxy.", []any{}, list},
		{"commonLabels", "Labels of all objects, besides those that the chart sets itself.", tree{}, labels},
		{"podLabels", "Labels of the manager's pods.", tree{}, labels},
		{"podAnnotations", "Annotations of the manager's pods.", tree{}, labels},
		{"extraVolumes", "Further volumes of the manager's pods.", []any{}, list},
		{"extraVolumeMounts", "Where the manager mounts them.", []any{}, list},
		{"hostNetwork", "Run the manager in the network of its nodes, such as where the API server cannot reach pods. Its ports, of webhooks, " +
			"metrics and health, have to be free there.", false, yes},
		{"dnsPolicy", "DNS policy of the manager's pods. If empty, ClusterFirst, or ClusterFirstWithHostNet with hostNetwork.", "", text},
		{"strategy", "How the Deployment replaces pods; empty is RollingUpdate.", tree{}, object},
		{"revisionHistoryLimit", "Number of old ReplicaSets to keep.", at(deployment, "spec", "revisionHistoryLimit"), count},
		{"podSecurityContext", "Security context of the manager's pods.", at(pod, "securityContext"), object},
		{"securityContext", "Security context of the manager's container. The image has a user of its own, 65532.", at(container, "securityContext"), object},
		{"priorityClassName", "Priority class of the manager's pods.", at(pod, "priorityClassName"), text},
		{"tolerations", "Taints that the manager's pods tolerate.", at(pod, "tolerations"), list},
		{"nodeSelector", "Labels of the nodes on which the manager may run.", tree{}, labels},
		{"affinity", "Affinity of the manager's pods.", tree{}, object},
		{"topologySpreadConstraints", "How the manager's pods are spread.", at(pod, "topologySpreadConstraints"), list},
		{"podDisruptionBudget.enabled", "Let drains evict one replica at a time.", true, yes},
	}
}

// valuesOfMonitoring returns the settings for Prometheus and Grafana, and the setting for the user's own objects.
func valuesOfMonitoring(objects []tree) []value {
	return []value{
		{"networkPolicy.enabled", "Close all ports but those of webhooks, metrics and health.", true, yes},
		{"networkPolicy.metricsFrom", "Peers that may collect metrics, as in the field from of a NetworkPolicy; if empty, all may.",
			metricsRule(find(objects, "NetworkPolicy"))["from"], list},
		{"serviceMonitor.enabled", "Have Prometheus' operator collect the metrics, by a token that may read nothing else.", false, yes},
		{"serviceMonitor.labels", "Labels of the ServiceMonitor, for the selector of a Prometheus.", tree{}, labels},
		{"serviceMonitor.interval", "How often to collect metrics.", at(find(objects, "ServiceMonitor"), "spec", "endpoints", "interval"), text},
		{
			"serviceMonitor.prometheus", "ServiceAccounts of that Prometheus, which has to find the endpoints.",
			at(named(objects, "RoleBinding", "kubemend-metrics-discovery"), "subjects"), list,
		},
		{"prometheusRule.enabled", "Install the alerts, for Prometheus' operator.", false, yes},
		{"prometheusRule.labels", "Labels of the PrometheusRule, for the selector of a Prometheus.", tree{}, labels},
		{"dashboards.enabled", "Install the dashboards, as ConfigMaps for Grafana's sidecar.", false, yes},
		{"dashboards.labels", "Further labels of these ConfigMaps.", tree{}, labels},
		{"dashboards.annotations", "Annotations of these ConfigMaps, such as the folder in Grafana.", tree{}, labels},
		{"extraObjects", "Further objects, such as ExternalSecrets. Templates in their texts are evaluated.", []any{}, list},
	}
}

func find(objects []tree, kind string) tree {
	return objects[slices.IndexFunc(objects, func(o tree) bool { return o["kind"] == kind })]
}

// metricsRule returns the rule of the NetworkPolicy that limits who may collect metrics. The other rules are open to all.
func metricsRule(policy tree) tree {
	rules := at(policy, "spec", "ingress").([]any)
	return rules[slices.IndexFunc(rules, func(rule any) bool { return at(rule, "from") != nil })].(tree)
}

func named(objects []tree, kind, name string) tree {
	return objects[slices.IndexFunc(objects, func(o tree) bool { return o["kind"] == kind && at(o, "metadata", "name") == name })]
}

// given returns the flags that the manifests set. Flags that are true or false are booleans in the chart too.
func given(container any) tree {
	flags := tree{}
	for _, arg := range at(container, "args").([]any) {
		name, set, _ := strings.Cut(strings.TrimPrefix(arg.(string), "--"), "=")
		flags[name] = set
		if set == "true" || set == "false" {
			flags[name] = set == "true"
		}
	}
	return flags
}

var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z0-9-]+)` \\| `([^`]*)` \\| (.*) \\|$")

// words are the only values of some flags. YAML reads on and off as true and false, which the chart converts back.
var words = map[string][]any{
	"logging-format":                  {"text", "json"},
	"metal3-remediations":             {"auto", "on", "off", true, false},
	"node-health-checks":              {"auto", "on", "off", true, false},
	"tls-min-version":                 {"VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"},
	"unclaimed-machine-health-checks": {"observe", "act", "ignore"},
}

// readFlags returns the manager's flags, each with the schema of its values.
func readFlags(path string) (tree, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the flags: %w", err)
	}
	flags := tree{}
	for _, row := range flagRow.FindAllStringSubmatch(string(content), -1) {
		name, initial, meaning := row[1], row[2], strings.ReplaceAll(row[3], "<br>", "\n")
		allowed := words[name]
		if initial == "true" || initial == "false" {
			allowed = []any{true, false, "true", "false"}
		}
		if allowed == nil {
			flags[name] = tree{"description": meaning, "type": []string{"string", "number", "boolean", "null"}}
		} else {
			flags[name] = tree{"description": meaning, "enum": append(slices.Clone(allowed), nil)}
		}
	}
	if len(flags) == 0 {
		return nil, fmt.Errorf("read the flags: %s lists none", path)
	}
	return flags, nil
}

// schema refuses unknown settings and flags. kubemend.refuse in _helpers.tpl refuses contradictory settings, and says why.
func schema(values []value, flags tree) ([]byte, error) {
	top := tree{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Values of the Helm chart of kubemend",
		"type": "object", "additionalProperties": false, "properties": tree{"global": tree{"type": "object"}},
	}
	for _, v := range values {
		into := top
		way := strings.Split(v.path, ".")
		for _, step := range way[:len(way)-1] {
			if at(into, "properties", step) == nil {
				into["properties"].(tree)[step] = tree{"type": "object", "additionalProperties": false, "properties": tree{}}
			}
			into = at(into, "properties", step).(tree)
		}
		own := maps.Clone(v.schema)
		if v.path == "flags" {
			own = tree{"type": "object", "additionalProperties": false, "properties": flags}
		}
		own["description"] = v.meaning
		into["properties"].(tree)[way[len(way)-1]] = own
	}
	content, err := json.MarshalIndent(top, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return content, nil
}

// document returns values.yaml.
func document(values []value) ([]byte, error) {
	var b strings.Builder
	b.WriteString("# Code generated by make generate-chart. DO NOT EDIT. The defaults are those of config/default.\n")
	group := ""
	for _, v := range values {
		parent, name, nested := strings.Cut(v.path, ".")
		indent := ""
		if !nested {
			name, parent = parent, ""
		} else {
			indent = "  "
		}
		if parent != group || !nested {
			b.WriteString("\n")
		}
		if nested && parent != group {
			b.WriteString(parent + ":\n")
		}
		group = parent
		content, err := yaml.Marshal(tree{name: v.initial})
		if err != nil {
			return nil, fmt.Errorf("write the default of %s: %w", v.path, err)
		}
		b.WriteString(indent + "# " + v.meaning + "\n" + indent + strings.ReplaceAll(strings.TrimSpace(string(content)), "\n", "\n"+indent) + "\n")
	}
	return []byte(b.String()), nil
}

// readme returns the README of the chart.
func readme(values []value) ([]byte, error) {
	var b strings.Builder
	b.WriteString(introduction)
	for _, v := range values {
		content, err := json.Marshal(v.initial)
		if err != nil {
			return nil, fmt.Errorf("write the default of %s: %w", v.path, err)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.path, content, v.meaning)
	}
	return []byte(b.String()), nil
}

const introduction = `# Helm chart of kubemend

Generated by ` + "`make generate-chart`" + ` from config/standalone: with the same settings it installs the same objects.
[Installing](../../docs/install.md#helm) says how, and what has to be there before.

Its objects have fixed names, so there is one release of it in a cluster.
A value that is not listed here, or a flag that the manager does not have, is refused by the schema.

| value | default | meaning |
|---|---|---|
`
