package packages

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// standalone, beside and provider are the three ways to install the manifests.
func standalone(t *testing.T) []object { return objects(t, kustomized(t, "standalone")) }
func beside(t *testing.T) []object     { return objects(t, kustomized(t, "default")) }
func provider(t *testing.T) []object {
	return objects(t, substituted(t, kustomized(t, "clusterctl"), nil))
}

func TestPackages(t *testing.T) {
	for name, all := range map[string][]object{"standalone": standalone(t), "default": beside(t), "clusterctl": provider(t)} {
		obey(t, name, all)
	}
}

// obey applies all rules.
func obey(t *testing.T, name string, all []object) {
	t.Helper()
	for rule, check := range rules {
		t.Run(name+": "+rule, func(t *testing.T) {
			for _, fault := range check(t, all) {
				t.Error(fault)
			}
		})
	}
}

// Without this, a rule that sees nothing would find nothing wrong.
func TestThePackageRulesFindViolations(t *testing.T) {
	for name, row := range map[string]struct {
		rule, kind string
		change     func(o *object)
		path       []string
		value      any
	}{
		"an object without its label":          {rule: "every object has kubemend's labels", kind: "Service", path: []string{"metadata", "labels"}},
		"an object in another namespace":       {rule: "clusterctl finds one namespace, and all that has one in it", kind: "Service", path: []string{"metadata", "namespace"}, value: "default"},
		"another name of the namespace":        {rule: "clusterctl finds one namespace, and all that has one in it", kind: "Namespace", path: []string{"metadata", "name"}, value: "default"},
		"an unknown kind":                      {rule: "clusterctl finds one namespace, and all that has one in it", kind: "Service", path: []string{"kind"}, value: "Secret"},
		"another Deployment":                   {rule: "the manager is a Deployment that clusterctl and Tilt know", kind: "Deployment", path: []string{"metadata", "name"}, value: "manager"},
		"another image":                        {rule: "the manager is a Deployment that clusterctl and Tilt know", kind: "Deployment", change: inManager("image", "controller:latest")},
		"a container of another name":          {rule: "the manager is a Deployment that clusterctl and Tilt know", kind: "Deployment", change: inManager("name", "controller")},
		"a file system that can be written":    {rule: "the manager has no more power over its node than it needs", kind: "Deployment", change: inManager("securityContext", map[string]any{})},
		"a folder of the node":                 {rule: "the manager has no more power over its node than it needs", kind: "Deployment", path: podPath("volumes"), value: []any{map[string]any{"name": "a", "hostPath": map[string]any{"path": "/"}}}},
		"one replica":                          {rule: "the loss of a replica is harmless", kind: "Deployment", path: []string{"spec", "replicas"}, value: int64(1)},
		"replicas on one node":                 {rule: "the loss of a replica is harmless", kind: "Deployment", path: podPath("topologySpreadConstraints")},
		"a flag that the program has not":      {rule: "the manager knows every flag that it is given", kind: "Deployment", change: inManager("args", []any{"--leader-election"})},
		"a port without a listener":            {rule: "the manager knows every flag that it is given", kind: "Deployment", change: inManager("args", []any{"--diagnostics-address=:8080", "--webhook-cert-dir=/etc/kubemend/webhook"})},
		"an account that is not there":         {rule: "every subject of a binding exists", kind: "Deployment", path: podPath("serviceAccountName"), value: "default"},
		"a binding of another account":         {rule: "every subject of a binding exists", kind: "ClusterRoleBinding", path: []string{"subjects"}, value: []any{map[string]any{"kind": "ServiceAccount", "name": "default"}}},
		"a binding of a role that is none":     {rule: "every subject of a binding exists", kind: "ClusterRoleBinding", path: []string{"roleRef", "name"}, value: "cluster-admin"},
		"a role for everything":                {rule: "roles have no wildcards and delete only what they need to", kind: "ClusterRole", change: inRules("resources", "*")},
		"a role for every verb":                {rule: "roles have no wildcards and delete only what they need to", kind: "Role", change: inRules("verbs", "*")},
		"a role for half of everything":        {rule: "roles have no wildcards and delete only what they need to", kind: "Role", change: inRules("resources", "*/status")},
		"a role that deletes events":           {rule: "roles have no wildcards and delete only what they need to", kind: "Role", change: inRules("verbs", "delete")},
		"a right to all leases":                {rule: "leases are written in the namespaces that are the manager's", kind: "ClusterRole", change: inRules("resources", "leases")},
		"a right to make namespaces":           {rule: "leases are written in the namespaces that are the manager's", kind: "ClusterRole", change: inRules("resources", "namespaces")},
		"rights to hosts without a subject":    {rule: "rights come with their feature, and not without", kind: "CustomResourceDefinition", path: []string{"metadata", "name"}, value: "other"},
		"a feature without its rights":         {rule: "rights come with their feature, and not without", kind: "ClusterRoleBinding", path: []string{"roleRef", "name"}, value: "other"},
		"leases in a namespace that is none":   {rule: "rights come with their feature, and not without", kind: "Namespace", path: []string{"metadata", "name"}, value: "other"},
		"a role that deletes all at once":      {rule: "roles have no wildcards and delete only what they need to", kind: "Role", change: inRules("verbs", "deletecollection")},
		"a Role that is bound and not there":   {rule: "every subject of a binding exists", kind: "RoleBinding", path: []string{"roleRef", "name"}, value: "admin"},
		"a budget for other pods":              {rule: "selectors select the manager", kind: "PodDisruptionBudget", path: []string{"spec", "selector", "matchLabels"}, value: map[string]any{"app": "a"}},
		"a Service for other pods":             {rule: "selectors select the manager", kind: "Service", path: []string{"spec", "selector"}, value: map[string]any{"app": "a"}},
		"a certificate for other names":        {rule: "webhooks are answered, and their certificates can be verified", kind: "Certificate", path: []string{"spec", "dnsNames"}, value: []any{"localhost"}},
		"a secret that is not mounted":         {rule: "webhooks are answered, and their certificates can be verified", kind: "Certificate", path: []string{"spec", "secretName"}, value: "other"},
		"no CA for the webhooks":               {rule: "webhooks are answered, and their certificates can be verified", kind: "MutatingWebhookConfiguration", path: []string{"metadata", "annotations"}},
		"a webhook for a kind of others":       {rule: "webhooks are answered, and their certificates can be verified", kind: "ValidatingWebhookConfiguration", change: ofWebhook("machinehealthchecks", "CREATE")},
		"a webhook for remediations":           {rule: "no webhook blocks the end of a remediation", kind: "ValidatingWebhookConfiguration", change: ofWebhook("hostremediations", "UPDATE")},
		"a deletion that has to be answered":   {rule: "objects can be deleted without a webhook's answer", kind: "ValidatingWebhookConfiguration", change: failing},
		"a finalizer that stays for an answer": {rule: "objects can be deleted without a webhook's answer", kind: "MutatingWebhookConfiguration", change: unconditional},
		"versions without a conversion":        {rule: "kinds of several versions are converted", kind: "CustomResourceDefinition", path: []string{"spec", "conversion"}},
		"a contract without a version":         {rule: "Cluster API finds the versions of its contract", kind: "CustomResourceDefinition", path: []string{"metadata", "labels"}},
		"a memory that any client may write":   {rule: "what kubemend remembers is protected", kind: "ValidatingAdmissionPolicy", path: []string{"spec", "variables"}},
		"a policy that is not bound":           {rule: "what kubemend remembers is protected", kind: "ValidatingAdmissionPolicyBinding", path: []string{"spec", "policyName"}, value: "other"},
		"kinds that clusterctl does not see":   {rule: "clusterctl discovers the kinds that move", kind: "CustomResourceDefinition", path: []string{"metadata", "labels"}},
		"templates that stay when all moves":   {rule: "templates move with their cluster", kind: "CustomResourceDefinition", path: []string{"metadata", "labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := standalone(t)
			for _, o := range ofKind(all, row.kind) {
				switch {
				case row.change != nil:
					row.change(o)
				case row.value == nil:
					unstructured.RemoveNestedField(o.Object, row.path...)
				default:
					if err := unstructured.SetNestedField(o.Object, row.value, row.path...); err != nil {
						t.Fatal(err)
					}
				}
			}
			if check := rules[row.rule]; len(check(t, all)) == 0 {
				t.Error("the rule does not notice")
			}
		})
	}
}

