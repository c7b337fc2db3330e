package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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

// desk is a management cluster with a user in front of it.
type desk struct {
	t      *testing.T
	client client.WithWatch
	typed  string // what the user types
	asks   bool
	out    *bytes.Buffer
}

func deskWith(t *testing.T, objects ...client.Object) *desk {
	t.Helper()
	t.Setenv("COLUMNS", "")
	d := &desk{t: t, asks: true, out: &bytes.Buffer{}}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	d.client = fake.NewClientBuilder().WithScheme(snapshot.New().Scheme()).WithIndex(&coordinationv1.Lease{}, "metadata.name", byName).WithObjects(objects...).Build()
	return d
}

// intercept has others answer some calls from now on.
func (d *desk) intercept(calls interceptor.Funcs) { d.client = interceptor.NewClient(d.client, calls) }

// claims runs claim about a check, and returns what was printed and with which code it ends.
func (d *desk) claims(name string, edits ...func(*byHand)) (string, int) {
	d.t.Helper()
	d.out.Reset()
	b := d.command(genericiooptions.IOStreams{In: strings.NewReader(d.typed), Out: d.out, ErrOut: d.out})
	for _, edit := range edits {
		edit(b)
	}
	err := b.claimNamed(d.t.Context(), subject{machineCheckKind, "metal", name})
	if err != nil {
		_, _ = fmt.Fprintln(d.out, "error:", err)
	}
	exit := Exit{}
	switch {
	case err == nil:
		return d.out.String(), Done
	case errors.As(err, &exit):
		return d.out.String(), exit.Code
	}
	return d.out.String(), Failed
}

// command is a call of claim.
func (d *desk) command(streams genericiooptions.IOStreams) *byHand {
	return &byHand{IOStreams: streams, verb: "claim", client: d.client, now: noon, asks: d.asks}
}

// marks are the values of the annotation, by check; a check without it has none.
func (d *desk) marks() map[string]string {
	d.t.Helper()
	list := &clusterv1.MachineHealthCheckList{}
	if err := d.client.List(d.t.Context(), list); err != nil {
		d.t.Fatal(err)
	}
	all := map[string]string{}
	for i := range list.Items {
		if value, has := list.Items[i].Annotations[clusterv1.PausedAnnotation]; has {
			all[list.Items[i].Name] = value
		}
	}
	return all
}

func lease(namespace, name string, annotations map[string]string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: ptr.To(metav1.NewMicroTime(noon))}
	return l
}

func checkCalled(name, paused string) *clusterv1.MachineHealthCheck {
	c := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name}}
	c.Spec.ClusterName = "prod"
	c.Spec.Selector.MatchLabels = map[string]string{"check": name}
	if paused != "" {
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: paused}
	}
	return c
}

// both are a manager of kubemend and one of core, which are there.
func both() []client.Object {
	prod := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "prod"}}
	return []client.Object{
		prod, lease("kubemend-system", managerlease.LeaseName, map[string]string{mendv1.ManagerAnnotation: `{"version":"v1","unclaimed":"observe"}`}),
		lease("capi-system", coreLeaseName, nil), bound("kubemend-system"),
	}
}

// bound is what binds the ServiceAccount of the manager in a namespace to its role.
func bound(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: managerlease.ServiceAccount + "-in-" + namespace, Labels: managerlease.BindingLabels},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.ClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.ServiceAccount}},
	}
}

func release(b *byHand) { b.verb = "release" }

func namespaceWith(labelled map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "metal", Labels: labelled}}
}

