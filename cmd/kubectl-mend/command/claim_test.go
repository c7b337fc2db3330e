package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// clientWith returns a client of an API server with these objects.
func clientWith(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	scheme := snapshot.Scheme
	return fake.NewClientBuilder().WithScheme(scheme).WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).WithObjects(objects...).Build()
}

func lease(namespace, name string, annotations map[string]string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: ptr.To(metav1.NewMicroTime(noon))}
	return l
}

// bound returns the ClusterRoleBinding of the manager's ServiceAccount in a namespace.
func bound(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: managerlease.ServiceAccount + "-in-" + namespace, Labels: managerlease.BindingLabels},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.ClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.ServiceAccount}},
	}
}

// unclaimed removes the claim from the check, and adds a running Cluster API core.
func unclaimed(p *place) {
	p.check.Annotations = nil
	p.objects = append(p.objects, lease("capi-system", coreLeaseName, nil), bound("kubemend-system"))
}

// claimed returns the stored annotations of the check.
func (p *place) claimed() map[string]string {
	p.t.Helper()
	check := &clusterv1.MachineHealthCheck{}
	must.Do(p.t, p.client.Get(p.t.Context(), client.ObjectKeyFromObject(p.check), check))
	return check.Annotations
}

func TestACheckGoesOverAndBack(t *testing.T) {
	p := aPlace(t, unclaimed)
	p.typed = "y\n"
	dry := func(b *byHand) { b.dryRun = cmdutil.DryRunClient }
	got, code := p.does("claim", "mhc/workers", dry)
	if !strings.HasSuffix(got, "mhc/workers in metal claimed (dry run)\n") || code != Done || len(p.claimed()) > 0 {
		t.Errorf("dry: code %d, annotations %v, printed\n%s", code, p.claimed(), got)
	}
	got, code = p.does("claim", "mhc/workers")
	want := `claim mhc/workers in metal: kubemend will act on it in place of Cluster API core
Proceed? [y/N] mhc/workers in metal claimed
`
	if got != want || code != Done || p.claimed()[clusterv1.PausedAnnotation] != "kubemend" {
		t.Errorf("code %d, annotations %v, printed\n%s", code, p.claimed(), got)
	}
	if got, code = p.does("claim", "mhc/workers"); got != "nothing to do for mhc/workers in metal: is claimed already\n" || code != Done {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
	got, code = p.does("release", "mhc/workers", confirmed)
	if code != Done || len(p.claimed()) > 0 || !strings.Contains(got, "mhc/workers in metal released") {
		t.Errorf("back: code %d, annotations %v, printed\n%s", code, p.claimed(), got)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestWhoInterruptsTheQuestionChangesNothing(t *testing.T) {
	silent, typing := io.Pipe() // never has an answer
	defer func() { _ = typing.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	asked := writer(func(p []byte) (int, error) { interrupt(); return len(p), nil })
	b := &byHand{IOStreams: genericiooptions.IOStreams{In: silent, Out: asked, ErrOut: asked}, asks: true}
	if exit := (Exit{}); !errors.As(b.ask(ctx), &exit) || exit.Code != Refused {
		t.Errorf("it ends with %v", exit)
	}
}

func TestACheckThatAnotherUserHasPausedMeanwhileStays(t *testing.T) {
	p := aPlace(t, unclaimed)
	p.client = interceptor.NewClient(p.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			other := &clusterv1.MachineHealthCheck{}
			err := c.Get(ctx, client.ObjectKeyFromObject(o), other)
			other.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} // an empty value pauses like any other
			return errors.Join(err, c.Update(ctx, other), c.Patch(ctx, o, p, opts...))
		},
	})
	got, code := p.does("claim", "mhc/workers", confirmed)
	changed := strings.Contains(got, "claim mhc/workers in metal: it was changed meanwhile")
	if value, paused := p.claimed()[clusterv1.PausedAnnotation]; code != Failed || !changed || !paused || value != "" {
		t.Errorf("code %d, annotations %v, printed\n%s", code, p.claimed(), got)
	}
}

// docs/cli/claim.md shows the output at 100 columns.
func TestClaimsAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/claim.md"
	p := aPlace(t, unclaimed)
	t.Setenv("COLUMNS", "100")
	claimed, _ := p.prints("claim", "mhc/workers", confirmed)
	must.Do(t, p.client.Delete(t.Context(), lease("capi-system", coreLeaseName, nil)))
	released, _ := p.prints("release", "mhc/workers", confirmed)
	page := withExample(t, contentOf(t, path), "claim mhc/workers", claimed)
	golden.Compare(t, path, withExample(t, page, "release mhc/workers", released))
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// checkPaused returns a check of Cluster prod, with this value of the paused annotation unless it is empty.
func checkPaused(value string) *clusterv1.MachineHealthCheck {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers"}}
	if check.Spec.ClusterName = "prod"; value != "" {
		check.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
	}
	return check
}

// claimFactsOf returns the facts of a check that can be claimed or, if paused is "kubemend", released.
func claimFactsOf(paused string, edits ...func(*claimFacts)) *claimFacts {
	facts := &claimFacts{check: checkPaused(paused), cluster: &clusterv1.Cluster{}}
	facts.managers = []managerlease.Manager{{
		Namespace: "kubemend-system", Holder: "pod", Alive: true, Announcement: &managerlease.Announcement{Version: "v1", Unclaimed: "observe"},
	}}
	for _, edit := range edits {
		edit(facts)
	}
	return facts
}

func announcing(edit func(*managerlease.Announcement)) func(*claimFacts) {
	return func(f *claimFacts) { edit(f.managers[0].Announcement) }
}

func unlisted(f *claimFacts) { f.managers, f.unlisted = nil, errors.New("forbidden") }
func unread(f *claimFacts)   { f.managers[0].Unverified = "no rights" }
func coreGone(f *claimFacts) { f.withoutCore = "Cluster API core has not run since" }
func byPolicy(f *claimFacts) {
	f.check.Annotations[mendv1.ClaimedByAnnotation] = mendv1.ClaimedByPolicy
}
func coreUnread(f *claimFacts) {
	f.withoutCore = unseen("Cluster API core runs", "core is not seen")
}

func TestChecksAreClaimedIfAManagerWouldActOnThem(t *testing.T) {
	const claims = "change: kubemend will act on it in place of Cluster API core"
	const unseen = "refused: it is not known whether a manager of kubemend acts on it: "
	byFlux := func(f *claimFacts) { f.check.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet"} }
	for name, tc := range map[string]struct {
		facts *claimFacts
		want  string
	}{
		"with a manager that acts on it, it is":      {claimFactsOf(""), claims},
		"whatever is known of core":                  {claimFactsOf("", coreGone), claims},
		"one that is claimed already stays":          {claimFactsOf("kubemend", unlisted), "stays: is claimed already"},
		"a pause of another user is not overwritten": {claimFactsOf("true"), `refused: it is paused: cluster.x-k8s.io/paused is "true"`},
		"one that is being deleted is not": {claimFactsOf("", func(f *claimFacts) { f.check.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }),
			"refused: it is being deleted"},
		"where none has announced itself it is not": {claimFactsOf("", func(f *claimFacts) { f.managers = nil }),
			"refused: no manager of kubemend was found"},
		"with one that is gone it is not": {claimFactsOf("", func(f *claimFacts) { f.managers[0].Alive, f.managers[0].Gone = false, noon }),
			"refused: no manager of kubemend would act on it: the one in kubemend-system is gone since 2026-01-01T12:00:00Z"},
		"nor with one of another shard": {claimFactsOf("", announcing(func(a *managerlease.Announcement) { a.WatchFilter = "b" })),
			"refused: no manager of kubemend would act on it: the one in kubemend-system watches only objects with the label"},
		"the right one of several is enough":    {claimFactsOf("", func(f *claimFacts) { f.managers = append([]managerlease.Manager{{Namespace: "a"}}, f.managers...) }), claims},
		"one that may be none may or may not":   {claimFactsOf("", unread), unseen + "it is not known whether the lease in kubemend-system belongs"},
		"managers that may not be looked for":   {claimFactsOf("", unlisted), unseen + "forbidden. Run the command as a user who may read that"},
		"one that is seen needs no other":       {claimFactsOf("", func(f *claimFacts) { f.unlisted = errors.New("forbidden") }), claims},
		"which tool applies the check is named": {claimFactsOf("", byFlux), claims + "; Flux applies the check"},
	} {
		t.Run(name, func(t *testing.T) { isPlanned(t, false, tc.facts, tc.want) })
	}
}

func TestChecksAreReleasedIfCoreAndNobodyElseWouldActOnThem(t *testing.T) {
	const releases = "change: Cluster API core will act on it in place of kubemend"
	const others = "refused: it is not known whether a manager of kubemend acts on checks that are not claimed as well: "
	const unseenCore = "refused: it is not known whether Cluster API core runs: "
	actsOnAll := announcing(func(a *managerlease.Announcement) { a.Unclaimed = "act" })
	for name, tc := range map[string]struct {
		facts *claimFacts
		want  string
	}{
		"with a core that runs it is":                  {claimFactsOf("kubemend"), releases},
		"also without a manager of kubemend":           {claimFactsOf("kubemend", func(f *claimFacts) { f.managers = nil }), releases},
		"one that is not claimed stays":                {claimFactsOf(""), "stays: is not claimed"},
		"a pause of another user is not removed":       {claimFactsOf("true"), "refused: it is paused"},
		"without core it is not":                       {claimFactsOf("kubemend", coreGone, unlisted), "refused: Cluster API core has not run since"},
		"a core that may not be looked for":            {claimFactsOf("kubemend", coreUnread), unseenCore + "core is not seen"},
		"where kubemend acts on all it is not":         {claimFactsOf("kubemend", actsOnAll), "refused: kubemend's manager in kubemend-system acts on checks that are not claimed as well"},
		"nor where core may not be looked for besides": {claimFactsOf("kubemend", actsOnAll, coreUnread), "refused: kubemend's manager in kubemend-system acts on checks"},
		"managers that may not be looked for":          {claimFactsOf("kubemend", unlisted), others + "forbidden"},
		"one that is seen needs no other":              {claimFactsOf("kubemend", func(f *claimFacts) { f.unlisted = errors.New("forbidden") }), releases},
		"one that may be none may act on all":          {claimFactsOf("kubemend", unread), others + "it is not known whether the lease in kubemend-system belongs"},
		"one that a policy would claim again at once": {claimFactsOf("kubemend", byPolicy),
			"refused: a RemediationPolicy with mode Act claims it"},
		"only another namespace's manager acts on all": {claimFactsOf("kubemend", actsOnAll, announcing(func(a *managerlease.Announcement) { a.Namespace = "other" })), releases},
		"one that may act on all, beside one of its own": {claimFactsOf("kubemend", func(f *claimFacts) {
			f.managers = append(f.managers, managerlease.Manager{Namespace: "b", Alive: true, Unverified: "no rights"})
		}), others},
	} {
		t.Run(name, func(t *testing.T) { isPlanned(t, true, tc.facts, tc.want) })
	}
}

// isPlanned compares the beginning of the plan.
func isPlanned(t *testing.T, release bool, facts *claimFacts, want string) {
	t.Helper()
	decided := planClaim(facts, release)
	got := map[outcome]string{changes: "change: ", staysSo: "stays: ", refuses: "refused: "}[decided.outcome] + decided.text
	if !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCoreIsKnownByItsLease(t *testing.T) {
	given := lease("capi-system", coreLeaseName, nil)
	given.Spec.HolderIdentity = nil
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		now   time.Time
		want  string
	}{
		"one that was renewed is of a core that runs": {lease("capi-system", coreLeaseName, nil), noon.Add(59 * time.Second), ""},
		"one that a tenant can write is not looked at": {lease("elsewhere", coreLeaseName, nil), noon,
			"it is not known whether Cluster API core runs: read"},
		"one that ran out is of a core that is gone": {lease("capi-system", coreLeaseName, nil), noon.Add(time.Minute),
			"Cluster API core has not run since 2026-01-01T12:01:00Z, so no controller would act on it"},
		"one that was given back as well": {given, noon.Add(time.Second),
			"Cluster API core has not run since 2026-01-01T12:00:00Z, so no controller would act on it"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &byHand{client: clientWith(t, tc.lease), now: tc.now}
			if got := b.withoutCore(t.Context()); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
