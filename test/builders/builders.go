// Package builders creates the Cluster API objects from which tests, benchmarks and the demo start.
//
// Every function returns an object with defaults that work with test/rig and test/simulator; edits change it before it is returned. Only
// Apply talks to an API server.
package builders

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// KubernetesVersion is the Kubernetes version of the Machines.
const KubernetesVersion = "v1.36.3"

var infrastructure = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

// dataSecret is the name of a bootstrap Secret that nobody reads: a Machine that names one needs no bootstrap provider.
const dataSecret = "bootstrap"

// Namespace is a Namespace.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// ManagerBinding is the binding that makes kubectl mend trust the manager lease of a namespace.
func ManagerBinding(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: managerlease.ServiceAccount, Labels: managerlease.BindingLabels},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: managerlease.ClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.ServiceAccount}},
	}
}

// Cluster is a Cluster whose infrastructure is the Metal3Cluster of the same name and whose control plane consists of stand-alone machines.
// Its condition ControlPlaneInitialized becomes True when one of them has a node; core leaves status.initialization.controlPlaneInitialized
// empty.
func Cluster(namespace, name string, edits ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	return edited(&clusterv1.Cluster{
		TypeMeta:   typed("Cluster"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       clusterv1.ClusterSpec{InfrastructureRef: reference("Metal3Cluster", name)},
	}, edits)
}

// Metal3Cluster is the infrastructure of a Cluster.
func Metal3Cluster(cluster *clusterv1.Cluster) *unstructured.Unstructured {
	return metal3(cluster.Namespace, cluster.Name, "Metal3Cluster", cluster.Name)
}

// ControlPlaneMachine is a control-plane Machine that no controller would replace: its only owner is its Cluster.
func ControlPlaneMachine(cluster *clusterv1.Cluster, name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return edited(&clusterv1.Machine{
		TypeMeta: typed("Machine"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name, clusterv1.MachineControlPlaneLabel: ""},
		},
		Spec: machineSpec(cluster, reference("Metal3Machine", name)),
	}, edits)
}

// Worker is a Machine of the MachineSet "workers", which need not exist.
func Worker(cluster *clusterv1.Cluster, name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	machine := ControlPlaneMachine(cluster, name)
	delete(machine.Labels, clusterv1.MachineControlPlaneLabel)
	machine.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "workers", UID: "workers", Controller: ptr.To(true),
	}}
	return edited(machine, edits)
}

// Metal3Machine is the infrastructure of a stand-alone Machine.
func Metal3Machine(machine *clusterv1.Machine) *unstructured.Unstructured {
	return metal3(machine.Namespace, machine.Spec.ClusterName, "Metal3Machine", machine.Spec.InfrastructureRef.Name)
}

// MachineDeployment is a MachineDeployment of workers with the Metal3MachineTemplate of the same name.
func MachineDeployment(cluster *clusterv1.Cluster, name string, workers int32,
	edits ...func(*clusterv1.MachineDeployment)) *clusterv1.MachineDeployment {
	labels := map[string]string{
		clusterv1.ClusterNameLabel: cluster.Name, clusterv1.MachineDeploymentNameLabel: name,
	}
	return edited(&clusterv1.MachineDeployment{
		TypeMeta:   typed("MachineDeployment"),
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: cluster.Name,
			Replicas:    &workers,
			Selector:    metav1.LabelSelector{MatchLabels: labels},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
				Spec:       machineSpec(cluster, reference("Metal3MachineTemplate", name)),
			},
		},
	}, edits)
}

// Metal3MachineTemplate is the infrastructure template of a MachineDeployment.
func Metal3MachineTemplate(cluster *clusterv1.Cluster, name string) *unstructured.Unstructured {
	object := metal3(cluster.Namespace, cluster.Name, "Metal3MachineTemplate", name)
	object.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
	return object
}

// MachineHealthCheck selects all workers of a Cluster. A node is unhealthy after five minutes with Ready=False or Ready=Unknown.
func MachineHealthCheck(cluster *clusterv1.Cluster, name string,
	edits ...func(*clusterv1.MachineHealthCheck)) *clusterv1.MachineHealthCheck {
	const patience = 300
	return edited(&clusterv1.MachineHealthCheck{
		TypeMeta:   typed("MachineHealthCheck"),
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: cluster.Name,
			Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: clusterv1.MachineControlPlaneLabel, Operator: metav1.LabelSelectorOpDoesNotExist,
			}}},
			Checks: clusterv1.MachineHealthCheckChecks{
				UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](patience)},
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, TimeoutSeconds: ptr.To[int32](patience)},
				},
			},
		},
	}, edits)
}

// ControlPlane returns control-plane machines with their infrastructure, named <cluster>-cp-0 and so on.
func ControlPlane(cluster *clusterv1.Cluster, machines int) []client.Object {
	objects := make([]client.Object, 0, 2*machines)
	for n := range machines {
		machine := ControlPlaneMachine(cluster, fmt.Sprintf("%s-cp-%d", cluster.Name, n))
		objects = append(objects, Metal3Machine(machine), machine)
	}
	return objects
}

// Workers is a MachineDeployment with its template.
func Workers(cluster *clusterv1.Cluster, name string, workers int32, edits ...func(*clusterv1.MachineDeployment)) []client.Object {
	return []client.Object{Metal3MachineTemplate(cluster, name), MachineDeployment(cluster, name, workers, edits...)}
}