func podPath(field string) []string { return []string{"spec", "template", "spec", field} }

func inManager(field string, value any) func(*object) {
	return func(o *object) {
		containers, _, _ := unstructured.NestedSlice(o.Object, podPath("containers")...)
		containers[0].(map[string]any)[field] = value
		_ = unstructured.SetNestedSlice(o.Object, containers, podPath("containers")...)
	}
}

// inRules adds a word to the first rule of a role; one that collects the rules of others has none.
func inRules(field, word string) func(*object) {
	return func(o *object) {
		rules, _, _ := unstructured.NestedSlice(o.Object, "rules")
		if len(rules) == 0 {
			return
		}
		rule := rules[0].(map[string]any)
		rule[field] = append(rule[field].([]any), word)
		_ = unstructured.SetNestedSlice(o.Object, rules, "rules")
	}
}

func ofWebhook(resource, operation string) func(*object) {
	return func(o *object) {
		hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		hooks[0].(map[string]any)["rules"] = []any{map[string]any{
			"apiGroups": []any{"cluster.x-k8s.io"}, "apiVersions": []any{"*"}, "resources": []any{resource}, "operations": []any{operation},
		}}
		_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	}
}

// failing makes every webhook one without whose answer nothing goes on, unconditional one that is always asked.
func failing(o *object) { eachWebhook(o, func(hook map[string]any) { hook["failurePolicy"] = "Fail" }) }

