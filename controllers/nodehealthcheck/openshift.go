package nodehealthcheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// The groups of OpenShift's kinds.
const (
	ConfigGroup  = "config.openshift.io"
	machineGroup = "machine.openshift.io"
)

// The kinds of OpenShift that are read.
var (
	ClusterVersions     = schema.GroupVersionKind{Group: ConfigGroup, Version: "v1", Kind: "ClusterVersion"}
	MachineHealthChecks = schema.GroupVersionKind{Group: machineGroup, Version: "v1beta1", Kind: "MachineHealthCheck"}
	OpenShiftMachines   = schema.GroupVersionKind{Group: machineGroup, Version: "v1beta1", Kind: "Machine"}
)

// RBAC for what is OpenShift's.
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get

// Cluster is a cluster that may be OpenShift's.
type openshiftCluster struct {
	Live client.Reader
	// Installed reports whether there is a CustomResourceDefinition of that name; nil if there is none of OpenShift's.
	Installed func(ctx context.Context, crd string) (bool, error)
	// Readable reports whether the objects of a kind can be read, and List returns them.
	Readable func(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	List     func(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error)
}

func (c openshiftCluster) installed(ctx context.Context, crd string) (bool, error) {
	if c.Installed == nil {
		return false, nil
	}
	return c.Installed(ctx, crd)
}

// all returns the objects of a kind; none if it is not installed. It is false if they were not read yet.
func (c openshiftCluster) all(ctx context.Context, crd string, kind schema.GroupVersionKind) ([]unstructured.Unstructured, bool, error) {
	there, err := c.installed(ctx, crd)
	if err != nil || !there {
		return nil, true, err
	}
	ready, err := c.Readable(ctx, kind)
	if err != nil || !ready {
		return nil, ready, err
	}
	list, err := c.List(ctx, kind)
	return list, true, err
}

// Checks says what there is of MachineHealthChecks of OpenShift.
type openshiftChecks struct {
	// Default says that the only check is the one that OpenShift ships for machines that are being terminated, Custom that there is any
	// other.
	Default, Custom bool
}

// MachineChecks looks for MachineHealthChecks of OpenShift. It is false if they were not read yet.
func (c openshiftCluster) MachineChecks(ctx context.Context) (openshiftChecks, bool, error) {
	checks, ready, err := c.all(ctx, "machinehealthchecks."+machineGroup, MachineHealthChecks)
	if err != nil || len(checks) == 0 {
		return openshiftChecks{}, ready, err
	}
	shipped := len(checks) == 1 && byDefault(&checks[0])
	return openshiftChecks{Default: shipped, Custom: !shipped}, ready, nil
}

// Upgrade finds out whether OpenShift is upgrading the cluster. It is false if that was not read yet.
func (c openshiftCluster) Upgrade(ctx context.Context) (Upgrade, bool, error) {
	versions, ready, err := c.all(ctx, "clusterversions."+ConfigGroup, ClusterVersions)
	for i := range versions {
		if escalation.Condition(&versions[i], "Progressing")["status"] == string(metav1.ConditionTrue) {
			return Upgrade{Progressing: versions[i].GetName()}, ready, err
		}
	}
	return Upgrade{Unread: err != nil}, ready, err
}

type machineCheckSpec struct {
	Selector            metav1.LabelSelector    `json:"selector"`
	UnhealthyConditions []machineCheckCondition `json:"unhealthyConditions"`
	MaxUnhealthy        *intstr.IntOrString     `json:"maxUnhealthy,omitempty"`
	NodeStartupTimeout  metav1.Duration         `json:"nodeStartupTimeout,omitempty"`
	RemediationTemplate *corev1.ObjectReference `json:"remediationTemplate,omitempty"`
}

type machineCheckCondition struct {
	Type    string          `json:"type"`
	Status  string          `json:"status"`
	Timeout metav1.Duration `json:"timeout"`
}

// The MachineHealthCheck that OpenShift brings along. (github.com/openshift/machine-api-operator,
// install/0000_30_machine-api-operator_13_machinehealthcheck.yaml, which is the same since March 2021.)
const (
	machineAPI         = "openshift-machine-api"
	terminationHandler = "machine-api-termination-handler"
)

func terminationHandlerSpec() machineCheckSpec {
	return machineCheckSpec{
		Selector:            metav1.LabelSelector{MatchLabels: map[string]string{machineGroup + "/interruptible-instance": ""}},
		UnhealthyConditions: []machineCheckCondition{{Type: "Terminating", Status: string(corev1.ConditionTrue)}},
		MaxUnhealthy:        ptr.To(intstr.FromString("100%")),
	}
}

// byDefault reports whether check is the one that OpenShift brings along, as it comes: one that was changed in anything is one more that
// somebody wants something of. (medik8s takes any one for it whose only condition is of type Terminating.)
func byDefault(check *unstructured.Unstructured) bool {
	fields, _, err := unstructured.NestedMap(check.Object, "spec")
	if err != nil || check.GetNamespace() != machineAPI || check.GetName() != terminationHandler {
		return false
	}
	var spec machineCheckSpec
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec)
	return err == nil && equality.Semantic.DeepEqual(spec, terminationHandlerSpec())
}