func machineSpec(cluster *clusterv1.Cluster, infra clusterv1.ContractVersionedObjectReference) clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		ClusterName:       cluster.Name,
		Version:           KubernetesVersion,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(dataSecret)},
		InfrastructureRef: infra,
	}
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: kind}
}

func reference(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: infrastructure.Group, Kind: kind, Name: name}
}

func metal3(namespace, cluster, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(infrastructure.WithKind(kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster})
	return object
}

func edited[T any](object T, edits []func(T)) T {
	for _, edit := range edits {
		edit(object)
	}
	return object
}

// ClaimedBy is the value of the paused annotation that makes Cluster API's own controller skip a MachineHealthCheck and kubemend act on it.
const ClaimedBy = "kubemend"

// Claimed gives a MachineHealthCheck to kubemend.
func Claimed(check *clusterv1.MachineHealthCheck) {
	if check.Annotations == nil {
		check.Annotations = map[string]string{}
	}
	check.Annotations[clusterv1.PausedAnnotation] = ClaimedBy
}

// RemediatedBy makes a MachineHealthCheck create remediation requests from a template instead of asking the owner of the machine.
func RemediatedBy(apiVersion, kind, name string) func(*clusterv1.MachineHealthCheck) {
	return func(check *clusterv1.MachineHealthCheck) {
		check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: apiVersion, Kind: kind, Name: name,
		}
	}
}

// Patience sets the timeout of all unhealthy node conditions of a MachineHealthCheck.
func Patience(d time.Duration) func(*clusterv1.MachineHealthCheck) {
	return func(check *clusterv1.MachineHealthCheck) {
		for i := range check.Spec.Checks.UnhealthyNodeConditions {
			check.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To(int32(d / time.Second))
		}
	}
}

// StartsWithin sets how long a machine may be without a node; 0 means forever.
func StartsWithin(d time.Duration) func(*clusterv1.MachineHealthCheck) {
	return func(check *clusterv1.MachineHealthCheck) {
		check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To(int32(d / time.Second))
	}
}

// LongTrue is a condition that has been True for an hour.
func LongTrue(kind string) metav1.Condition {
	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: since}
}

// Standing is the status of a Cluster whose infrastructure and control plane have been ready for an hour. It is for tests without the
// controllers that would write it.
func Standing() clusterv1.ClusterStatus {
	return clusterv1.ClusterStatus{
		Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true),
			ControlPlaneInitialized: ptr.To(true)},
		Conditions: []metav1.Condition{
			LongTrue(clusterv1.ClusterInfrastructureReadyCondition), LongTrue(clusterv1.ClusterControlPlaneInitializedCondition),
		},
	}
}

// Reports sets a condition of a node; it replaces the condition of that type.
func Reports(node *corev1.Node, condition corev1.NodeCondition) {
	same := func(c corev1.NodeCondition) bool { return c.Type == condition.Type }
	if i := slices.IndexFunc(node.Status.Conditions, same); i >= 0 {
		node.Status.Conditions[i] = condition
		return
	}
	node.Status.Conditions = append(node.Status.Conditions, condition)
}

// fieldOwner is the field manager of Apply.
const fieldOwner = client.FieldOwner("kubemend-builders")

// Apply creates or updates the objects by server-side apply, in this order, and writes the answer of the API server back into them. It
// leaves the status alone, and may be repeated.
//
// For the first object of a kind Apply is faster than Create: for two seconds after a kind is established the API server delays creations.
func Apply(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := apply(ctx, c, object); err != nil {
			return fmt.Errorf("apply %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

func apply(ctx context.Context, c client.Client, object client.Object) error {
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	wanted := &unstructured.Unstructured{Object: content}
	wanted.SetGroupVersionKind(kind)
	wanted.SetManagedFields(nil)
	wanted.SetResourceVersion("")
	wanted.SetUID("") // an object that was deleted in the meantime is created again
	unstructured.RemoveNestedField(wanted.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(wanted.Object, "metadata", "generation")
	unstructured.RemoveNestedField(wanted.Object, "status")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	if answer, ok := object.(*unstructured.Unstructured); ok {
		answer.Object = wanted.Object
		return nil
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, object)
}

// Template renders a file of templates/ as `clusterctl generate yaml` does, with only these variables. A variable that the template does
// not have is an error, because with a misspelt name the template would silently use its default.
func Template(file string, variables map[string]string) (*unstructured.Unstructured, error) {
	object, err := render(file, variables)
	if err != nil {
		return nil, fmt.Errorf("render template %s: %w", file, err)
	}
	return object, nil
}

func render(file string, variables map[string]string) (*unstructured.Unstructured, error) {
	path, err := templatePath(file)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	processor := yamlprocessor.NewSimpleProcessor()
	known, err := processor.GetVariables(content)
	if err != nil {
		return nil, err
	}
	for name := range variables {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("it has no variable %s, but %q", name, known)
		}
	}
	manifest, err := processor.Process(content, func(name string) (string, error) {
		if value, given := variables[name]; given {
			return value, nil
		}
		return "", errors.New("not given")
	})
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &object.Object); err != nil {
		return nil, err
	}
	return object, nil
}

// templatePath searches templates/ from the working folder upwards.
func templatePath(file string) (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(folder, "templates", file)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no folder templates/ with it, here or above")
		}
		folder = filepath.Dir(folder)
	}
}
