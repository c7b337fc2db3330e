package hostremediation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// lagging is a client whose caches of remediations show what was so some time ago. Each remediation is as old as it likes, as it is where those of two
// kinds come from two watches.
type lagging struct {
	client.WithWatch
	mu      sync.Mutex
	cached  map[client.ObjectKey]*mendv1.HostRemediation
	prompt  bool
	catches func() bool
}

// read brings the caches up to date, as far as they are now, and returns what they have.
func (l *lagging) read(ctx context.Context) (map[client.ObjectKey]*mendv1.HostRemediation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := &mendv1.HostRemediationList{}
	if err := l.List(ctx, all); err != nil {
		return nil, err
	}
	if l.cached == nil {
		l.cached = map[client.ObjectKey]*mendv1.HostRemediation{}
	}
	for i := range all.Items {
		key := client.ObjectKeyFromObject(&all.Items[i])
		if l.cached[key] == nil || l.prompt || l.catches() {
			l.cached[key] = &all.Items[i]
		}
	}
	return maps.Clone(l.cached), nil
}

func (l *lagging) cache() client.Client {
	return interceptor.NewClient(l.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			rem, is := into.(*mendv1.HostRemediation)
			if !is {
				return c.Get(ctx, key, into, opts...)
			}
			all, err := l.read(ctx)
			if err == nil {
				all[key].DeepCopyInto(rem)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			list, is := into.(*mendv1.HostRemediationList)
			if !is {
				return c.List(ctx, into, opts...)
			}
			all, err := l.read(ctx)
			for _, rem := range all {
				list.Items = append(list.Items, *rem.DeepCopy())
			}
			return err
		},
	})
}

// crowd are hosts of a control plane whose powers many reconciles act on at once. The cache of hosts may or may not show yet what was asked.
type crowd struct {
	Hosts
	mu   sync.Mutex
	held map[string]types.UID
	most int
	lags func() bool
}

func (c *crowd) Of(_ context.Context, m *clusterv1.Machine) (host.Found, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &bmov1alpha1.BareMetalHost{}
	h.Namespace, h.Name, h.UID, h.Annotations = "ns", m.Name, types.UID("host-"+m.Name), map[string]string{}
	h.Spec.Online, h.Status.PoweredOn, h.Status.Provisioning.State = true, true, bmov1alpha1.StateProvisioned
	if by := c.held[m.Name]; by != "" && !c.lags() {
		h.Annotations[holdOff+string(by)] = infrav1.PowerOffAnnotationValue
	}
	return host.Found{Host: h, Is: powercycle.HostOurs}, nil
}

func (c *crowd) KeepOff(_ context.Context, h *bmov1alpha1.BareMetalHost, by host.Remediation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[h.Name] = by.UID
	c.most = max(c.most, len(c.held))
	return nil
}

func (c *crowd) Release(_ context.Context, h *bmov1alpha1.BareMetalHost, _ host.Remediation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, h.Name)
	return nil
}

// Design, "What must hold, always", 4. Many reconciles run at once, each with caches that are behind.
func TestReconcilesThatRunAtOncePowerOffOneControlPlaneHost(t *testing.T) {
	for round := range 20 {
		p := planeOf(t, "b", "c")
		p.deletesRemediation()
		chance := rand.New(rand.NewPCG(uint64(round), 1))
		var dice sync.Mutex
		oneIn := func(n int) func() bool {
			return func() bool {
				dice.Lock()
				defer dice.Unlock()
				return chance.IntN(n) == 0
			}
		}
		shows := oneIn(10)
		hosts := &crowd{held: map[string]types.UID{}, lags: func() bool { return !shows() }}
		l := &lagging{WithWatch: p.client.(client.WithWatch), catches: oneIn(10)}
		p.r.Client, p.r.Hosts, p.r.Nodes = l.cache(), hosts, unasked{}
		var names []string
		for _, machine := range []string{"m", "b", "c"} {
			for n := range 2 {
				names = append(names, p.asksFor(machine, n))
			}
		}
		reconcileAll(t, p.r, names, 8)
		if hosts.most > 1 {
			t.Fatalf("round %d: %d hosts of one control plane are kept powered off: %v", round, hosts.most, hosts.held)
		}
		l.prompt, hosts.lags = true, func() bool { return false }
		reconcileAll(t, p.r, names, 8)
		if hosts.most != 1 {
			t.Fatalf("round %d: %d hosts are kept powered off once the caches have caught up, want 1", round, hosts.most)
		}
	}
}

// reconcileAll makes so many reconciles over each, all at once.
func reconcileAll(t *testing.T, r *Reconciler, names []string, times int) {
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			for range times {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	all.Wait()
}

// asksFor creates a remediation of a machine.
func (p *plane) asksFor(machine string, nth int) string {
	p.t.Helper()
	uid := types.UID("machine-uid")
	if machine != "m" {
		uid = types.UID(machine + "-uid")
	}
	name := fmt.Sprintf("%s-%d", machine, nth)
	rem := remembering(name, types.UID("uid-of-"+name), ofMachine(machine, uid), "")
	rem.ResourceVersion = ""
	if err := p.client.Create(p.t.Context(), rem); err != nil {
		p.t.Fatal(err)
	}
	return name
}

func (p *plane) deletesRemediation() {
	p.t.Helper()
	if err := p.client.Delete(p.t.Context(), p.remediation()); err != nil {
		p.t.Fatal(err)
	}
}