// Machine reads the Machine that n names, as the owner of a request.
func (c openshiftCluster) Machine(ctx context.Context, n *Node) (*metav1.OwnerReference, error) {
	ref := n.OpenShift()
	key, obj := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(OpenShiftMachines)
	if err := c.Live.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("read Machine %s of node %s: %w", key, n.Name, err)
	}
	return &metav1.OwnerReference{
		APIVersion: OpenShiftMachines.GroupVersion().String(), Kind: OpenShiftMachines.Kind, Name: key.Name, UID: obj.UID,
	}, nil
}

// EtcdNamespace is where OpenShift runs etcd.
const EtcdNamespace = "openshift-etcd"

// Etcd finds out what there is of OpenShift's etcd.
func (c openshiftCluster) Etcd(ctx context.Context) (Etcd, error) {
	there, err := c.installed(ctx, "clusterversions."+ConfigGroup)
	if err == nil && !there {
		return Etcd{}, nil
	}
	var etcd Etcd
	if err == nil {
		etcd, err = c.readEtcd(ctx)
	}
	if err != nil {
		return Etcd{There: true, Unread: true}, err
	}
	return etcd, nil
}

// RBAC for OpenShift's etcd. Its namespace is there on OpenShift alone, so no package can have a Role in it.
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list
// +kubebuilder:rbac:groups=core,resources=pods,verbs=list

// readEtcd reads live: what was true a moment ago is not enough.
func (c openshiftCluster) readEtcd(ctx context.Context) (Etcd, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := c.Live.List(ctx, budgets, client.InNamespace(EtcdNamespace)); err != nil {
		return Etcd{}, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", EtcdNamespace, err)
	}
	etcd := Etcd{There: true, Budgets: len(budgets.Items)}
	if etcd.Budgets != 1 {
		return etcd, nil
	}
	budget := &budgets.Items[0]
	etcd.Budget, etcd.Allows = EtcdNamespace+"/"+budget.Name, budget.Status.DisruptionsAllowed >= 1
	if etcd.Allows {
		return etcd, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return Etcd{}, fmt.Errorf("read the selector of PodDisruptionBudget %s: %w", etcd.Budget, err)
	}
	guards := &corev1.PodList{}
	if err := c.Live.List(ctx, guards, client.InNamespace(EtcdNamespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return Etcd{}, fmt.Errorf("list the guard pods of etcd: %w", err)
	}
	etcd.Guards = map[string]string{}
	for i := range guards.Items {
		if pod := &guards.Items[i]; maybeReady(pod) {
			etcd.Guards[pod.Spec.NodeName] = pod.Name
		}
	}
	return etcd, nil
}

// maybeReady reports whether the Ready condition of pod is True or Unknown.
func maybeReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status != corev1.ConditionFalse
		}
	}
	return false
}
