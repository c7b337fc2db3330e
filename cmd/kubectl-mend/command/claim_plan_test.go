package command

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/history"
	decide "github.com/kubemend/kubemend/controllers/decide/claims"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// A claimEdit makes one thing different from a check that can be claimed or released.
type claimEdit func(*claimFacts)

func checkWith(edit func(*explain.ClaimedCheck)) claimEdit {
	return func(f *claimFacts) { edit(&f.checks[0]) }
}

func pausedAs(value string) claimEdit {
	return checkWith(func(c *explain.ClaimedCheck) {
		c.Check.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
	})
}

// labelled is a check with a label of a tool that applies it.
func labelled(key string) claimEdit {
	return checkWith(func(c *explain.ClaimedCheck) { c.Check.Labels = map[string]string{key: "fleet"} })
}

// asked is what labels say of a check that is claimed.
func asked(f decide.Facts) claimEdit {
	f.Covered, f.Pause = true, decide.Claimed
	return checkWith(func(c *explain.ClaimedCheck) { c.Labels = f })
}

func beingRemediated(all map[explain.Remediator][]string) claimEdit {
	return checkWith(func(c *explain.ClaimedCheck) { c.Underway = all })
}

func managerThat(edit func(*managerlease.Manager)) claimEdit {
	return func(f *claimFacts) { edit(&f.managers[0]) }
}

func says(edit func(*managerlease.Announcement)) claimEdit {
	return managerThat(func(m *managerlease.Manager) { edit(m.Announcement) })
}

func coreIs(c explain.CoreLease) claimEdit { return func(f *claimFacts) { f.core = c } }

func claimFactsOf(edits ...claimEdit) claimFacts {
	check := &clusterv1.MachineHealthCheck{}
	check.Namespace, check.Name, check.Spec.ClusterName = "metal", "workers", "prod"
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = "metal", "prod"
	f := claimFacts{
		managers: []managerlease.Manager{{Namespace: "kubemend-system", Holder: "pod", Alive: true, Announcement: &managerlease.Announcement{Version: "v1", Unclaimed: "observe"}}},
		core:     explain.CoreLease{Alive: true},
		checks:   []explain.ClaimedCheck{{Check: check, Cluster: cluster}},
	}
	for _, edit := range edits {
		edit(&f)
	}
	return f
}

