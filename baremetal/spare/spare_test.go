package spare

import (
	"slices"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// aSpare returns a host that CAPM3 could put a machine on.
func aSpare(name string, changes ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{}}}
	h.Status.Provisioning.State, h.Status.OperationalStatus = bmov1alpha1.StateAvailable, bmov1alpha1.OperationalStatusOK
	for _, change := range changes {
		change(h)
	}
	return h
}

func inState(s bmov1alpha1.ProvisioningState) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = s }
}

func consumedBy(apiVersion, kind string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) {
		h.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Name: "c"}
	}
}

func annotated(key, value string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) { h.Annotations[key] = value }
}

func labelled(key, value string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) { metav1.SetMetaDataLabel(&h.ObjectMeta, key, value) }
}

// The cases follow CAPM3's chooseHost one by one. Only the refusal of detached hosts is a rule of kubemend.
func TestWhichHostsAreFree(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*bmov1alpha1.BareMetalHost)
		free   bool
	}{
		"one that is available":                    {func(*bmov1alpha1.BareMetalHost) {}, true},
		"one that is ready, as it was called once": {inState(bmov1alpha1.StateReady), true},
		"not one that is being cleaned":            {inState(bmov1alpha1.StateDeprovisioning), false},
		"not one that is being prepared":           {inState(bmov1alpha1.StatePreparing), false},
		"not one that is provisioned":              {inState(bmov1alpha1.StateProvisioned), false},
		"not one that has no state yet":            {inState(bmov1alpha1.StateNone), false},
		"not one of a machine":                     {consumedBy(infrav1.GroupVersion.String(), "Metal3Machine"), false},
		"not one of somebody else":                 {consumedBy("v1", "ConfigMap"), false},
		"not one that is being deleted": {func(h *bmov1alpha1.BareMetalHost) {
			h.DeletionTimestamp = &metav1.Time{}
			*h.DeletionTimestamp = metav1.Now()
		}, false},
		"not one with an error":            {func(h *bmov1alpha1.BareMetalHost) { h.Status.ErrorMessage = "no route" }, false},
		"not one that is paused":           {annotated(bmov1alpha1.PausedAnnotation, ""), false},
		"not one that is marked unhealthy": {annotated(infrav1.UnhealthyAnnotation, ""), false},
		"not one with the older mark":      {annotated(infrav1.LegacyUnhealthyAnnotation, ""), false},
		"not one that is to be detached":   {annotated(bmov1alpha1.DetachedAnnotation, ""), false},
		"not one that is detached":         {func(h *bmov1alpha1.BareMetalHost) { h.Status.OperationalStatus = bmov1alpha1.OperationalStatusDetached }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := aSpare("h", tc.change)
			must.Is(t, tc.free, Free(h), "free:")
			must.Is(t, tc.free, FitsTheSame(aSpare("h"), h), "it fits the same as a free one:")
		})
	}
	used := consumedBy(infrav1.GroupVersion.String(), "Metal3Machine")
	for _, state := range []bmov1alpha1.ProvisioningState{bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned} {
		changed := aSpare("h", used, inState(state))
		changed.Status.ErrorMessage, changed.Status.PoweredOn, changed.Status.ErrorCount = "no route", true, 3
		must.Is(t, true, FitsTheSame(aSpare("h", used), changed), "a host in use fits the same, whatever BMO reports of it:")
	}
	if FitsTheSame(aSpare("h"), aSpare("h", labelled("pool", "a"))) {
		t.Error("with another label it fits the same machines")
	}
}

