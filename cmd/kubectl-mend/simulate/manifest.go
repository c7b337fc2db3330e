package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/resource"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const (
	machineCheckKind = "MachineHealthCheck"
	nodeCheckKind    = "NodeHealthCheck"
	policyKind       = "RemediationPolicy"
	overrideKind     = "RemediationOverride"
)

// Manifest has the objects to apply: checks, their templates, policies and overrides.
type Manifest []client.Object

// Read reads documents of YAML or JSON. It sets the namespace of objects that have none. Errors have the name of the file, the object and
// the field that is wrong.
func Read(from io.Reader, name, namespace string) (Manifest, error) {
	infos, err := resource.NewLocalBuilder().Unstructured().Stream(from, name).Flatten().Do().Infos()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	m := make(Manifest, 0, len(infos))
	for _, info := range infos {
		tree := info.Object.(*unstructured.Unstructured) // because of Unstructured() above
		obj, err := decode(tree)
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", name, tree.GetKind(), tree.GetName(), err)
		}
		if _, everywhere := obj.(*nhcv1.NodeHealthCheck); everywhere {
			obj.SetNamespace("")
		} else if obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
		m = append(m, obj)
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s: there is nothing in it", name)
	}
	return m, nil
}

// decode returns an object as its Go type, or an error if it has an unknown field. A template may be of an unknown kind.
func decode(tree *unstructured.Unstructured) (client.Object, error) {
	gvk := tree.GroupVersionKind()
	named, template := strings.CutSuffix(gvk.Kind, remediationrequest.TemplateSuffix)
	check := slices.Contains([]schema.GroupKind{
		{Group: clusterv1.GroupVersion.Group, Kind: machineCheckKind}, {Group: nhcv1.GroupVersion.Group, Kind: nodeCheckKind},
		{Group: mendv1.GroupVersion.Group, Kind: policyKind}, {Group: mendv1.GroupVersion.Group, Kind: overrideKind},
	}, gvk.GroupKind())
	switch {
	case tree.GetName() == "":
		return nil, errors.New("metadata.name is missing")
	case !check && !(template && named != "" && gvk.Group != ""):
		return nil, errors.New("expected a MachineHealthCheck, a NodeHealthCheck, a remediation template, " +
			"a RemediationPolicy, or a RemediationOverride")
	case check && !snapshot.Scheme.Recognizes(gvk):
		return nil, fmt.Errorf("version %s is not known here", gvk.Version)
	case !snapshot.Scheme.Recognizes(gvk):
		return tree, nil
	}
	data, err := tree.MarshalJSON()
	if err != nil {
		return nil, err
	}
	obj, _, err := serializer.NewCodecFactory(snapshot.Scheme, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		err = errors.Join(strict.Errors()...)
	}
	if err != nil {
		return nil, err
	}
	return obj.(client.Object), nil // true for all kinds that may be in a manifest
}

// JudgesNodes reports whether m has a NodeHealthCheck.
func (m Manifest) JudgesNodes() bool {
	return slices.ContainsFunc(m, func(obj client.Object) bool { return kindOf(obj) == nodeCheckKind })
}

// Elsewhere returns the namespace of the first MachineHealthCheck that is not in the given namespace; empty if there is none.
func (m Manifest) Elsewhere(namespace string) string {
	for _, obj := range m {
		if kindOf(obj) == machineCheckKind && obj.GetNamespace() != namespace {
			return obj.GetNamespace()
		}
	}
	return ""
}

func kindOf(obj client.Object) string { return obj.GetObjectKind().GroupVersionKind().Kind }