func TestChecksAreClaimed(t *testing.T) {
	const plain = "kubemend will act on it in place of Cluster API core"
	paused := func(c *explain.ClaimedCheck) { c.Cluster.Spec.Paused = ptr.To(true) }
	for name, tc := range map[string]struct {
		facts claimFacts
		force bool
		want  string
	}{
		"with a manager that acts on it, it is":     {claimFactsOf(), false, "change: " + plain},
		"whatever is known of core":                 {claimFactsOf(coreIs(explain.CoreLease{Gone: noon})), false, "change: " + plain},
		"one that is claimed already stays":         {claimFactsOf(pausedAs("kubemend")), false, "stays: is claimed already"},
		"one that is claimed is so without manager": {claimFactsOf(pausedAs("kubemend"), func(f *claimFacts) { f.managers = nil }), false, "stays: is claimed already"},
		"a pause of somebody else's is theirs":      {claimFactsOf(pausedAs("true")), false, `refused: it is paused: cluster.x-k8s.io/paused is "true". Neither Cluster API core nor kubemend acts on it, because another client set it; that client, or its user, has to remove it first`},
		"and no force takes it off":                 {claimFactsOf(pausedAs("true")), true, `refused: it is paused: cluster.x-k8s.io/paused is "true". Neither Cluster API core nor kubemend acts on it, because another client set it; that client, or its user, has to remove it first`},
		"a paused Cluster is said":                  {claimFactsOf(checkWith(paused)), false, "change: " + plain + "; Cluster prod is paused: no controller acts on the check while it is"},
		"a Cluster that does not exist is said":     {claimFactsOf(checkWith(func(c *explain.ClaimedCheck) { c.Cluster = nil })), false, "change: " + plain + "; there is no Cluster prod: no controller acts on the check before there is"},
		"one that is being deleted is not":          {claimFactsOf(checkWith(func(c *explain.ClaimedCheck) { c.Check.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) })), false, "refused: it is being deleted"},
		"what could not be read is said": {claimFactsOf(checkWith(func(c *explain.ClaimedCheck) {
			c.Unread = map[explain.ClaimPart]error{explain.ItsMachines: errors.New("no"), explain.ItsCluster: errors.New("no")}
		})), false, "change: " + plain + "; its Cluster could not be read: no; its Machines could not be read, so it is not said which remediations are under way: no"},
		"where none has announced itself, one may run all the same": {claimFactsOf(func(f *claimFacts) { f.managers = nil }), false, "unseen: it cannot be seen whether a manager of kubemend is there to take it: no manager has announced itself"},
		"where only a forged lease says so, too": {claimFactsOf(managerThat(func(m *managerlease.Manager) { m.Alive, m.Unbound = false, true })), false,
			"unseen: it cannot be seen whether a manager of kubemend is there to take it: the lease in kubemend-system is not believed, since no binding with the label app.kubernetes.io/name=kubemend binds a ServiceAccount kubemend-manager of that namespace to the ClusterRole kubemend-manager-role"},
		"and force goes on":                         {claimFactsOf(func(f *claimFacts) { f.managers = nil }), true, "change: " + plain + "; it cannot be seen whether a manager of kubemend is there to take it: no manager has announced itself"},
		"with one that is gone it is not, by force": {claimFactsOf(managerThat(func(m *managerlease.Manager) { m.Alive, m.Gone = false, noon })), true, "refused: no manager of kubemend would act on it: the one in kubemend-system is gone since 2026-01-01T12:00:00Z"},
		"nor with one that leaves":                  {claimFactsOf(says(func(a *managerlease.Announcement) { a.Teardown = true })), false, "refused: no manager of kubemend would act on it: the one in kubemend-system is in teardown, and starts nothing"},
		"nor with one of another namespace":         {claimFactsOf(says(func(a *managerlease.Announcement) { a.Namespace = "other" })), false, "refused: no manager of kubemend would act on it: the one in kubemend-system watches namespace other alone"},
		"nor with one of another shard":             {claimFactsOf(says(func(a *managerlease.Announcement) { a.WatchFilter = "b" })), false, "refused: no manager of kubemend would act on it: the one in kubemend-system watches only objects with the label cluster.x-k8s.io/watch-filter: b"},
		"the right one of several is enough":        {claimFactsOf(func(f *claimFacts) { f.managers = append([]managerlease.Manager{{Namespace: "a"}}, f.managers...) }), false, "change: " + plain},
		"one of its namespace and filter looks at it": {claimFactsOf(
			says(func(a *managerlease.Announcement) { a.Namespace, a.WatchFilter = "metal", "b" }),
			checkWith(func(c *explain.ClaimedCheck) { c.Check.Labels = map[string]string{clusterv1.WatchLabel: "b"} })), false, "change: " + plain},
		"one that says nothing may or may not":      {claimFactsOf(managerThat(func(m *managerlease.Manager) { m.Announcement = nil })), false, "unseen: it cannot be seen whether a manager of kubemend would take it: the one in kubemend-system is of a release that does not say what it watches"},
		"managers that may not be looked for":       {claimFactsOf(func(f *claimFacts) { f.managers, f.unlisted.Err = nil, errors.New("forbidden") }), false, "unseen: it cannot be seen whether a manager of kubemend is there to take it: forbidden"},
		"what cannot be seen is gone over by force": {claimFactsOf(func(f *claimFacts) { f.managers, f.unlisted.Err = nil, errors.New("forbidden") }), true, "change: " + plain + "; it cannot be seen whether a manager of kubemend is there to take it: forbidden"},
		"one that is seen needs no other":           {claimFactsOf(func(f *claimFacts) { f.unlisted.Err = errors.New("forbidden") }), false, "change: " + plain},
		"where Flux applies it, what belongs into Git is said": {claimFactsOf(labelled("kustomize.toolkit.fluxcd.io/name")), false,
			"change: " + plain + "; Flux (Kustomization fleet) applies the check, and leaves the claim alone as long as Git says nothing of the annotation: put " +
				"cluster.x-k8s.io/paused: kubemend into metadata.annotations there, and a check that is made anew is claimed too"},
		"where a topology makes it, what belongs on the Cluster is said": {claimFactsOf(labelled("topology.cluster.x-k8s.io/owned")), false,
			"change: " + plain + "; the topology controller of Cluster API makes the check, and when it makes it anew there is no claim: give Cluster prod the label " +
				"kubemend.io/machine-health-checks: act, in Git too, and kubemend claims all its checks"},
		"that Flux will remove a claim is said": {claimFactsOf(pausedAs("kubemend"), labelled("kustomize.toolkit.fluxcd.io/name"),
			checkWith(func(c *explain.ClaimedCheck) { c.Writer = "kubectl-annotate" })), false,
			"stays: is claimed already; Flux (Kustomization fleet) removes the claim at its next reconcile, since it was written as kubectl-annotate: put " +
				"cluster.x-k8s.io/paused: kubemend into metadata.annotations in Git, or release the check and claim it again with kubectl mend"},
		"a label that is there is not advised": {claimFactsOf(labelled("topology.cluster.x-k8s.io/owned"),
			checkWith(func(c *explain.ClaimedCheck) { c.Labels.Cluster = decide.Act })), false, "change: " + plain},
		"what is under way is said, by what happens": {claimFactsOf(beingRemediated(map[explain.Remediator][]string{explain.ByCore: {"d", "b"}, explain.ByOwner: {"a"}, explain.ByAnother: {"c"}, explain.ByCheck: {"e"}})), false,
			"change: " + plain + "; under way: a, whose owner remediates it, and goes on; under way: e, whose request goes on as kubemend's own; " +
				"under way: b, d, whose requests go on, and kubemend adopts them; under way: c, whose request is not this check's, and is left alone"},
	} {
		t.Run(name, func(t *testing.T) { isPlanned(t, claiming, tc.facts, tc.force, tc.want) })
	}
}

