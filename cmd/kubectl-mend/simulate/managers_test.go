package simulate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// definition adds a CustomResourceDefinition of which no more is known than its labels.
func (s *fixture) definition(name string, labels map[string]string) *fixture {
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	s.objs = append(s.objs, crd)
	return s
}

const (
	metal3PowerCycle = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: Metal3RemediationTemplate
metadata: {name: reboot}
spec: {template: {spec: {strategy: {type: Reboot, retryLimit: 1, timeoutSeconds: 300}}}}
---`
)

func metal3Check() string {
	_, check, _ := strings.Cut(powerCycle, "---")
	return metal3PowerCycle + strings.Replace(check, "{apiVersion: kubemend.io/v1alpha1, kind: HostRemediationTemplate",
		"{apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: Metal3RemediationTemplate", 1)
}

func TestTheManagersThatRunAreSimulated(t *testing.T) {
	machines, metal, nodes := workers(5), hosts(3), nodesHere(3)
	unclaimed := strings.Replace(workersCheck, "  annotations: {cluster.x-k8s.io/paused: kubemend}\n", "", 1)
	for name, tc := range map[string]struct {
		fixture        func(*fixture) *fixture
		managers       map[string]string // by namespace
		manifest       string
		fail           string
		says           string
		begin          int
		happens, never string
		mode           explain.Mode
	}{
		"no manager": {
			machines, nil, workersCheck, "machine/w1", "No manager of kubemend runs there: one with default settings is assumed", 1, "", "", explain.Acting,
		},
		"one with its settings": {
			machines, map[string]string{"a": `{}`}, workersCheck, "machine/w1", "The manager has the settings of the one in namespace a", 1, "", "", explain.Acting,
		},
		"one that says nothing": {
			machines, map[string]string{"a": ``}, workersCheck, "machine/w1", "The manager in namespace a does not announce its settings", 1, "", "", explain.Acting,
		},
		"one that leaves": {
			machines, map[string]string{"a": `{"teardown":true}`}, workersCheck, "machine/w1", "The manager in namespace a is in teardown: another one", 1, "", "", explain.Acting,
		},
		"one that wants a label": {
			machines, map[string]string{"a": `{"watchFilter":"blue"}`}, workersCheck, "machine/w1", "are not simulated: default/workers", 0,
			"", "MachineMarkedUnhealthy", explain.None,
		},
		"one that does not act on NodeHealthChecks": {
			nodes, map[string]string{"a": `{"kinds":[{"crd":"nodehealthchecks.remediation.medik8s.io","reason":"Off","because":"it is switched off by a flag"}]}`},
			ladder, "node/n1", "kubemend does not act on NodeHealthChecks, which are not simulated: it is switched off by a flag", 0, "", "", "",
		},
		"two, of which one acts on NodeHealthChecks": {
			nodes, map[string]string{"a": `{"kinds":[{"crd":"nodehealthchecks.remediation.medik8s.io","reason":"Off"}]}`, "b": `{}`},
			ladder, "node/n1", "", 2, "", "", explain.Acting,
		},
		"no manager, where another operator has brought NodeHealthChecks along": {
			func(s *fixture) *fixture {
				return nodes(s).definition("nodehealthchecks.remediation.medik8s.io", map[string]string{"olm.managed": "true"})
			}, nil, ladder, "node/n1", "its CustomResourceDefinition belongs to", 0, "", "", "",
		},
		"one that carries out requests": {
			metal, map[string]string{"a": `{}`}, metal3Check(), "machine/w2", "is off 30s after", 1, "PoweredOff", "", explain.Acting,
		},
		"one that leaves requests to CAPM3": {
			metal, map[string]string{"a": `{"kinds":[{"crd":"metal3remediations.infrastructure.cluster.x-k8s.io","reason":"Foreign","because":"it is CAPM3's"}]}`},
			metal3Check(), "machine/w2", "kubemend does not carry out requests of the kind Metal3Remediation: it is CAPM3's", 1, "", "PoweredOff", explain.Acting,
		},
		"no manager, where CAPM3 has brought its remediations along": {
			func(s *fixture) *fixture {
				return metal(s).definition("metal3remediations.infrastructure.cluster.x-k8s.io", map[string]string{clusterv1.ProviderNameLabel: "infrastructure-metal3"})
			}, nil, metal3Check(), "machine/w2", "kubemend does not carry out requests of the kind Metal3Remediation", 1, "", "PoweredOff", explain.Acting,
		},
		"one that carries out those of another namespace": {
			metal, map[string]string{"a": `{"namespace":"default","watchFilter":"blue"}`},
			strings.Replace(powerCycle, "name: workers", "name: workers\n  labels: {cluster.x-k8s.io/watch-filter: blue}", 1), "machine/w2", "", 1, "", "PoweredOff", explain.Acting,
		},
		"one that acts on what is not claimed": {
			func(s *fixture) *fixture { return machines(s).existing(unclaimed) }, map[string]string{"a": `{"unclaimed":"act"}`}, "", "machine/w1", "", 1, "", "", explain.Acting,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.fixture(newFixture(t))
			for namespace, says := range tc.managers {
				s.manager(namespace, says)
			}
			a := s.run(tc.manifest, question(fails(tc.fail)))
			if assumed := strings.Join(a.Assumptions, "\n"); !strings.Contains(assumed, tc.says) {
				t.Errorf("%q is not among what is assumed:\n%s", tc.says, assumed)
			}
			if a.Summary.Begun != tc.begin {
				t.Errorf("%d remediations begin, want %d", a.Summary.Begun, tc.begin)
			}
			reasons := map[string]bool{}
			for _, e := range a.Timeline {
				reasons[e.Reason] = true
			}
			if tc.happens != "" && !reasons[tc.happens] || reasons[tc.never] {
				t.Errorf("%q is to happen, and %q is not: %v", tc.happens, tc.never, reasons)
			}
			if len(a.Now) != 1 || tc.mode != "" && a.Now[0].Mode != tc.mode || tc.mode == "" && a.Now[0].Mode == explain.Acting {
				t.Errorf("now it is %+v, want the mode %q", a.Now, tc.mode)
			}
			for i := range a.Now[0].Targets {
				if a.Now[0].Targets[i].StartsNow {
					t.Errorf("nothing is wrong yet, and it begins: %+v", a.Now[0].Targets[i])
				}
			}
		})
	}
}

func TestChecksOfOtherNamespacesAreNotSimulated(t *testing.T) {
	for namespace, begin := range map[string]int{"default": 0, "other": 1, "": 1} {
		s := newFixture(t)
		for _, obj := range newFixture(t).workers(5).existing(workersCheck).objs {
			if c, is := obj.(*clusterv1.Cluster); is {
				c.UID = "another c1"
			}
			obj.SetNamespace("other")
			s.objs = append(s.objs, obj)
		}
		w := s.snapshot()
		inner := newFixture(t).workers(5).silent(time.Hour, "w2").nodes
		w.SetNodes(client.ObjectKey{Namespace: "other", Name: "c1"}, inner)
		a := runIn(t, w, "", question(func(q *Question) { q.Namespace = namespace }))
		said := strings.Contains(strings.Join(a.Assumptions, "\n"), "MachineHealthChecks of other namespaces are not simulated (-A)")
		if a.Summary.Begun != begin || said != (begin == 0) {
			t.Errorf("-n %q: %d remediations begin, want %d; assumed are %q", namespace, a.Summary.Begun, begin, a.Assumptions)
		}
	}
}

func TestRemediationsThatCouldNotBeReadAreNotSimulated(t *testing.T) {
	w := newFixture(t).nodesHere(3).snapshot()
	for _, kind := range []string{"Reboot", "RebootTemplate"} {
		gvk := schema.GroupVersionKind{Group: "remediators.example.org", Version: "v1", Kind: kind}
		w.Forbid(gvk, strings.ToLower(kind)+"s", true, "", errors.New("the user may not read it"))
	}
	check := ladder[strings.LastIndex(ladder, "---"):]
	a := runIn(t, w, check, question(fails("node/n2")))
	const want = "Reboots are neither requested nor simulated, since they or their templates could not be read: the user may not read it"
	if a.Summary.Begun != 0 || !strings.Contains(strings.Join(a.Assumptions, "\n"), want) {
		t.Errorf("%d remediations begin, want none; assumed are %q", a.Summary.Begun, a.Assumptions)
	}
}

func TestNodesWhoseMachinesAreNotKnownAreLeftAlone(t *testing.T) {
	s := newFixture(t).nodesHere(3)
	for _, obj := range s.objs {
		if obj.GetName() == "n1" {
			obj.SetAnnotations(map[string]string{clusterv1.ClusterNamespaceAnnotation: "mgmt", clusterv1.MachineAnnotation: "m1"})
		}
	}
	for fail, begin := range map[string]int{"node/n1": 0, "node/n2": 2} {
		w := s.snapshot()
		w.Forbid(clusterv1.GroupVersion.WithKind("Machine"), "machines", true, "mgmt", errors.New("the user may not read it"))
		a := runIn(t, w, ladder, question(fails(fail)))
		const want = "Nodes whose Machines are in namespace mgmt are left alone, since these could not be read: the user may not read it"
		if a.Summary.Begun != begin || !strings.Contains(strings.Join(a.Assumptions, "\n"), want) {
			t.Errorf("--fail %s: %d remediations begin, want %d; assumed are %q", fail, a.Summary.Begun, begin, a.Assumptions)
		}
	}
}

func TestWhereThereMayBeMoreManagersOneIsAssumedForTheRest(t *testing.T) {
	first := managerlease.Manager{Namespace: "a", Alive: true, Announcement: &managerlease.Announcement{
		Namespace: "a", Kinds: []managerlease.Kind{{CRD: crdgate.NodeCheckCRD, Reason: "Off", Because: "it is switched off"}},
	}}
	p := simulatedManagers(t.Context(), newFixture(t).snapshot(), inspect.Managers{All: []managerlease.Manager{first}, Unknown: "leases were not read in all namespaces"})
	if len(p.all) != 2 || !strings.Contains(p.whose, "There may be another one, which is assumed to reconcile all else: leases were not read") {
		t.Errorf("%d managers are simulated: %s", len(p.all), p.whose)
	}
	s := &engine{snapshot: snapshot.New()}
	for _, m := range p.all {
		s.managed = append(s.managed, manager{Manager: m})
	}
	for namespace, want := range map[string]string{"a": "a", "b": ""} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
		if of := s.managerOf(check); of == nil || of.Namespace != want {
			t.Errorf("a check in %s is looked at by %+v", namespace, of)
		}
	}
	if p.unserved(crdgate.NodeCheckCRD) == "" || p.unserved(crdgate.OwnCRD) != "" {
		t.Error("what one of them does not act on is assumed to be acted on by another")
	}
}

// manager adds one that runs in a namespace, is bound, and says that of itself.
func (s *fixture) manager(namespace, says string) *fixture {
	renewed := metav1.NewMicroTime(noon)
	s.objs = append(s.objs, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerlease.LeaseName, Annotations: map[string]string{mendv1.ManagerAnnotation: says}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("one"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: &renewed},
	}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubemend-manager-" + namespace, Labels: managerlease.OfKubemend.Labelled},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.OfKubemend.Roles[0]},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.OfKubemend.Account}},
	})
	return s
}

// happens reports whether the timeline has something at that time after the beginning.
func (a *Answer) happens(after time.Duration, reason, object string) bool {
	return slices.ContainsFunc(a.Timeline, func(e Entry) bool {
		return e.After == after.String() && e.Reason == reason && e.Object.Name == object
	})
}

func TestANodeThatIsGoneDoesNotKeepTheOthersFromComingBack(t *testing.T) {
	oneByOne := strings.Replace(powerCycle, "kubemend}", `kubemend, kubemend.io/max-in-flight: "1"}`, 1)
	a := newFixture(t).workers(3).onMetal().manager("kubemend-system", `{"fencing":"delete"}`).run(oneByOne, question(func(q *Question) {
		q.Fail, q.Hard, q.For = "machine/w1,machine/w2", true, 8*time.Minute
	}))
	if !a.happens(5*time.Minute+30*time.Second, "Fenced", "w1") || a.happens(8*time.Minute, "NodeRecovers", "node-w1") {
		t.Errorf("the node of w1 is not the one that was deleted: %+v", a.Timeline)
	}
	if !a.happens(8*time.Minute, "NodeRecovers", "node-w2") {
		t.Errorf("the node of w2 does not come back: %+v", a.Timeline)
	}
}

func TestHostsOfOtherKindsAreRebooted(t *testing.T) {
	for name, tc := range map[string]struct {
		edit        func(*bmov1alpha1.BareMetalHost)
		off, happen string
	}{
		"one that is provisioned externally": {func(h *bmov1alpha1.BareMetalHost) {
			h.Status.Provisioning.State = bmov1alpha1.StateExternallyProvisioned // which alone a record has
		}, "PoweredOff", "PoweredOn"},
		"one whose power cannot be switched off": {func(h *bmov1alpha1.BareMetalHost) { h.Spec.DisablePowerOff = true }, "", "Rebooted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).workers(3).onMetal()
			for _, obj := range s.objs {
				if h, is := obj.(*bmov1alpha1.BareMetalHost); is {
					tc.edit(h)
				}
			}
			a := s.run(powerCycle, question(fails("machine/w2")))
			reasons := map[string]bool{"": true}
			for _, e := range a.Timeline {
				reasons[e.Reason] = true
			}
			if !reasons[tc.off] || !reasons[tc.happen] || !reasons["NodeRecovers"] || len(a.Summary.Unhealthy) > 0 {
				t.Errorf("what happens is %+v", a.Timeline)
			}
		})
	}
}

func TestWhereNamesCannotBeLookedUpNoneIsLookedForWithoutEnd(t *testing.T) {
	s := newFixture(t).workers(1)
	w := s.snapshot()
	w.Forbid(clusterv1.GroupVersion.WithKind("Machine"), "machines", true, "default", errors.New("no answer came in time"))
	play, err := newEngine(t.Context(), w, question(nil))
	if err != nil {
		t.Fatal(err)
	}
	if name := (&environment{engine: play}).successor(s.objs[1].(*clusterv1.Machine)); name != "w1-r1" {
		t.Errorf("the name is %q", name)
	}
}

func TestTheChecksOfOneClusterAreSimulated(t *testing.T) {
	check := func(cluster string) *clusterv1.MachineHealthCheck {
		return &clusterv1.MachineHealthCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-" + cluster}, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: cluster},
		}
	}
	for name, tc := range map[string]struct {
		question Question
		want     [2]bool
	}{
		"all, without one":    {Question{Namespace: "ns"}, [2]bool{true, true}},
		"those of one":        {Question{Namespace: "ns", Cluster: "c1"}, [2]bool{true, false}},
		"of all namespaces":   {Question{Cluster: "c2"}, [2]bool{false, true}},
		"none in another one": {Question{Namespace: "other", Cluster: "c1"}, [2]bool{false, false}},
	} {
		if got := [2]bool{tc.question.simulates(check("c1")), tc.question.simulates(check("c2"))}; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	ofNodes := explain.Ref{Kind: "NodeHealthCheck", Name: "nodes"}
	if (Question{Cluster: "c1"}).simulatesOf("", ofNodes) || !(Question{}).simulatesOf("", ofNodes) {
		t.Error("a NodeHealthCheck is of a Cluster")
	}
}
