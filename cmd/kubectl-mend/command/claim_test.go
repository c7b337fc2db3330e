package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

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

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/test/golden"
)

// clientWith reads and writes these objects.
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

// bound is what binds the ServiceAccount of the manager in a namespace to its role.
func bound(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: managerlease.ServiceAccount + "-in-" + namespace, Labels: managerlease.BindingLabels},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerlease.ClusterRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: managerlease.ServiceAccount}},
	}
}

// unclaimed has the check not claimed, beside a core that runs.
func unclaimed(p *place) {
	p.check.Annotations = nil
	p.objects = append(p.objects, lease("capi-system", coreLeaseName, nil), bound("kubemend-system"))
}

// claimed are the annotations of the check as it is stored.
func (p *place) claimed() map[string]string {
	p.t.Helper()
	check := &clusterv1.MachineHealthCheck{}
	if err := p.client.Get(p.t.Context(), client.ObjectKeyFromObject(p.check), check); err != nil {
		p.t.Fatal(err)
	}
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
	silent, typing := io.Pipe() // there is no answer
	defer func() { _ = typing.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	asked := writer(func(p []byte) (int, error) { interrupt(); return len(p), nil })
	b := &byHand{IOStreams: genericiooptions.IOStreams{In: silent, Out: asked, ErrOut: asked}, asks: true}
	if exit := (Exit{}); !errors.As(b.ask(ctx), &exit) || exit.Code != Refused {
		t.Errorf("it ends with %v", exit)
	}
}

func TestACheckThatAnotherUserHasPausedMeanwhileStays(t *testing.T) {
	pause := func(ctx context.Context, c client.WithWatch, key client.ObjectKey) error {
		other := &clusterv1.MachineHealthCheck{}
		err := c.Get(ctx, key, other)
		other.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} // which pauses like any other value
		return errors.Join(err, c.Update(ctx, other))
	}
	for name, calls := range map[string]func(reads *int) interceptor.Funcs{
		"after the question": func(reads *int) interceptor.Funcs {
			get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, check := o.(*clusterv1.MachineHealthCheck); check {
					if *reads++; *reads == 2 {
						return errors.Join(pause(ctx, c, key), c.Get(ctx, key, o, opts...))
					}
				}
				return c.Get(ctx, key, o, opts...)
			}
			return interceptor.Funcs{Get: get}
		},
		"before the write": func(*int) interceptor.Funcs {
			patch := func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return errors.Join(pause(ctx, c, client.ObjectKeyFromObject(o)), c.Patch(ctx, o, p, opts...))
			}
			return interceptor.Funcs{Patch: patch}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, unclaimed)
			p.client = interceptor.NewClient(p.client.(client.WithWatch), calls(new(int)))
			got, code := p.does("claim", "mhc/workers", confirmed)
			changed := strings.Contains(got, "claim mhc/workers in metal: it was changed meanwhile")
			if value, paused := p.claimed()[clusterv1.PausedAnnotation]; code != Failed || !changed || !paused || value != "" {
				t.Errorf("code %d, annotations %v, printed\n%s", code, p.claimed(), got)
			}
		})
	}
}

// docs/cli/claim.md shows what is printed at 100 columns.
func TestClaimsAreDocumented(t *testing.T) {
	const path = "../../../docs/cli/claim.md"
	p := aPlace(t, unclaimed)
	t.Setenv("COLUMNS", "100")
	claimed, _ := p.prints("claim", "mhc/workers", confirmed)
	if err := p.client.Delete(t.Context(), lease("capi-system", coreLeaseName, nil)); err != nil {
		t.Fatal(err)
	}
	released, _ := p.prints("release", "mhc/workers", confirmed)
	page := withExample(t, contentOf(t, path), "claim mhc/workers", claimed)
	golden.Compare(t, path, withExample(t, page, "release mhc/workers", released))
}