func TestChecksAreGivenBack(t *testing.T) {
	const plain = "Cluster API core will act on it in place of kubemend"
	claimed := pausedAs("kubemend")
	for name, tc := range map[string]struct {
		facts claimFacts
		force bool
		want  string
	}{
		"with a core that runs it is":               {claimFactsOf(claimed), false, "change: " + plain},
		"whatever is known of kubemend":             {claimFactsOf(claimed, func(f *claimFacts) { f.managers = nil }), false, "change: " + plain},
		"one that is not claimed stays":             {claimFactsOf(), false, "stays: is not claimed"},
		"a pause of somebody else's is theirs":      {claimFactsOf(pausedAs("")), true, `refused: it is paused: cluster.x-k8s.io/paused is "". Neither Cluster API core nor kubemend acts on it, because another client set it; that client, or its user, has to remove it first`},
		"without core it is not":                    {claimFactsOf(claimed, coreIs(explain.CoreLease{Gone: noon})), false, "refused: Cluster API core has not run since 2026-01-01T12:00:00Z, so no controller would act on it"},
		"nor by force":                              {claimFactsOf(claimed, coreIs(explain.CoreLease{Gone: noon})), true, "refused: Cluster API core has not run since 2026-01-01T12:00:00Z, so no controller would act on it"},
		"a core that may not be looked for":         {claimFactsOf(claimed, coreIs(explain.CoreLease{Err: errors.New("forbidden")})), false, "unseen: it cannot be seen whether Cluster API core is there to take it: list the leases controller-leader-election-capi: forbidden"},
		"what cannot be seen is gone over by force": {claimFactsOf(claimed, coreIs(explain.CoreLease{Err: errors.New("forbidden")})), true, "change: " + plain + "; it cannot be seen whether Cluster API core is there to take it: list the leases controller-leader-election-capi: forbidden"},
		"where kubemend acts on all it is not": {claimFactsOf(claimed, says(func(a *managerlease.Announcement) { a.Unclaimed = "act" })), true,
			"refused: kubemend's manager in kubemend-system acts on checks that are not claimed as well (--unclaimed-machine-health-checks=act): both it and Cluster API core would act on this one"},
		"where only another namespace's manager acts on all it is": {claimFactsOf(claimed, says(func(a *managerlease.Announcement) { a.Unclaimed, a.Namespace = "act", "other" })), false, "change: " + plain},
		"managers that may not be looked for may act on all":       {claimFactsOf(claimed, func(f *claimFacts) { f.managers, f.unlisted.Err = nil, errors.New("forbidden") }), false, "unseen: it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: forbidden"},
		"and by force it is given back":                            {claimFactsOf(claimed, func(f *claimFacts) { f.managers, f.unlisted.Err = nil, errors.New("forbidden") }), true, "change: " + plain + "; it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: forbidden"},
		"one that is seen needs no other":                          {claimFactsOf(claimed, func(f *claimFacts) { f.unlisted.Err = errors.New("forbidden") }), false, "change: " + plain},
		"one that says nothing may act on all": {claimFactsOf(claimed, managerThat(func(m *managerlease.Manager) { m.Announcement = nil })), false,
			"unseen: it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: the one in kubemend-system is of a release that does not say what it watches"},
		"neither core nor managers may be looked for": {claimFactsOf(claimed, coreIs(explain.CoreLease{Err: errors.New("no")}), func(f *claimFacts) { f.managers, f.unlisted.Err = nil, errors.New("forbidden") }), false,
			"unseen: it cannot be seen whether Cluster API core is there to take it: list the leases controller-leader-election-capi: no; and it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: forbidden"},
		"that core is gone is known all the same": {claimFactsOf(claimed, coreIs(explain.CoreLease{Gone: noon}), func(f *claimFacts) { f.managers, f.unlisted.Err = nil, errors.New("forbidden") }), true,
			"refused: Cluster API core has not run since 2026-01-01T12:00:00Z, so no controller would act on it"},
		"where Argo CD applies it, what is to be removed from Git is said": {claimFactsOf(claimed, labelled("argocd.argoproj.io/instance")), false,
			"change: " + plain + "; Argo CD (Application fleet) applies the check: if Git has the annotation cluster.x-k8s.io/paused, remove it there, or it is written again"},
		"a topology writes no annotation": {claimFactsOf(claimed, labelled("topology.cluster.x-k8s.io/owned")), false, "change: " + plain},
		"one that a label claims is not, also by force": {claimFactsOf(claimed, asked(decide.Facts{Cluster: decide.Act, By: decide.Cluster})), true,
			"refused: Cluster prod has the label kubemend.io/machine-health-checks: act, so kubemend would claim it again at once: remove the label, in Git too, and all checks that it claims are released: kubectl mend release cluster/prod -n metal"},
		"nor one that was claimed by hand before the label was there": {claimFactsOf(claimed, asked(decide.Facts{Cluster: decide.Act, Namespace: decide.Act})), true,
			"refused: Cluster prod and Namespace metal have the label kubemend.io/machine-health-checks: act, so kubemend would claim it again at once: remove the label, in Git too, and all checks that it claims are released: kubectl mend release cluster/prod -n metal; kubectl mend release namespace/metal"},
		"whose label it is is said": {claimFactsOf(claimed, asked(decide.Facts{Namespace: decide.Act, By: decide.Cluster})), false,
			"refused: Namespace metal has the label kubemend.io/machine-health-checks: act, so kubemend would claim it again at once: remove the label, in Git too, and all checks that it claims are released: kubectl mend release namespace/metal"},
		"a label that cannot be seen may be there": {claimFactsOf(claimed, asked(decide.Facts{Namespace: decide.Unread, By: decide.Namespace})), false,
			"unseen: it was claimed by the label kubemend.io/machine-health-checks: act on Namespace metal, and it cannot be seen whether that is still there: kubemend would claim it again at once"},
		"and by force it is released all the same": {claimFactsOf(claimed, asked(decide.Facts{Namespace: decide.Unread, By: decide.Namespace})), true,
			"change: " + plain + "; it was claimed by the label kubemend.io/machine-health-checks: act on Namespace metal, and it cannot be seen whether that is still there: kubemend would claim it again at once"},
		"a label that cannot be seen matters not to a claim by hand": {claimFactsOf(claimed, asked(decide.Facts{Namespace: decide.Unread})), false, "change: " + plain},
		"one whose label is gone is released":                        {claimFactsOf(claimed, asked(decide.Facts{By: decide.Namespace})), false, "change: " + plain},
		"a label of another value claims nothing again":              {claimFactsOf(claimed, asked(decide.Facts{Cluster: decide.Invalid, By: decide.Cluster})), false, "change: " + plain},
		"what is under way is said, by what happens": {claimFactsOf(claimed, beingRemediated(map[explain.Remediator][]string{explain.ByCheck: {"b"}, explain.ByOwner: {"d", "a"}, explain.ByAnother: {"c"}})), false,
			"change: " + plain + "; under way: a, d, whose owners remediate them, and go on; under way: b, whose request goes on, and core deletes it when the machine is healthy; " +
				"under way: c, whose request is not this check's, and is left alone"},
	} {
		t.Run(name, func(t *testing.T) { isPlanned(t, releasing, tc.facts, tc.force, tc.want) })
	}
}