func TestACheckGoesOverAndBack(t *testing.T) {
	d := deskWith(t, append(both(), checkCalled("workers", ""))...)
	d.typed = "y\n"
	dry := func(b *byHand) { b.dryRun = cmdutil.DryRunClient }
	got, code := d.claims("workers", dry)
	if !strings.HasSuffix(got, "mhc/workers in metal claimed (dry run)\n") || code != Done || len(d.marks()) > 0 {
		t.Errorf("dry: code %d, marks %v, printed\n%s", code, d.marks(), got)
	}
	got, code = d.claims("workers")
	want := `claim mhc/workers in metal: kubemend will act on it in place of Cluster API core
Proceed? [y/N] mhc/workers in metal claimed
`
	if unwrapped(got) != want || code != Done || d.marks()["workers"] != "kubemend" {
		t.Errorf("code %d, marks %v, printed\n%s", code, d.marks(), got)
	}
	if got, code = d.claims("workers"); got != "nothing to do for mhc/workers in metal: is claimed already\n" || code != Done {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
	if got, code = d.claims("workers", confirmed, release); code != Done || len(d.marks()) > 0 || !strings.Contains(got, "mhc/workers in metal released") {
		t.Errorf("back: code %d, marks %v, printed\n%s", code, d.marks(), got)
	}
}

// unwrapped takes the breaks of lines out again.
func unwrapped(s string) string { return strings.ReplaceAll(s, "\n    ", " ") }

func TestWhoInterruptsTheQuestionChangesNothing(t *testing.T) {
	d := deskWith(t, append(both(), checkCalled("workers", ""))...)
	d.asks = true
	silent, typing := io.Pipe() // there is no answer
	defer func() { _ = typing.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	asked := &looked{told: func(int) {}}
	asked.told = func(int) {
		if strings.HasSuffix(asked.String(), "[y/N] ") {
			interrupt()
		}
	}
	h := d.command(genericiooptions.IOStreams{In: silent, Out: asked, ErrOut: asked})
	err := h.claimNamed(ctx, subject{machineCheckKind, "metal", "workers"})
	if exit := (Exit{}); !errors.As(err, &exit) || exit.Code != Refused {
		t.Errorf("it ends with %v", err)
	}
	if marks := d.marks(); len(marks) > 0 {
		t.Errorf("the marks are %v", marks)
	}
}

func TestACheckThatAnotherUserHasPausedMeanwhileStays(t *testing.T) {
	d := deskWith(t, append(both(), checkCalled("a", ""))...)
	d.intercept(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		other := checkCalled("a", "")
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), other); err != nil {
			return err
		}
		other.Annotations = map[string]string{clusterv1.PausedAnnotation: "true"}
		return errors.Join(c.Update(ctx, other), c.Patch(ctx, o, p, opts...))
	}})
	got, code := d.claims("a", confirmed)
	if code != Failed || !strings.Contains(got, "claim mhc/a in metal: it was changed meanwhile") || d.marks()["a"] != "true" {
		t.Errorf("code %d, marks %v, printed\n%s", code, d.marks(), got)
	}
	if got, code = d.claims("a", confirmed); code != Refused || !strings.HasPrefix(got, "cannot claim mhc/a in metal: it is paused") {
		t.Errorf("again: code %d, printed\n%s", code, got)
	}
}

// What a label has claimed is not taken for a claim by hand when it is released.
func TestWhatALabelClaimedIsReleasedWithoutATrace(t *testing.T) {
	check := checkCalled("workers", mendv1.Claim)
	check.Annotations[mendv1.ClaimedByAnnotation] = "Cluster"
	d := deskWith(t, append(both(), check, namespaceWith(nil))...)
	got, code := d.claims("workers", confirmed, release)
	if err := d.client.Get(t.Context(), client.ObjectKeyFromObject(check), check); err != nil || code != Done || len(check.Annotations) > 0 {
		t.Errorf("code %d, annotations %v, error %v, printed\n%s", code, check.Annotations, err, got)
	}
}

// docs/cli/claim.md shows what is printed at 100 columns.
func TestClaimsAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/claim.md"
	content := contentOf(t, path)
	d := deskWith(t, append(both(), checkCalled("workers", ""))...)
	t.Setenv("COLUMNS", "100")
	claimed, _ := d.claims("workers", confirmed)
	if err := d.client.Delete(t.Context(), lease("capi-system", coreLeaseName, nil)); err != nil {
		t.Fatal(err)
	}
	released, _ := d.claims("workers", confirmed, release)
	page := withExample(t, content, "claim mhc/workers", claimed)
	golden.Compare(t, path, withExample(t, page, "release mhc/workers", released))
}
