package machinehealthcheck

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// releaserOf returns a releaser of a management cluster with these objects, which serves Machines and HostRemediations.
func releaserOf(t *testing.T, objects ...client.Object) *Releaser {
	t.Helper()
	kind, scheme, synced := mendv1.GroupVersion.WithKind("HostRemediation"), runtime.NewScheme(), true
	must.Do(t, clusterv1.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &metav1.PartialObjectMetadataList{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&clusterv1.Machine{}).
		WithIndex(&clusterv1.Machine{}, clusterIndex, func(o client.Object) []string { return []string{o.(*clusterv1.Machine).Spec.ClusterName} }).
		WithIndex(&clusterv1.MachineHealthCheck{}, clusterIndex, func(o client.Object) []string {
			return []string{o.(*clusterv1.MachineHealthCheck).Spec.ClusterName}
		}).Build()
	kinds := remediationrequest.NewKinds(&informertest.FakeInformers{Scheme: scheme, Synced: &synced}, c, "", remediationrequest.NewMetadata)
	return &Releaser{Client: c, Live: c, Requests: &remediationrequest.Requests{Client: c, Live: c}, Kinds: kinds}
}

func hostRemediation(name string) *remediationrequest.Metadata {
	req := &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, Annotations: map[string]string{mendv1.MadeByAnnotation: "gone"}, Labels: map[string]string{mendv1.MadeByUIDLabel: "uid"},
	}}
	req.SetGroupVersionKind(mendv1.GroupVersion.WithKind("HostRemediation"))
	return req
}

func machineIn(cluster, name string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: clusterv1.MachineSpec{ClusterName: cluster}}
}

// A check was deleted while its Cluster was paused. After the pause the releaser looks for its requests, also those for machines without
// conditions of a check.
func TestAfterAPauseTheRequestsOfUnmarkedMachinesAreLookedAt(t *testing.T) {
	r := releaserOf(t, machineIn("c1", "m1"), machineIn("c2", "m2"), machineIn("c1", "m3"), hostRemediation("m1"), hostRemediation("m2"))
	if _, err := r.Kinds.Ready(t.Context(), mendv1.GroupVersion.WithKind("HostRemediation")); err != nil {
		t.Fatal(err)
	}
	got := r.machinesToRelease(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1"}})
	if len(got) != 1 || got[0].Name != "m1" {
		t.Errorf("looked at are %v, want m1 alone", got)
	}
}

func TestALabelThatAssignsAClusterToThisManagerEnqueues(t *testing.T) {
	was := &clusterv1.Cluster{}
	is := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusterv1.WatchLabel: "east"}}}
	if !clusterChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("a Cluster that is assigned to this manager enqueues nothing")
	}
	was.Labels = is.Labels
	if clusterChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("a Cluster whose labels are the same enqueues")
	}
	is.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRollingOutCondition, Status: metav1.ConditionTrue}}
	if !clusterChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("a rollout for which remediations may wait enqueues nothing when it begins or ends")
	}
}

// partly is an API server that serves HostRemediation and has a broken aggregated API.
type partly struct {
	discovery.ServerResourcesInterface
	asked *int
}

func (p partly) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	*p.asked++
	lists := []*metav1.APIResourceList{{GroupVersion: "kubemend.io/v1alpha1", APIResources: []metav1.APIResource{
		{Name: "hostremediations", Kind: "HostRemediation"}, {Name: "hostremediationtemplates", Kind: "HostRemediationTemplate"},
	}}}
	return lists, &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "custom.metrics.k8s.io", Version: "v1"}: errors.New("the server is currently unable to handle the request"),
	}}
}

func TestABrokenAggregatedAPIDoesNotKeepTheSearchGoing(t *testing.T) {
	r, asked := releaserOf(t, hostRemediation("m1")), 0
	r.Discovery = partly{asked: &asked}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	must.Do(t, r.discover(ctx))
	if ctx.Err() != nil || asked != 1 || len(r.Kinds.InUse()) != 1 {
		t.Errorf("it was searched %d times, found kinds %v, ended by the test: %v; want once, HostRemediation, by itself", asked, r.Kinds.InUse(), ctx.Err())
	}
}

