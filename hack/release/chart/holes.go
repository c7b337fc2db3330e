package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Conditions of parts of the chart.
const (
	webhooksOn   = ".Values.webhooks.enabled"
	hostsOn      = ".Values.kinds.hostRemediation"
	metal3On     = ".Values.kinds.metal3Remediation"
	nodeChecksOn = ".Values.kinds.nodeHealthCheck"
	recordsOn    = ".Values.kinds.remediationRecord"
	policiesOn   = ".Values.kinds.remediationPolicy"
	hostRights   = "or " + hostsOn + " " + metal3On + " .Values.rights.hosts"
	nodeRights   = "or " + nodeChecksOn + " .Values.rights.nodes"
	monitorOn    = ".Values.serviceMonitor.enabled"
	within       = `include "kubemend.within" .`
)

// serviceAccount is the hole for the name of the manager's ServiceAccount.
const serviceAccount = hole + ".Values.serviceAccount.name" + mark

// clusterWide is the ClusterRole for cluster-scoped kinds that a manager of one namespace needs too.
const clusterWide = "kubemend-cluster-wide"

// inOneNamespace derives the bindings of a manager of one namespace from those for the whole cluster. They equal the bindings of
// config/rbac/one-namespace.
func inOneNamespace(objects []tree) ([]tree, error) {
	var bindings []tree
	for _, o := range objects {
		name := at(o, "metadata", "name")
		if o["kind"] != "ClusterRoleBinding" || name == "kubemend-nodes" || name == "kubemend-metrics-reader" { // always cluster-scoped
			continue
		}
		content, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("copy the ClusterRoleBinding %s: %w", name, err)
		}
		narrow, wide := tree{}, tree{}
		if err := errors.Join(yaml.Unmarshal(content, &narrow), yaml.Unmarshal(content, &wide)); err != nil {
			return nil, fmt.Errorf("copy the ClusterRoleBinding %s: %w", name, err)
		}
		narrow["kind"] = "RoleBinding"
		narrow["metadata"].(tree)["namespace"] = hole + within + mark
		bindings = append(bindings, narrow)
		if name == "kubemend-manager" {
			wide["metadata"].(tree)["name"], wide["roleRef"].(tree)["name"] = clusterWide, clusterWide
			bindings = append(bindings, wide)
		}
	}
	return bindings, nil
}

// ownLabels are the values with extra labels, by kind of objects.
var ownLabels = map[string]string{
	"ServiceMonitor": ".Values.serviceMonitor.labels ", "PrometheusRule": ".Values.prometheusRule.labels ", "ConfigMap": ".Values.dashboards.labels ",
}

// leaseNamespace is the namespace of leases on nodes in the manifests.
const leaseNamespace = "medik8s-leases"

// dig makes the holes of an object, and returns the condition of the object, or "" for none.
func dig(kind, name string, o tree) string {
	if condition := digMonitoring(kind, name, o); condition != "" {
		return condition
	}
	switch kind {
	case "Namespace":
		return digLeaseNamespace(o)
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		return digRights(kind, name, o)
	case "CustomResourceDefinition":
		return digKind(name, o)
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return digWebhooks(o)
	case "Deployment":
		digDeployment(o)
	case "ServiceAccount":
		metadata := at(o, "metadata").(tree)
		metadata["name"] = serviceAccount
		metadata["annotations"] = optional + ".Values.serviceAccount.annotations" + mark
		return ".Values.serviceAccount.create"
	case "PodDisruptionBudget":
		return ".Values.podDisruptionBudget.enabled"
	case "NetworkPolicy":
		metricsRule(o)["from"] = hole + "toJson .Values.networkPolicy.metricsFrom" + mark
		return ".Values.networkPolicy.enabled"
	case "Service", "Issuer":
		return webhooksOn
	case "Certificate":
		at(o, "spec").(tree)["issuerRef"] = hole + "toJson .Values.webhooks.issuerRef" + mark
		return webhooksOn
	}
	return ""
}

// digMonitoring makes the holes of objects for Prometheus and Grafana, and returns their condition, or "" for other objects.
func digMonitoring(kind, name string, o tree) string {
	switch {
	case kind == "ServiceMonitor":
		at(o, "spec", "endpoints").([]any)[0].(tree)["interval"] = hole + ".Values.serviceMonitor.interval" + mark
	case kind == "RoleBinding" && name == "kubemend-metrics-discovery":
		o["subjects"] = []any{items + ".Values.serviceMonitor.prometheus" + mark}
	case strings.HasPrefix(name, "kubemend-metrics"):
	case kind == "PrometheusRule":
		return ".Values.prometheusRule.enabled"
	case kind == "ConfigMap":
		digPairs(at(o, "metadata").(tree), "annotations", ".Values.dashboards.annotations")
		return ".Values.dashboards.enabled"
	default:
		return ""
	}
	return monitorOn
}

