package nodehealthcheck

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// The groups of OpenShift that are looked at where they are installed.
const (
	openshiftConfig  = "config.openshift.io"
	openshiftMachine = "machine.openshift.io"
)

var (
	clusterVersions = schema.GroupVersionKind{Group: openshiftConfig, Version: "v1", Kind: "ClusterVersion"}
	machineChecks   = schema.GroupVersionKind{Group: openshiftMachine, Version: "v1beta1", Kind: "MachineHealthCheck"}
)

// RBAC for what is OpenShift's; of its Machines see openshiftMachine.
// +kubebuilder:rbac:groups=config.openshift.io,resources=clusterversions,verbs=list;watch
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinehealthchecks,verbs=list;watch

// installed reports whether there is a CustomResourceDefinition of that name.
func (r *Reconciler) installed(ctx context.Context, crd string) (bool, error) {
	if r.Installed == nil {
		return false, nil
	}
	return r.Installed(ctx, crd)
}

// all returns the objects of a kind of OpenShift; none if it is not installed. It is false if they were not read yet.
func (r *Reconciler) all(ctx context.Context, crd string, kind schema.GroupVersionKind) ([]unstructured.Unstructured, bool, error) {
	there, err := r.installed(ctx, crd)
	if err != nil || !there {
		return nil, true, err
	}
	ready, err := r.Kinds.Ready(ctx, kind)
	if err != nil || !ready {
		return nil, ready, err
	}
	list, err := r.list(ctx, kind)
	return list, true, err
}

// observeConflict looks for MachineHealthChecks of OpenShift. The one that it brings along, for machines that are about to be terminated,
// is left its nodes; any other one disables the check, since it may act on the same nodes. (medik8s; seed 001.)
func (r *Reconciler) observeConflict(ctx context.Context, w *observed) error {
	checks, ready, err := r.all(ctx, "machinehealthchecks."+openshiftMachine, machineChecks)
	if err != nil {
		return fmt.Errorf("look for conflicting MachineHealthChecks: %w", err)
	}
	w.awaits(machineChecks, ready)
	switch {
	case len(checks) == 0:
	case len(checks) == 1 && byDefault(&checks[0]):
		w.facts.TerminatingLeft = true
	default:
		w.facts.Disabled = nodes.Disabled{Reason: nhcv1.ConflictReason, Message: explain.ConflictMessage}
	}
	return nil
}

// machineCheckSpec is the spec of a MachineHealthCheck of OpenShift.
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
		Selector:            metav1.LabelSelector{MatchLabels: map[string]string{openshiftMachine + "/interruptible-instance": ""}},
		UnhealthyConditions: []machineCheckCondition{{Type: "Terminating", Status: string(corev1.ConditionTrue)}},
		MaxUnhealthy:        ptr.To(intstr.FromString("100%")),
	}
}

// byDefault reports whether check is the one that OpenShift brings along, as it comes: one that was changed in anything is one more that somebody
// wants something of. (medik8s takes any one for it whose only condition is of type Terminating.)
func byDefault(check *unstructured.Unstructured) bool {
	fields, _, err := unstructured.NestedMap(check.Object, "spec")
	if err != nil || check.GetNamespace() != machineAPI || check.GetName() != terminationHandler {
		return false
	}
	var spec machineCheckSpec
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec)
	return err == nil && equality.Semantic.DeepEqual(spec, terminationHandlerSpec())
}

// openshiftMachineAnnotation on a node names its Machine, as namespace/name. (OpenShift.)
const openshiftMachineAnnotation = openshiftMachine + "/machine"

var openshiftMachines = schema.GroupVersionKind{Group: openshiftMachine, Version: "v1beta1", Kind: "Machine"}

func cutKey(s string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(s, "/")
	return namespace, name, ok && namespace != "" && name != ""
}

// openshiftMachineOf is the Machine of OpenShift that node names.
func openshiftMachineOf(node *corev1.Node) (namespace, name string, ok bool) {
	if node == nil {
		return "", "", false
	}
	return cutKey(node.Annotations[openshiftMachineAnnotation])
}

// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get

// openshiftMachine is the Machine of OpenShift that the node names in an annotation, as the owner of a request. Where a request is about nothing
// else, that it is not there is an error.
func (r *Reconciler) openshiftMachine(ctx context.Context, t *nodes.Template, n *nodes.Node) (*metav1.OwnerReference, error) {
	key := client.ObjectKey{Namespace: n.OpenShift.Namespace, Name: n.OpenShift.Name}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(openshiftMachines)
	err := r.Live.Get(ctx, key, obj)
	if remediationrequest.Missing(err) && !t.OfMachines {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Machine %s of node %s: %w", key, n.Name, err)
	}
	return &metav1.OwnerReference{APIVersion: openshiftMachines.GroupVersion().String(), Kind: openshiftMachines.Kind, Name: key.Name, UID: obj.UID}, nil
}
