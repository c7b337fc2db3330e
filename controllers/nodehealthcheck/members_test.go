package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/test/must"
)

func TestTheLeasesOfAPIServersSayWhichMembersLive(t *testing.T) {
	serves := func(node string, ago time.Duration) *coordinationv1.Lease {
		at := metav1.NewMicroTime(epoch.Add(-ago))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "apiserver-" + node, Labels: map[string]string{
				"apiserver.kubernetes.io/identity": "kube-apiserver", corev1.LabelHostname: node,
			}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &at},
		}
	}
	k := newFixture(t, serves("a", time.Second), serves("b", 40*time.Second), serves("c", 2*time.Second))
	for members, want := range map[int]controlplane.Sign{1: controlplane.Unknown, 3: controlplane.Alive} {
		w := &observed{facts: Facts{Now: epoch, ControlPlane: &ControlPlane{}}}
		for _, name := range []string{"a", "b", "c"}[:members] {
			w.facts.ControlPlane.Members = append(w.facts.ControlPlane.Members, controlplane.Member{Name: name})
		}
		k.r.observeServers(t.Context(), w)
		if got := w.facts.ControlPlane.Members[0].APIServer; got != want {
			t.Errorf("of %d members the first one is %v, want %v", members, got, want)
		}
	}
}

func TestARequestWithoutItsAnnotationIsOfTheNodeThatItIsNamedAfter(t *testing.T) {
	there := map[string]*corev1.Node{"cp-0": {}, "cp-1-bcdfg": {}}
	for name, want := range map[string]string{
		remediationrequest.UniqueName("cp-0", "check", "template"): "cp-0", // a name by kubemend
		"cp-0-x7kq2":   "cp-0",         // a name by metadata.generateName
		"cp-1-bcdfg":   "cp-1-bcdfg",   // a node has this name
		"cp-2-x7kq2":   "cp-2-x7kq2",   // there is no node cp-2
		"cp-0-storage": "cp-0-storage", // not a random suffix
	} {
		if got := namedAfter(&unstructured.Unstructured{Object: map[string]any{}}, name, there); got != want {
			t.Errorf("%s is of %s, want %s", name, got, want)
		}
	}
	annotated := &unstructured.Unstructured{Object: map[string]any{}}
	annotated.SetAnnotations(map[string]string{nhcv1.NodeNameAnnotation: "cp-0-x7kq2"})
	if got := namedAfter(annotated, "cp-0-x7kq2", there); got != "cp-0-x7kq2" {
		t.Errorf("with its annotation it is of %s", got)
	}
}

// controlPlaneOfThree returns a self-managed cluster: three control-plane nodes, each with a Machine of the same name in namespace capi,
// and a check with a HostRemediationTemplate. m1 is unhealthy.
func controlPlaneOfThree(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	power := aboutMachine("HostRemediation", "capi")
	objects = append(objects, check("nhc", byOne(power)), templateFrom(power))
	names := []string{"m0", "m1", "m2"}
	for _, name := range names {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "capi", Name: name, UID: types.UID("ours-" + name), Labels: map[string]string{
			clusterv1.ClusterNameLabel: "home", clusterv1.MachineControlPlaneLabel: "",
		}}}
		m.Spec.ClusterName, m.Status.NodeRef.Name = "home", name
		objects = append(objects, member(name), m)
	}
	k := newFixture(t, objects...)
	for _, name := range names {
		k.annotateNode(name, map[string]string{clusterv1.MachineAnnotation: name, clusterv1.ClusterNamespaceAnnotation: "capi"})
	}
	k.bad("m1")
	return k
}

