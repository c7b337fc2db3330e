package baremetal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/rig"
)

// chronicle remembers every version of every host, node, machine and remediation. Since one API server has them all, their resource
// versions say what was before what, also between objects of different kinds.
type chronicle struct {
	mu      sync.Mutex
	moments map[string][]moment // by namespace; a node is in that of its machine
	broken  []string
}

// moment is an object at a revision.
type moment struct {
	revision uint64
	object   client.Object
	gone     bool
}

func newChronicle(config *rest.Config) *chronicle {
	GinkgoHelper()
	watcher, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	Expect(err).NotTo(HaveOccurred())
	c := &chronicle{moments: map[string][]moment{}}
	ctx, stop := context.WithCancel(context.Background())
	DeferCleanup(stop)
	for _, list := range []client.ObjectList{
		&bmov1alpha1.BareMetalHostList{}, &corev1.NodeList{}, &clusterv1.MachineList{}, &infrav1.Metal3RemediationList{}, &mendv1.HostRemediationList{},
	} {
		events, err := rig.Follow(ctx, watcher, list)
		Expect(err).NotTo(HaveOccurred())
		go c.write(events.ResultChan())
	}
	return c
}

// write writes down all that happens to objects of a kind.
func (c *chronicle) write(events <-chan watch.Event) {
	for e := range events {
		o, is := e.Object.(client.Object)
		revision, err := uint64(0), error(nil)
		if is {
			revision, err = strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		}
		c.mu.Lock()
		if !is || err != nil {
			c.broken = append(c.broken, fmt.Sprintf("%v %+v", err, e.Object))
		} else {
			o.SetManagedFields(nil) // no test reads them, and there are many versions
			at := placeOf(o)
			c.moments[at] = append(c.moments[at], moment{revision, o, e.Type == watch.Deleted})
		}
		c.mu.Unlock()
	}
}

// placeOf is the namespace of an environment. The name of a node begins with it.
func placeOf(o client.Object) string {
	if _, is := o.(*corev1.Node); is {
		return o.GetName()[:max(strings.LastIndex(o.GetName(), "-"), 0)]
	}
	return o.GetNamespace()
}

// nameOf is the name of a host, and of the host of a node.
func nameOf(o client.Object) string { return o.GetName()[strings.LastIndex(o.GetName(), "-")+1:] }

// of is all that has happened in a namespace, in order.
func (c *chronicle) of(namespace string) []moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	Expect(c.broken).To(BeEmpty())
	all := slices.Clone(c.moments[namespace])
	slices.SortStableFunc(all, func(a, b moment) int { return cmp.Compare(a.revision, b.revision) })
	return all
}

// knows reports whether this version of an object was seen.
func (c *chronicle) knows(o client.Object) bool {
	return slices.ContainsFunc(c.of(placeOf(o)), func(m moment) bool {
		return m.object.GetUID() == o.GetUID() && m.object.GetResourceVersion() == o.GetResourceVersion()
	})
}

// forget drops what was recorded of a namespace.
func (c *chronicle) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.moments, namespace)
}

// when is the first revision, after another one, at which some object was like that; 0 if none ever was.
func (c *chronicle) when(namespace string, after uint64, like func(client.Object) bool) uint64 {
	for _, m := range c.of(namespace) {
		if m.revision > after && !m.gone && like(m.object) {
			return m.revision
		}
	}
	return 0
}

// onHost and onNode are for questions about the versions of these.
func onHost(like func(*bmov1alpha1.BareMetalHost) bool) func(client.Object) bool {
	return func(o client.Object) bool {
		h, is := o.(*bmov1alpha1.BareMetalHost)
		return is && h.Name != neighbour && like(h)
	}
}

func onNode(like func(*corev1.Node) bool) func(client.Object) bool {
	return func(o client.Object) bool {
		n, is := o.(*corev1.Node)
		return is && nameOf(n) != neighbour && like(n)
	}
}

// held reports whether any remediation acts on the power of a host.
func held(h *bmov1alpha1.BareMetalHost) bool {
	for key := range h.Annotations {
		if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) || key == mendv1.RebootedForAnnotation {
			return true
		}
	}
	return false
}

// fenced reports whether a node bears a taint that we put there.
func fenced(n *corev1.Node) bool {
	_, ours := n.Annotations[fence.FencedByAnnotation]
	return ours && outOfService(n)
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}

// faults are the moments at which something was not safe.
//
// A taint of ours has to appear while the host is held and off. It goes after the host came on, so what follows is no matter of safety
// but of order; see C1.
func (c *chronicle) faults(namespace string, nodesGoByHand bool) (found []string) {
	last := map[string]*bmov1alpha1.BareMetalHost{}
	was := map[string]bool{}
	say := func(m moment, what string) {
		found = append(found, fmt.Sprintf("revision %d: %T %s %s", m.revision, m.object, m.object.GetName(), what))
	}
	for _, m := range c.of(namespace) {
		name := nameOf(m.object)
		switch o := m.object.(type) {
		case *bmov1alpha1.BareMetalHost:
			if name == neighbour && last[name] != nil {
				say(m, "belongs to another client, and was changed")
			}
			if last[name] = o; m.gone {
				delete(last, name)
			}
			if off := heldControlPlanes(last); len(off) > 1 {
				say(m, fmt.Sprintf("is kept powered off together with others: %q", off))
			}
		case *corev1.Node:
			if name == neighbour && was[name] {
				say(m, "belongs to another client, and was changed")
			}
			safe := last[name] != nil && held(last[name]) && !last[name].Status.PoweredOn
			if fenced(o) && !was[name] && !safe {
				say(m, "was fenced while its host was on or not held")
			}
			if m.gone && !safe && !nodesGoByHand {
				say(m, "was deleted while its host was on or not held")
			}
			was[name] = fenced(o) || name == neighbour
		}
	}
	return found
}

func heldControlPlanes(all map[string]*bmov1alpha1.BareMetalHost) []string {
	var off []string
	for name, h := range all {
		if _, is := h.Labels[clusterv1.MachineControlPlaneLabel]; is && held(h) {
			off = append(off, name)
		}
	}
	slices.Sort(off)
	return off
}