// digRights makes the bindings of a feature depend on the feature, and puts them into the manager's namespace if it works in only one.
func digRights(kind, name string, o tree) string {
	metadata := at(o, "metadata").(tree)
	if at(o, "subjects", "name") == "kubemend-manager" {
		o["subjects"].([]any)[0].(tree)["name"] = serviceAccount
	}
	if metadata["namespace"] == leaseNamespace {
		metadata["namespace"] = hole + `include "kubemend.leaseNamespace" .` + mark
	}
	where := ""
	switch {
	case kind == "ClusterRoleBinding" && name == clusterWide:
		where = within
	case kind == "ClusterRoleBinding" && name != "kubemend-nodes":
		where = "not (" + within + ")"
	case kind == "RoleBinding" && metadata["namespace"] == hole+within+mark:
		where = within
	}
	feature := ""
	switch name {
	case "kubemend-hosts":
		feature = hostRights
	case "kubemend-nodes", "kubemend-node-leases", "kubemend-api-servers":
		feature = nodeRights
	}
	if where != "" && feature != "" {
		return "and (" + where + ") (" + feature + ")"
	}
	return where + feature
}

// digLeaseNamespace keeps the Namespace after the release is deleted, because leases of medik8s' operators may be in it.
func digLeaseNamespace(o tree) string {
	metadata := at(o, "metadata").(tree)
	metadata["name"] = hole + `include "kubemend.leaseNamespace" .` + mark
	metadata["annotations"] = tree{"helm.sh/resource-policy": "keep"}
	return "and (" + nodeRights + ") .Values.rights.createLeaseNamespace"
}

// digKind keeps a CRD after the release is deleted, unless the user decides otherwise, because its objects are deleted with it.
func digKind(name string, o tree) string {
	annotations := at(o, "metadata", "annotations").(tree)
	annotations["helm.sh/resource-policy"] = optional + `(ternary "keep" "" .Values.kinds.keep)` + mark
	return conditionOf(name)
}

// conditionOf returns the condition of an object whose name contains a kind.
func conditionOf(name string) string {
	switch {
	case strings.Contains(name, "metal3remediation"):
		return metal3On
	case strings.Contains(name, "nodehealthcheck"):
		return nodeChecksOn
	case strings.Contains(name, "remediationrecord"):
		return recordsOn
	case strings.Contains(name, "remediationpolicies"), strings.Contains(name, "remediationoverrides"):
		return policiesOn
	default:
		return hostsOn
	}
}

func digWebhooks(o tree) string {
	asked := at(o, "webhooks").([]any)
	hooks := make([]any, 0, 3*len(asked))
	conditions := map[string]bool{}
	for _, hook := range asked {
		condition := conditionOf(at(hook, "name").(string))
		conditions[condition] = true
		hooks = append(hooks, begin+condition+mark, hook, end)
	}
	o["webhooks"] = hooks
	if len(conditions) > 1 {
		return "and " + webhooksOn + " (or " + hostsOn + " " + metal3On + ")"
	}
	return "and " + webhooksOn + " " + conditionOf(at(hooks[1], "name").(string))
}

func digDeployment(o tree) {
	spec := at(o, "spec").(tree)
	spec["replicas"] = hole + ".Values.replicas" + mark
	spec["strategy"] = optional + ".Values.strategy" + mark
	spec["revisionHistoryLimit"] = hole + ".Values.revisionHistoryLimit" + mark
	template := spec["template"].(tree)
	digPairs(template["metadata"].(tree), "labels", ".Values.podLabels .Values.commonLabels")
	digPairs(template["metadata"].(tree), "annotations", ".Values.podAnnotations")
	pod := template["spec"].(tree)
	for field, value := range map[string]string{
		"tolerations": "tolerations", "topologySpreadConstraints": "topologySpreadConstraints", "priorityClassName": "priorityClassName",
		"affinity": "affinity", "nodeSelector": "nodeSelector", "imagePullSecrets": "image.pullSecrets", "securityContext": "podSecurityContext",
		"hostNetwork": "hostNetwork",
	} {
		pod[field] = optional + ".Values." + value + mark
	}
	pod["serviceAccountName"] = serviceAccount
	pod["dnsPolicy"] = optional + `include "kubemend.dnsPolicy" .` + mark
	pod["volumes"] = append(onlyWithWebhooks(pod["volumes"]), items+".Values.extraVolumes"+mark)

	c := pod["containers"].([]any)[0].(tree)
	c["image"] = hole + `include "kubemend.image" .` + mark
	c["imagePullPolicy"] = hole + ".Values.image.pullPolicy" + mark
	c["args"] = hole + `include "kubemend.args" .` + mark
	c["resources"] = hole + "toJson .Values.resources" + mark
	c["securityContext"] = optional + ".Values.securityContext" + mark
	c["env"] = append(c["env"].([]any), items+".Values.env"+mark)
	c["volumeMounts"] = append(onlyWithWebhooks(c["volumeMounts"]), items+".Values.extraVolumeMounts"+mark)
	ports := map[any]string{
		"webhook": ".Values.webhooks.port",
		"metrics": `include "kubemend.metricsPort" .`,
		"health":  `include "kubemend.healthPort" .`,
	}
	for _, port := range c["ports"].([]any) {
		port.(tree)["containerPort"] = hole + ports[port.(tree)["name"]] + mark
	}
}

// digPairs adds pairs of the values to the labels or annotations of metadata. The chart's own pairs win, because selectors rely on them,
// and because some YAML parsers refuse duplicate keys.
func digPairs(metadata tree, field, values string) {
	own, is := metadata[field].(tree)
	if !is {
		own = tree{}
		metadata[field] = own
	}
	own[pairs+values+mark] = strings.Join(slices.Sorted(maps.Keys(own)), ",")
}

func onlyWithWebhooks(list any) []any {
	return append(append([]any{begin + webhooksOn + mark}, list.([]any)...), end)
}