func isPlanned(t *testing.T, w way, f claimFacts, force bool, want string) {
	t.Helper()
	claims := planHanding(w, f, force)
	if len(claims) != 1 {
		t.Fatalf("%d checks are planned", len(claims))
	}
	is := "stays"
	switch c := claims[0]; {
	case c.Changes():
		is = "change"
	case c.Unseen() && c.Refused():
		is = "unseen"
	case c.Refused():
		is = "refused"
	}
	if got := is + ": " + claims[0].Text(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestChecksAreInTheOrderOfTheirNames(t *testing.T) {
	f := claimFacts{}
	for _, name := range []string{"b/a", "a/b", "a/a"} {
		check := &clusterv1.MachineHealthCheck{}
		check.Namespace, check.Name, _ = strings.Cut(name, "/")
		f.checks = append(f.checks, explain.ClaimedCheck{Check: check})
	}
	var got []string
	for _, c := range planHanding(claiming, f, false) {
		got = append(got, c.Check.Namespace+"/"+c.Check.Name)
	}
	if order := strings.Join(got, " "); order != "a/a a/b b/a" {
		t.Errorf("got %s", order)
	}
}

func TestItIsSaidWhosePauseItIs(t *testing.T) {
	fields := metav1.NewFieldsV1
	at := metav1.NewTime(noon)
	check := &clusterv1.MachineHealthCheck{}
	if writer, _ := history.PausedBy(check); writer != "" {
		t.Errorf("of a check without managed fields it says %q", writer)
	}
	check.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "argocd", FieldsV1: fields(`{"f:metadata":{"f:annotations":{"f:other":{}}}}`)},
		{Manager: "broken", FieldsV1: fields(`{`)},
		{Manager: "nothing"},
		{Manager: "kubectl-annotate", Time: &at, FieldsV1: fields(`{"f:metadata":{"f:annotations":{".":{},"f:cluster.x-k8s.io/paused":{}}}}`)},
	}
	claim := explain.Claim{Reason: explain.PausedByUser, ClaimedCheck: explain.ClaimedCheck{Check: check}}
	claim.Writer, claim.Written = history.PausedBy(check)
	if got, want := claim.Text(), ", written by kubectl-annotate, whose last change of the check was at 2026-01-01T12:00:00Z."; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A user may be allowed to change checks, and little else.
func TestWhatMayNotBeReadIsSaidAndForcedOver(t *testing.T) {
	forbidden := func(what string) error {
		return apierrors.NewForbidden(clusterv1.GroupVersion.WithResource(what).GroupResource(), "", errors.New("not you"))
	}
	d := deskWith(t, append(both(), checkNamed("workers", ""))...)
	d.intercept(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		switch list.(type) {
		case *coordinationv1.LeaseList:
			return forbidden("leases")
		case *clusterv1.MachineList:
			return forbidden("machines")
		}
		return c.List(ctx, list, opts...)
	}})
	names := selection{names: []string{"workers"}}
	got, code := d.hands(claiming, names, yes)
	if code != Done || d.marks()["workers"] != "kubemend" || !strings.Contains(unwrapped(got), "its Machines could not be read") {
		t.Errorf("one that is where it usually is may be read: code %d, printed\n%s", code, got)
	}
	d.intercept(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		switch o.(type) {
		case *coordinationv1.Lease:
			return forbidden("leases")
		case *clusterv1.Cluster:
			return forbidden("clusters")
		}
		return c.Get(ctx, key, o, opts...)
	}})
	got, code = d.hands(releasing, names, yes)
	if code != Refused || d.marks()["workers"] != "kubemend" || !strings.Contains(unwrapped(got), "it cannot be seen whether Cluster API core is there to take it") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
	got, code = d.hands(releasing, names, yes, func(h *handing) { h.force = true })
	if code != Done || len(d.marks()) > 0 || !strings.Contains(unwrapped(got), "its Cluster could not be read") {
		t.Errorf("code %d, printed\n%s", code, got)
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		s    selection
		says string
	}{
		"one name that is wrong stops all": {selection{names: []string{"workers", "wrokers"}}, "error: there is no MachineHealthCheck wrokers in namespace metal"},
		"a check of another Cluster":       {selection{names: []string{"workers"}, cluster: "test"}, "error: MachineHealthCheck metal/workers is of Cluster prod, not of test"},
		"a Cluster without checks":         {selection{cluster: "test"}, "error: no MachineHealthCheck in namespace metal is selected"},
		"a label that none has":            {selection{labels: labels.SelectorFromSet(labels.Set{"team": "b"})}, "error: no MachineHealthCheck in namespace metal is selected"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deskWith(t, append(both(), checkNamed("workers", ""))...)
			if got, code := d.hands(claiming, tc.s, yes); code != Failed || !strings.Contains(got, tc.says) || len(d.marks()) > 0 {
				t.Errorf("code %d, marks %v, printed\n%s", code, d.marks(), got)
			}
		})
	}
}

func TestCoreIsKnownByItsLease(t *testing.T) {
	given := lease("capi-system", managerlease.CoreLeaseName, nil)
	given.Spec.HolderIdentity = nil
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		now   time.Time
		want  explain.CoreLease
	}{
		"one that was renewed is of a core that runs": {lease("capi-system", managerlease.CoreLeaseName, nil), noon.Add(59 * time.Second), explain.CoreLease{Alive: true}},
		"one where core is not bound is not believed": {lease("elsewhere", managerlease.CoreLeaseName, nil), noon, explain.CoreLease{
			Leases: []managerlease.Off{{Reason: managerlease.Unbound, Manager: managerlease.Manager{Namespace: "elsewhere"}}},
		}},
		"one that ran out is of a core that is gone": {lease("capi-system", managerlease.CoreLeaseName, nil), noon.Add(time.Minute), explain.CoreLease{Gone: noon.Add(time.Minute)}},
		"one that was given back as well":            {given, noon.Add(time.Second), explain.CoreLease{Gone: noon}},
		"without one it is not known":                {lease("capi-system", "another", nil), noon, explain.CoreLease{NoLease: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got := coreSeen(t.Context(), deskWith(t, tc.lease, bound(managerlease.OfCore, "capi-system")).client, tc.now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