// refOf returns a reference to an object of the manifest or of the snapshot, which have their kinds.
func refOf(obj client.Object) explain.Ref {
	return explain.Ref{Kind: kindOf(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// apply applies the manifest to the snapshot, and installs the kinds of templates and of their requests. It does not validate the objects;
// kubectl apply --dry-run=server does that.
func (s *simulation) apply() error {
	for _, obj := range s.Manifest {
		key := client.ObjectKeyFromObject(obj)
		switch check := obj.(type) {
		case *clusterv1.MachineHealthCheck:
			there := cmp.Or(snapshot.One[clusterv1.MachineHealthCheck](s.snapshot, key), &clusterv1.MachineHealthCheck{})
			check.Status = there.Status
			replace(&there.ObjectMeta, &check.ObjectMeta, s.From)
			if _, annotated := check.Annotations[clusterv1.PausedAnnotation]; !annotated { // simulate it as claimed
				metav1.SetMetaDataAnnotation(&check.ObjectMeta, clusterv1.PausedAnnotation, mendv1.Claim)
				s.assume(fmt.Sprintf("%s is claimed: without the annotation %s: %s Cluster API core acts on it",
					refOf(check), clusterv1.PausedAnnotation, mendv1.Claim))
			}
		case *nhcv1.NodeHealthCheck:
			there := cmp.Or(snapshot.One[nhcv1.NodeHealthCheck](s.snapshot, key), &nhcv1.NodeHealthCheck{})
			check.Status = there.Status
			replace(&there.ObjectMeta, &check.ObjectMeta, s.From)
			setDefaults(&check.Spec)
		case *mendv1.RemediationPolicy, *mendv1.RemediationOverride:
			obj.SetCreationTimestamp(metav1.NewTime(s.From))
		default:
			if template := obj.GetObjectKind().GroupVersionKind(); remediationrequest.Refusal(template) == nil {
				s.snapshot.Install(template, remediationrequest.KindOf(template))
			}
		}
		if err := s.snapshot.Add(obj); err != nil {
			return fmt.Errorf("apply %s: %w", refOf(obj), err)
		}
	}
	return nil
}

// replace sets the metadata that a check has after kubectl apply. An existing check keeps its UID, its age, and the labels and annotations
// that the manifest does not have. (kubectl apply would remove those that it has set before, which a snapshot does not know.)
func replace(before, check *metav1.ObjectMeta, now time.Time) {
	merged := before.DeepCopy()
	if merged.Namespace, merged.Name = check.Namespace, check.Name; merged.UID == "" {
		merged.CreationTimestamp = metav1.NewTime(now)
	}
	merged.Labels, merged.Annotations = labels.Merge(before.Labels, check.Labels), labels.Merge(before.Annotations, check.Annotations)
	merged.ResourceVersion, merged.Generation = "", before.Generation+1
	*check = *merged
}

// setDefaults sets the defaults of the CustomResourceDefinition.
func setDefaults(spec *nhcv1.NodeHealthCheckSpec) {
	if spec.UnhealthyConditions != nil {
		return
	}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		spec.UnhealthyConditions = append(spec.UnhealthyConditions, nhcv1.UnhealthyCondition{
			Type: corev1.NodeReady, Status: status, Duration: metav1.Duration{Duration: 5 * time.Minute},
		})
	}
}

// setUpPolicies creates the ledger, which gives places to remediations, and the policy controller, which fills it. It returns an error if a
// policy or an override of the manifest would have no effect.
func (s *simulation) setUpPolicies(ctx context.Context) error {
	s.snapshot.Install(mendv1.GroupVersion.WithKind(policyKind), mendv1.GroupVersion.WithKind(overrideKind))
	everywhere := s.asker.Managers.PolicyNamespace()
	for _, obj := range s.Manifest {
		why := ""
		switch obj := obj.(type) {
		case *mendv1.RemediationPolicy:
			why = policy.Read(obj, everywhere).Invalid
		case *mendv1.RemediationOverride:
			if _, active := policy.ReadOverride(obj, everywhere, s.From); active.Status != metav1.ConditionTrue {
				why = strings.TrimSuffix("it would have no effect ("+active.Reason+"): "+active.Message, ": ")
			}
		}
		if why != "" {
			return fmt.Errorf("%s: %s", refOf(obj), why)
		}
	}
	for _, p := range snapshot.All[mendv1.RemediationPolicy](s.snapshot, "") {
		if err := policy.Read(p, everywhere).FindNamespaces(ctx, s.state); err != nil { // the user may not list Namespaces
			s.snapshot.Remove(mendv1.GroupVersion.WithKind(policyKind), client.ObjectKeyFromObject(p))
			s.assume(fmt.Sprintf("%s, which selects by Namespaces, is left out: %v", refOf(p), err))
		}
	}
	ledger := &policy.Ledger{Clock: s.clock, Installed: func(context.Context) bool { return false }}
	for _, kind := range []string{machineCheckKind, nodeCheckKind} {
		ledger.SetUp(kind, func() []reconcile.Request { return s.acting[kind] }, func(check reconcile.Request, in time.Duration) {
			ref := explain.Ref{Kind: kind, Namespace: check.Namespace, Name: check.Name}
			s.due[ref] = health.Earliest(s.due[ref], s.clock.Now().Add(in))
		})
	}
	s.policies = &policy.Reconciler{
		Client: s.state, Live: s.state, Ledger: ledger, Everywhere: everywhere, Ahead: func() time.Duration { return 0 },
	}
	return nil
}

// readPolicies updates the ledger with the policies and overrides of this moment, and with the open records. A remediation of a record that
// was under way at the beginning ends after Takes, like all others.
func (s *simulation) readPolicies(ctx context.Context) {
	if _, err := s.policies.Reconcile(ctx, rule.Ref{}); err != nil {
		s.assume("Not all RemediationPolicies and RemediationOverrides apply: " + err.Error())
	}
	if !s.policies.Ledger.Active(ctx) {
		return
	}
	s.assume("RemediationPolicies and RemediationOverrides in " + s.policies.Everywhere + " are for all namespaces, others for their own")
	records := &mendv1.RemediationRecordList{}
	_ = s.state.List(ctx, records, client.UnsafeDisableDeepCopy) // the snapshot remembers errors
	for i := range records.Items {
		s.policies.Ledger.Follow(&records.Items[i], s.clock.Now().Before(s.From.Add(s.Takes)))
	}
}
