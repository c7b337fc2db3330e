package main

import "strings"

// On these conditions parts of the chart are there.
const (
	webhooksOn   = ".Values.webhooks.enabled"
	hostsOn      = ".Values.kinds.hostRemediation"
	metal3On     = ".Values.kinds.metal3Remediation"
	nodeChecksOn = ".Values.kinds.nodeHealthCheck"
)

// dig makes the holes of an object, and returns the condition on which it is there at all; none if it is empty.
func dig(kind, name string, o tree) string {
	switch kind {
	case "CustomResourceDefinition":
		return digKind(name, o)
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return digWebhooks(o)
	case "Deployment":
		digDeployment(o)
	case "ServiceAccount":
		metadata := at(o, "metadata").(tree)
		metadata["annotations"] = optional + ".Values.serviceAccount.annotations" + mark
	case "PodDisruptionBudget":
		return ".Values.podDisruptionBudget.enabled"
	case "NetworkPolicy":
		return ".Values.networkPolicy.enabled"
	case "Service", "Issuer":
		return webhooksOn
	case "Certificate":
		at(o, "spec").(tree)["issuerRef"] = hole + "toJson .Values.webhooks.issuerRef" + mark
		return webhooksOn
	}
	return ""
}

// digKind: what a CRD holds is lost with it, so it outlives the release unless the user says otherwise.
func digKind(name string, o tree) string {
	annotations := at(o, "metadata", "annotations").(tree)
	annotations["helm.sh/resource-policy"] = optional + `(ternary "keep" "" .Values.kinds.keep)` + mark
	return conditionOf(name)
}

// conditionOf is on what a kind depends, by a name in which it occurs.
func conditionOf(name string) string {
	switch {
	case strings.Contains(name, "metal3remediation"):
		return metal3On
	case strings.Contains(name, "nodehealthcheck"):
		return nodeChecksOn
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
	at(o, "spec").(tree)["replicas"] = hole + ".Values.replicas" + mark
	template := at(o, "spec", "template").(tree)
	pod := template["spec"].(tree)
	for field, value := range map[string]string{
		"tolerations": "tolerations", "topologySpreadConstraints": "topologySpreadConstraints", "priorityClassName": "priorityClassName",
		"affinity": "affinity", "nodeSelector": "nodeSelector", "imagePullSecrets": "image.pullSecrets",
	} {
		pod[field] = optional + ".Values." + value + mark
	}
	pod["volumes"] = onlyWithWebhooks(pod["volumes"])

	c := pod["containers"].([]any)[0].(tree)
	c["image"] = hole + `include "kubemend.image" .` + mark
	c["imagePullPolicy"] = hole + ".Values.image.pullPolicy" + mark
	c["args"] = hole + `include "kubemend.args" .` + mark
	c["resources"] = hole + "toJson .Values.resources" + mark
	c["env"] = append(c["env"].([]any), items+".Values.env"+mark)
	c["volumeMounts"] = onlyWithWebhooks(c["volumeMounts"])
}

func onlyWithWebhooks(list any) []any {
	return append(append([]any{begin + webhooksOn + mark}, list.([]any)...), end)
}