func unconditional(o *object) {
	eachWebhook(o, func(hook map[string]any) { delete(hook, "matchConditions") })
}

func eachWebhook(o *object, change func(map[string]any)) {
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for i := range hooks {
		change(hooks[i].(map[string]any))
	}
	_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// What CAPM3 and medik8s' operator bring along is theirs, CRDs and webhooks.
func TestTheDefaultPackageInstallsNoKindsOfOtherProjects(t *testing.T) {
	theirs := func(o *object) bool {
		return strings.Contains(o.GetName(), "metal3") || strings.Contains(o.GetName(), "medik8s") || o.GetKind() == "ValidatingWebhookConfiguration"
	}
	if !slices.ContainsFunc(standalone(t), func(o object) bool { return theirs(&o) }) {
		t.Error("standalone has nothing of theirs either")
	}
	var kinds []string
	for _, o := range beside(t) {
		if theirs(&o) {
			t.Errorf("%s is not ours", id(&o))
		}
		if o.GetKind() == "CustomResourceDefinition" {
			kinds = append(kinds, o.GetName())
		}
	}
	if diff := cmp.Diff([]string{"hostremediations.kubemend.io", "hostremediationtemplates.kubemend.io", "remediationrecords.kubemend.io"}, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// clusterctl and config/default leave the kind to medik8s' operator. Where that is not, the kind comes by itself, as config/standalone has it.
func TestTheKindOfNodeHealthChecksIsWhatDefaultLeavesOut(t *testing.T) {
	left := map[string]object{}
	for _, o := range standalone(t) {
		if !strings.Contains(o.GetName(), "metal3") {
			left[id(&o)] = o
		}
	}
	for _, o := range beside(t) {
		delete(left, id(&o))
	}
	if len(left) != 9 { // the definition, who checks what is created, and three roles with what binds them and the namespace of one
		t.Errorf("default leaves out %v", slices.Sorted(maps.Keys(left)))
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(left)), ids(objects(t, kustomized(t, "node-health-checks")))); diff != "" {
		t.Errorf("objects (-left out +config/node-health-checks):\n%s", diff)
	}
	for _, o := range objects(t, kustomized(t, "node-health-checks")) {
		if diff := cmp.Diff(left[id(&o)], o); diff != "" {
			t.Errorf("%s (-standalone +config/node-health-checks):\n%s", id(&o), diff)
		}
	}
}

func ids(all []object) []string {
	var found []string
	for i := range all {
		found = append(found, id(&all[i]))
	}
	slices.Sort(found)
	return found
}

// All else is the same, so a change from one to the other changes nothing but kinds.
func TestStandaloneIsTheDefaultAndTheKindsOfOthers(t *testing.T) {
	alone := standalone(t)
	for _, o := range beside(t) {
		i := slices.IndexFunc(alone, func(other object) bool { return id(&other) == id(&o) })
		if i < 0 {
			t.Errorf("%s is not in standalone", id(&o))
		} else if diff := cmp.Diff(o, alone[i]); diff != "" && o.GetKind() != "MutatingWebhookConfiguration" {
			t.Errorf("%s (-default +standalone):\n%s", id(&o), diff)
		}
	}
}

// A user who sets no variable gets what `kubectl apply -k config/default` gives.
func TestTheVariablesOfClusterctlHaveTheDefaultsOfTheProgram(t *testing.T) {
	plain, filled := beside(t), provider(t)
	_, want := manager(t, plain)
	_, got := manager(t, filled)
	known := programFlags(t)
	for flag, value := range flags(got) {
		if reference, is := strings.CutPrefix(value, "$("); is {
			value = environment(t, got, strings.TrimSuffix(reference, ")"))
		}
		expected, set := flags(want)[flag]
		if !set {
			expected = known[flag]
		}
		if flag == "feature-gates" {
			expected = "HostRemediation=true,NodeHealthCheck=true,WarmStandby=false"
		}
		if !sameValue(expected, value) {
			t.Errorf("--%s is %q, want %q", flag, value, expected)
		}
	}
	for flag := range flags(want) {
		if _, set := flags(got)[flag]; !set {
			t.Errorf("--%s is not set", flag)
		}
	}
	got.Args, want.Args = nil, nil
	got.Env = slices.DeleteFunc(got.Env, func(e corev1.EnvVar) bool { return strings.HasPrefix(e.Name, "KUBEMEND_") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the container (-default +clusterctl):\n%s", diff)
	}
	others := func(o object) bool { return o.GetKind() == "Deployment" }
	if diff := cmp.Diff(slices.DeleteFunc(plain, others), slices.DeleteFunc(filled, others)); diff != "" {
		t.Errorf("the other objects (-default +clusterctl):\n%s", diff)
	}
}

func environment(t *testing.T, c *corev1.Container, name string) string {
	t.Helper()
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	t.Errorf("the container has no variable %s", name)
	return ""
}

// sameValue also knows that 10m is 10m0s.
func sameValue(a, b string) bool {
	left, err := time.ParseDuration(a)
	right, another := time.ParseDuration(b)
	return a == b || err == nil && another == nil && left == right
}

func TestTheVariablesOfClusterctlReachTheManager(t *testing.T) {
	manifest := kustomized(t, "clusterctl")
	const template = "SelfNodeRemediationTemplate.v1alpha1.self-node-remediation.medik8s.io/medik8s/automatic"
	all := objects(t, substituted(t, manifest, map[string]string{
		"KUBEMEND_WATCH_FILTER": "shard-1", "KUBEMEND_NAMESPACE": "fleet", "KUBEMEND_LOG_LEVEL": "4", "KUBEMEND_WARM_STANDBY": "true",
		"KUBEMEND_DEFAULT_NODE_HEALTH_CHECK_TEMPLATE": template,
	}))
	_, c := manager(t, all)
	want := map[string]string{"v": "4", "feature-gates": "HostRemediation=true,NodeHealthCheck=true,WarmStandby=true"}
	for flag, value := range want {
		if got := flags(c)[flag]; got != value {
			t.Errorf("--%s is %q, want %q", flag, got, value)
		}
	}
	for name, row := range map[string]struct{ flag, value string }{
		"KUBEMEND_WATCH_FILTER":                       {"watch-filter", "shard-1"},
		"KUBEMEND_NAMESPACE":                          {"namespace", "fleet"},
		"KUBEMEND_DEFAULT_NODE_HEALTH_CHECK_TEMPLATE": {"default-node-health-check-template", template},
	} {
		if got := environment(t, c, name); got != row.value || flags(c)[row.flag] != "$("+name+")" {
			t.Errorf("--%s is %q with %s=%q, want %q", row.flag, flags(c)[row.flag], name, got, row.value)
		}
	}
}

// clusterctl reads the contract from the metadata of the release, and the settings say where its local repository is made from.
func TestTheClusterctlSettingsMatchTheProvider(t *testing.T) {
	var settings struct {
		Name   string `json:"name"`
		Config struct {
			ComponentsFile string `json:"componentsFile"`
			ConfigFolder   string `json:"configFolder"`
			NextVersion    string `json:"nextVersion"`
		} `json:"config"`
	}
	if err := json.Unmarshal(read(t, "clusterctl-settings.json"), &settings); err != nil {
		t.Fatal(err)
	}
	if got := ofKind(provider(t), "Namespace")[0].GetLabels()["cluster.x-k8s.io/provider"]; got != settings.Name {
		t.Errorf("the provider is %q in the manifests, and %q in the settings", got, settings.Name)
	}
	if c := settings.Config; c.ComponentsFile != "addon-components.yaml" || c.ConfigFolder != "config/clusterctl" {
		t.Errorf("made from %s, and named %s", c.ConfigFolder, c.ComponentsFile)
	}
	series, _, _ := unstructured.NestedSlice(objects(t, read(t, "metadata.yaml"))[0].Object, "releaseSeries")
	last := series[len(series)-1].(map[string]any)
	if next := settings.Config.NextVersion; next != fmt.Sprintf("v%v.%v.99", last["major"], last["minor"]) {
		t.Errorf("the next version is %s, of no series: %v", next, series)
	}
	if last["contract"] != "v1beta2" {
		t.Errorf("the contract is %v, and the kinds' v1beta2", last["contract"])
	}
}