func TestWhichRequestsKeepTheControlPlaneWaiting(t *testing.T) {
	const made = "HostRemediation/m1"
	for name, row := range map[string]struct {
		there *unstructured.Unstructured
		waits bool
	}{
		"one for the Machine of m0": {foreignRequest("HostRemediation", "capi", "any", ownedByMachine("m0", "ours-m0")), true},
		"one for a Machine of its name that was there before": {
			foreignRequest("HostRemediation", "capi", "m0", ownedByMachine("m0", "former-m0")), false,
		},
		"one for a Machine of its name in the namespace of a tenant": {
			foreignRequest("HostRemediation", "tenant", "m0", ownedByMachine("m0", "tenants-m0")), false,
		},
		"one in the namespace of a tenant that gives its Machine's UID": {
			foreignRequest("HostRemediation", "tenant", "m0", ownedByMachine("m0", "ours-m0")), false,
		},
		"one in the namespace of a tenant that is named like the node": {foreignRequest("HostRemediation", "tenant", "m0"), false},
		"one in the namespace of a tenant that names the node": {
			foreignRequest("HostRemediation", "tenant", "any", annotation(nhcv1.NodeNameAnnotation, "m0")), false,
		},
		"Metal3's in the namespace of a tenant that names the node": {
			foreignRequest("Metal3Remediation", "tenant", "any", annotation(nhcv1.NodeNameAnnotation, "m0")), false,
		},
		"one where a check has its templates that names the node":                 {foreignRequest("HostRemediation", "capi", "any", annotation(nhcv1.NodeNameAnnotation, "m0")), true},
		"one where a check has its templates, with the name of any other Machine": {foreignRequest("HostRemediation", "capi", "m0"), false},
		"one of another kind in any namespace, whose remediator goes by its name": {fromTemplate("Reboot", "m0"), true},
	} {
		t.Run(name, func(t *testing.T) {
			k := controlPlaneOfThree(t, row.there)
			if err := k.r.Watches.Watch(t.Context(), row.there.GroupVersionKind()); err != nil {
				t.Fatal(err)
			}
			k.reconciles("nhc")
			requested := false
			for _, obj := range k.allObjects() {
				requested = requested || obj.GetKind()+"/"+obj.GetName() == made
			}
			if requested == row.waits {
				t.Errorf("m1 waits: %v, want %v; told: %v", !requested, row.waits, k.events())
			}
		})
	}
}

func TestWhatANodeSaysOfItsMember(t *testing.T) {
	maintained := corev1.NodeCondition{Type: "MaintenanceInProgress", Status: corev1.ConditionTrue}
	for name, tc := range map[string]struct {
		edit   func(*corev1.Node)
		holder string // of the lease on the node
		want   controlplane.Member
	}{
		"it is Ready": {},
		"it is not":   {edit: func(n *corev1.Node) { n.Status.Conditions = nil }, want: controlplane.Member{Node: controlplane.Silent}},
		"it votes": {
			edit: func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/etcd"] = "" },
			want: controlplane.Member{Etcd: controlplane.EtcdLabelled},
		},
		"it is drained": {
			edit: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "medik8s.io/drain"}} }, want: controlplane.Member{Away: true},
		},
		"it is in maintenance": {
			edit: func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, maintained) },
			want: controlplane.Member{Away: true},
		},
		"it is cordoned":               {edit: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		"another holder has leased it": {holder: "NMO", want: controlplane.Member{Away: true}},
		"the check itself has":         {holder: us},
	} {
		state, node := &observed{facts: of()}, member("m")
		state.leases = map[string]*coordinationv1.Lease{leaseName("m"): leaseOf(tc.holder, time.Hour, 0, 0)}
		if tc.edit != nil {
			tc.edit(node)
		}
		tc.want.Name, tc.want.Node = "m", cmp.Or(tc.want.Node, controlplane.Alive)
		tc.want.Etcd = cmp.Or(tc.want.Etcd, controlplane.EtcdNotLabelled)
		if diff := gocmp.Diff(tc.want, state.member(node)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// fromTemplate returns a request of one of kindsOfRequests, in another namespace than usual.
func fromTemplate(kind, name string) *unstructured.Unstructured {
	u := template(kind, name, false)
	u.SetKind(kind)
	u.SetNamespace("anywhere")
	u.SetUID(types.UID("foreign-" + name))
	return u
}

// A tenant who may write an object in a namespace can give it any labels.
func TestWhatIsElsewhereIsNoneOfTheChecksOwn(t *testing.T) {
	marks := func(uid string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{nhcv1.NodeNameAnnotation: "b", mendv1.MadeByNodeCheckAnnotation: "nhc"})
			u.SetLabels(map[string]string{nhcv1.PartOfLabel: nhcv1.PartOf, mendv1.MadeByNodeCheckUIDLabel: uid})
		}
	}
	for name, uid := range map[string]string{
		"with the mark of the check":                        "check-nhc",
		"with the mark of a check of its name that is gone": "check-of-before",
	} {
		t.Run(name, func(t *testing.T) {
			forged := foreignRequest("HostRemediation", "tenant", "any", marks(uid))
			k := partnered(t, byOne(aboutMachine("HostRemediation", "capi")), capiMachine("capi"), forged)
			k.settle("nhc")
			if got := len(k.allObjects()); got != 2 {
				t.Errorf("there are %d requests, want the tenant's and the check's; told: %v", got, k.events())
			}
			k.turn("b", "True")
			k.settle("nhc")
			if all := k.allObjects(); len(all) != 1 || all[0].GetNamespace() != "tenant" {
				t.Errorf("when the node is healthy there are %v, want the tenant's alone", all)
			}
		})
	}
	t.Run("but where a template was that it named before", func(t *testing.T) {
		k := partnered(t, byOne(refTo("Reboot", "reboot")))
		k.settle("nhc")
		c := k.check("nhc")
		ref := aboutMachine("HostRemediation", "capi")
		c.Spec.RemediationTemplate = &ref
		k.update(c)
		k.create(templateFrom(ref))
		k.settle("nhc")
		k.turn("b", "True")
		k.settle("nhc")
		k.wants("its request ends with the failure")
	})
}