// If a needed request were deleted, the check would create it again for ever; a request that is not needed is deleted by nobody else.
func TestARequestIsDeletedIfItsCheckDoesNotNeedItAnyMore(t *testing.T) {
	naming := func(kind, version string) func(*clusterv1.MachineHealthCheck, *clusterv1.Machine) {
		return func(check *clusterv1.MachineHealthCheck, _ *clusterv1.Machine) {
			check.Spec.Remediation.TemplateRef.Kind, check.Spec.Remediation.TemplateRef.APIVersion = kind, "kubemend.io/"+version
		}
	}
	for name, tc := range map[string]struct {
		change func(*clusterv1.MachineHealthCheck, *clusterv1.Machine)
		stays  bool
	}{
		"its check needs it":                    {naming("HostRemediationTemplate", "v1alpha1"), true},
		"its check names another version of it": {naming("HostRemediationTemplate", "v1"), true},
		"its check names another kind":          {naming("OtherTemplate", "v1alpha1"), false},
		"its check names none":                  {func(*clusterv1.MachineHealthCheck, *clusterv1.Machine) {}, false},
		"its check is paused": {func(check *clusterv1.MachineHealthCheck, _ *clusterv1.Machine) {
			check.Annotations = map[string]string{clusterv1.PausedAnnotation: "true"}
		}, true},
		"its check is another manager's": {func(check *clusterv1.MachineHealthCheck, _ *clusterv1.Machine) {
			check.Labels = map[string]string{clusterv1.WatchLabel: "west"}
		}, true},
		"its machine is to be left alone": {func(check *clusterv1.MachineHealthCheck, machine *clusterv1.Machine) {
			naming("HostRemediationTemplate", "v1alpha1")(check, machine)
			machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		}, false},
		"the selector of its check cannot be parsed": {func(check *clusterv1.MachineHealthCheck, _ *clusterv1.Machine) {
			check.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Is"}}
		}, true},
		"its check selects other machines": {func(check *clusterv1.MachineHealthCheck, _ *clusterv1.Machine) {
			check.Spec.Selector.MatchLabels = map[string]string{"pool": "others"}
		}, false},
		"its machine is being deleted, which the garbage collector sees to": {func(_ *clusterv1.MachineHealthCheck, machine *clusterv1.Machine) {
			machine.Finalizers, machine.DeletionTimestamp = []string{clusterv1.MachineFinalizer}, &metav1.Time{Time: noon}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			check, machine := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}}, machineIn("c1", "m1")
			check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "workers"}
			machine.Labels = check.Spec.Selector.MatchLabels
			tc.change(check, machine)
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "c1", Labels: map[string]string{clusterv1.WatchLabel: "east"},
			}}
			r := releaserOf(t, machine, hostRemediation("m1"), check, cluster)
			r.Recorder, r.Unclaimed, r.WatchFilterValue = events.NewFakeRecorder(1), Act, "east"
			if _, err := r.Kinds.Ready(t.Context(), mendv1.GroupVersion.WithKind("HostRemediation")); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "m1"}}); err != nil {
				t.Fatal(err)
			}
			if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "m1"}, hostRemediation("m1")); (err == nil) != tc.stays {
				t.Errorf("the request is there: %t (%v), want %t", err == nil, err, tc.stays)
			}
		})
	}
}

// When kubemend stops acting on a machine, the condition kubemend.io/Remediation is removed and those of Cluster API stay. They are removed
// too from a machine that its user wants left alone, because its owner would act on them.
func TestAMachineOnWhichKubemendDoesNotActIsNotCalledRemediated(t *testing.T) {
	made := func(age time.Duration, annotations map[string]string) *clusterv1.MachineHealthCheck {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "check-" + age.String(), Annotations: annotations, CreationTimestamp: metav1.NewTime(ago(age)),
		}}
		check.Spec.ClusterName, check.Spec.Selector.MatchLabels = "c1", map[string]string{"pool": "workers"}
		return check
	}
	claim, pause := map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}, map[string]string{clusterv1.PausedAnnotation: "true"}
	ofShard := func(shard string) client.Object {
		check := made(0, claim)
		check.Labels = map[string]string{clusterv1.WatchLabel: shard}
		return check
	}
	for name, tc := range map[string]struct {
		checks []client.Object
		acts   Unclaimed
		stays  bool
		left   bool
		shard  string
	}{
		"the check is claimed":                 {[]client.Object{made(0, claim)}, Observe, true, false, ""},
		"the claim was taken away":             {[]client.Object{made(0, nil)}, Observe, false, false, ""},
		"it needs none":                        {[]client.Object{made(0, nil)}, Act, true, false, ""},
		"it is paused for all":                 {[]client.Object{made(0, pause)}, Act, false, false, ""},
		"an older check is core's, which acts": {[]client.Object{made(0, claim), made(time.Hour, nil)}, Observe, false, false, ""},
		"an older one is paused":               {[]client.Object{made(0, claim), made(time.Hour, pause)}, Observe, true, false, ""},
		"it is to be left alone":               {[]client.Object{made(0, claim)}, Observe, false, true, ""},
		"beside core's older one":              {[]client.Object{made(0, claim), made(time.Hour, nil)}, Observe, false, true, ""},
		"its check is this manager's":          {[]client.Object{ofShard("east")}, Observe, false, true, "east"},
		"it is another manager's":              {[]client.Object{ofShard("west")}, Observe, true, true, "east"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineIn("c1", "m1")
			m.Labels = map[string]string{"pool": "workers"}
			if tc.left {
				m.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
			}
			released := tc.left && len(tc.checks) == 1 && !tc.stays // kubemend acts on the check
			m.Status.Conditions = []metav1.Condition{
				{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "UnhealthyNode"},
				{Type: mendv1.Remediation, Status: metav1.ConditionTrue, Reason: mendv1.OwnerAskedReason},
			}
			r := releaserOf(t, append(tc.checks, m, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1"}})...)
			r.WatchFilterValue, r.Unclaimed, r.Recorder = tc.shard, tc.acts, events.NewFakeRecorder(1)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)}); err != nil {
				t.Fatal(err)
			}
			must.Do(t, r.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m))
			if stays := ConditionOf(m, mendv1.Remediation) != nil; stays != tc.stays || (Failed(m) == nil) != released {
				t.Errorf("it stays: %t, want %t; of %v", stays, tc.stays, m.Status.Conditions)
			}
		})
	}
}

// Where Cluster API's webhook is installed, it refuses such a selector.
func TestACheckWhoseSelectorIsInvalidActsOnNoMachine(t *testing.T) {
	invalid, claimed := &clusterv1.MachineHealthCheck{}, &clusterv1.MachineHealthCheck{}
	invalid.Name, claimed.Name = "a", "b" // of the same age, so the first by name acts
	invalid.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}}
	claimed.Annotations = map[string]string{clusterv1.PausedAnnotation: mendv1.Claim}
	checks := map[string]*clusterv1.MachineHealthCheck{"a": invalid, "b": claimed}
	if !(&Releaser{Unclaimed: Observe}).actedOn(checks, &clusterv1.Cluster{}) {
		t.Error("the claimed check does not act: what it says of its machines would be removed")
	}
}