func TestWhichHostsFitAMachine(t *testing.T) {
	const reuse = "infrastructure.cluster.x-k8s.io/node-reuse"
	hosts := []*bmov1alpha1.BareMetalHost{
		aSpare("a", labelled("pool", "workers")), aSpare("b", labelled("pool", "storage")), aSpare("c"),
		aSpare("taken", labelled("pool", "workers"), consumedBy(infrav1.GroupVersion.String(), "Metal3Machine")),
		aSpare("domain", labelled("infrastructure.cluster.x-k8s.io/failure-domain", "rack-1")),
	}
	kept := aSpare("kept", labelled(reuse, "md-workers"), consumedBy(clusterv1.GroupVersion.String(), "Cluster"))
	cleaning := aSpare("cleaning", labelled(reuse, "md-workers"), inState(bmov1alpha1.StateDeprovisioning))
	selector := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		must.Do(t, err)
		return s
	}
	for name, tc := range map[string]struct {
		wants Wants
		more  []*bmov1alpha1.BareMetalHost
		want  []string
	}{
		"without a selector all that are free":                   {Any, nil, []string{"a", "b", "c", "domain"}},
		"with one those that have the labels":                    {Wants{Selector: selector("pool=workers")}, nil, []string{"a"}},
		"also by what a label is not":                            {Wants{Selector: selector("pool notin (workers)")}, nil, []string{"b", "c", "domain"}},
		"none if none has them":                                  {Wants{Selector: selector("pool=gpu")}, nil, nil},
		"not one that is kept for another owner":                 {Wants{Selector: selector("pool=workers"), ReusedBy: "cp-plane"}, []*bmov1alpha1.BareMetalHost{kept}, []string{"a"}},
		"nor for one where the machine's is not known":           {Wants{Selector: selector("pool=workers")}, []*bmov1alpha1.BareMetalHost{kept}, []string{"a"}},
		"those that are kept for its owner go before all others": {Wants{Selector: labels.Everything(), ReusedBy: "md-workers"}, []*bmov1alpha1.BareMetalHost{kept}, []string{"kept"}},
		"also if none is available yet":                          {Wants{Selector: labels.Everything(), ReusedBy: "md-workers"}, []*bmov1alpha1.BareMetalHost{cleaning}, nil},
		"not if one has none of the labels": {Wants{Selector: selector("pool=workers"), ReusedBy: "md-workers"},
			[]*bmov1alpha1.BareMetalHost{kept}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.wants.Fitting(slices.Concat(hosts, tc.more)); !slices.Equal(got, tc.want) {
				t.Errorf("%v fit, want %v", got, tc.want)
			}
		})
	}
}

func TestWhatAMachineWantsOfItsHost(t *testing.T) {
	for name, tc := range map[string]struct {
		spec map[string]any
		want string
		err  bool
	}{
		"any without a selector": {nil, "", false},
		"the labels that match":  {map[string]any{"hostSelector": map[string]any{"matchLabels": map[string]any{"pool": "workers", "rack": "1"}}}, "pool=workers,rack=1", false},
		"expressions, whose operators are written like in Go or like in YAML": {map[string]any{"hostSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": "pool", "operator": "In", "values": []any{"a", "b"}}, map[string]any{"key": "size", "operator": "exists"},
		}}}, "pool in (a,b),size", false},
		"an operator that does not exist": {map[string]any{"hostSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": "pool", "operator": "Like", "values": []any{"a"}},
		}}}, "", true},
		"a selector that is none": {map[string]any{"hostSelector": "all"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := hostSelector(&unstructured.Unstructured{Object: map[string]any{"spec": tc.spec}})
			if (err != nil) != tc.err || err == nil && got.String() != tc.want {
				t.Errorf("wants %v (%v), want %q", got, err, tc.want)
			}
		})
	}
	worker := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"}}}
	plane := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusterv1.MachineControlPlaneLabel: ""}, OwnerReferences: []metav1.OwnerReference{
		{Kind: "KubeadmControlPlane", Name: "plane", Controller: ptr.To(true)},
	}}}
	if got := []string{reusedBy(worker), reusedBy(plane), reusedBy(&clusterv1.Machine{})}; !slices.Equal(got, []string{"md-workers", "cp-plane", ""}) {
		t.Errorf("hosts are kept for them as %q", got)
	}
}