// Package controlplane has the rule for which leases count.
func TestALeaseOfAnotherHolderIsAReasonToWait(t *testing.T) {
	at := metav1.NewMicroTime(epoch)
	for owner, want := range map[types.UID][]string{"node-b": nil, "node-b-of-before": {"Reboot/b"}} {
		k := partnered(t, byOne(refTo("Reboot", "reboot")), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: nhcv1.DefaultLeaseNamespace, Name: leaseName("b"),
				OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: owner}},
			},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("node-maintenance"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &at, RenewTime: &at,
			},
		})
		k.reconciles("nhc")
		k.wants(string(owner), want...)
		if told := strings.Join(k.events(), "\n"); strings.Contains(told, "already taken by node-maintenance") != (want == nil) {
			t.Errorf("told:\n%s", told)
		}
	}
}

// The request names its Machine by UID. Another Machine that has the same name now is no reason to keep the request.
func TestAMachineOfTheSameNameKeepsNoRequestOfANodeThatIsGone(t *testing.T) {
	k := partnered(t, byOne(aboutMachine("HostRemediation", "capi")), capiMachine("capi"))
	k.settle("nhc")
	k.remove(node("b", nil))
	k.settle("nhc")
	if len(k.allObjects()) != 1 {
		t.Fatal("its Machine is there, and the request is not")
	}
	m := capiMachine("capi")
	k.remove(m)
	m.UID, m.ResourceVersion = "another", ""
	k.create(m)
	k.settle("nhc")
	if left := k.allObjects(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestARequestThatClingsToAHealthyMemberBlocksTheOthersForAWhileOnly(t *testing.T) {
	k := newFixture(t, five(check("nhc"))...)
	k.bad("m0")
	k.settle("nhc")
	k.atWork()
	k.turn("m0", corev1.ConditionTrue)
	k.settle("nhc")
	k.bad("m1")
	k.after(controlplane.ReplacementPatience - 301*time.Second)
	k.reconciles("nhc")
	k.wants("its remediator may be at work", "Reboot/m0")
	k.after(time.Second + time.Minute)
	k.reconciles("nhc")
	k.wants("m0 is healthy, and no remediator was at work for long", "Reboot/m0", "Reboot/m1")
}

func TestARemediatorThatMayNotBeNotifiedIsReportedOnce(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.atWork()
	k.remove(node("b", nil))
	k.settle("nhc")
	k.after(nodeAway)
	k.refuses("patch", "", apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, "", nil))
	k.reconciles("nhc")
	before := k.writes
	k.reconciles("nhc")
	if k.writes != before {
		t.Errorf("%d writes in a steady state", k.writes-before)
	}
}

func TestARequestOfAMemberThatIsGoneBlocksTheOthersForAWhileOnly(t *testing.T) {
	for machineStays, wait := range map[bool]time.Duration{false: remediationrequest.ClingingFor, true: controlplane.ReplacementPatience} {
		k := newFixture(t, five(check("nhc"))...)
		k.bad("m0")
		k.settle("nhc")
		k.atWork()
		k.answers("Reboot", nhcv1.SucceededCondition, "False")
		if machineStays {
			k.ofMachine()
			k.create(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", UID: "m-uid"}})
		}
		k.remove(k.node("m0"))
		k.settle("nhc")
		end := k.clock.Now().Add(wait)
		k.bad("m1")
		k.after(end.Sub(k.clock.Now()) - time.Second)
		k.settle("nhc")
		k.wants("m0 may be coming back", "Reboot/m0")
		k.after(time.Second)
		k.settle("nhc")
		k.wants("it has not", "Reboot/m0", "Reboot/m1")
	}
}

// apis is the discovery client of a fixture.
type apis struct {
	discovery.ServerResourcesInterface
	err error
}

func (a *apis) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: remediatorGroup + "/v1"}
	for _, kind := range kindsOfRequests {
		list.APIResources = append(list.APIResources,
			metav1.APIResource{Name: kind, Kind: kind, Namespaced: true}, metav1.APIResource{Name: kind + "templates", Kind: kind + remediationrequest.TemplateSuffix, Namespaced: true})
	}
	return []*metav1.APIResourceList{list}, a.err
}

// search searches for orphaned requests, as at the start of the manager.
func (k *fixture) search() {
	k.t.Helper()
	if err := k.r.searchOnce(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// restart deletes the memory of the controller.
func (k *fixture) restart() {
	kinds := k.kinds()
	k.r.memory, k.r.Kinds, k.r.Watches = memory{}, kinds, kinds
	k.r.searched.Store(false)
	k.search()
}

// away deletes a check while no manager runs.
func (k *fixture) away(name string) {
	k.t.Helper()
	k.ofMachine()
	k.atWork()
	k.goes(name)
	k.restart()
}

// reconcileEnqueued reconciles each check that the start of the manager enqueues.
func (k *fixture) reconcileEnqueued() {
	k.t.Helper()
	for _, req := range k.r.everybody(k.t.Context()) {
		k.settle(req.Name)
	}
}

func TestAMemberThatADeletedCheckHasRemediatedIsBusyAfterARestart(t *testing.T) {
	other := replacing("other", "other")
	other.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	k := newFixture(t, five(other, check("nhc"))...)
	k.bad("m0")
	k.settle("other")
	k.away("other")
	k.bad("m1")
	k.settle("nhc")
	k.wants("m0 is being remediated", "Replace/m0")
	k.reconcileEnqueued()
	if k.objects()[0].GetDeletionTimestamp() == nil {
		t.Error("the orphaned request is not ended")
	}
	k.after(time.Minute)
	k.settle("nhc")
	k.wants("it is not gone yet", "Replace/m0")
	k.over()
	k.reconcileEnqueued()
	k.after(time.Minute)
	k.settle("nhc")
	if got := k.requests(); len(got) != 1 || !strings.HasPrefix(got[0], "Reboot/") {
		t.Errorf("requests %v, want that of the next one", got)
	}
}

func TestTheOrphanedLeaseOfADeletedCheckIsReleasedAfterARestart(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.goes("nhc")
	k.restart()
	k.wants("the garbage collector has deleted what had no other owner")
	k.reconcileEnqueued()
	if leases := k.leases(); len(leases) > 0 {
		t.Errorf("leases %v", leases)
	}
}

func TestUntilOrphansWereSearchedForNoMemberIsRemediated(t *testing.T) {
	const why = "orphaned requests have not been searched for"
	for name, tc := range map[string]struct {
		err   error
		tried bool
		want  []string
		told  bool
	}{
		"not before the search, and users hear of it":   {told: true},
		"not after it has failed, and users hear of it": {err: errors.New("out of order"), tried: true, told: true},
		"then it begins": {tried: true, want: []string{"Reboot/m0"}},
		"the API servers of others, which do not answer, hold up no check": {
			err:   &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io"}: errors.New("its node is bad")}},
			tried: true, want: []string{"Reboot/m0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, five(check("nhc"))...)
			k.r.searched.Store(false)
			k.apis.err = tc.err
			if tc.tried {
				_ = k.r.searchOnce(t.Context())
			}
			k.bad("m0")
			k.settle("nhc")
			k.wants(name, tc.want...)
			if told := strings.Contains(strings.Join(k.events(), "\n"), why); told != tc.told {
				t.Errorf("users hear of it: %v, want %v", told, tc.told)
			}
			k.apis.err = nil
			k.search()
			k.settle("nhc")
			k.wants("in the end", "Reboot/m0")
		})
	}
}

func TestTheSearchForOrphansEndsAndEnqueuesTheChecksOnce(t *testing.T) {
	others := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "metrics.k8s.io"}: errors.New("its node is bad"),
	}}
	for name, tc := range map[string]struct {
		err  error
		want int // how often all checks are enqueued
	}{
		"when everything was read":                           {want: 1},
		"when only the API servers of others did not answer": {err: others, want: 1},
		"and goes on while it is failing":                    {err: errors.New("out of order")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newFixture(t)
				enqueued, ended := 0, make(chan struct{})
				k.r.started, k.r.enqueueAll = make(chan struct{}), func() { enqueued++ }
				close(k.r.started)
				k.apis.err = tc.err
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					defer close(ended)
					must.Do(t, k.r.searchOrphans(ctx))
				}()
				select {
				case <-ended:
					must.Equal(t, 1, tc.want, "it has ended")
				case <-time.After(time.Minute):
					must.Equal(t, 0, tc.want, "it goes on")
				}
				stop()
				<-ended
				must.Equal(t, tc.want, enqueued, "times that all checks are enqueued")
			})
		})
	}
}

func TestOthersThanMembersDoNotWaitForTheSearch(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.r.searched.Store(false)
	badB(k)
	k.wants("a worker is remediated", "Reboot/b")
}
