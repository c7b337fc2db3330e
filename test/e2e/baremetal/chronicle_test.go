package baremetal

import (
	"context"
	"maps"
	"slices"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/test/rig"
)

// chronicle is all that is seen of the hosts of a namespace, and of what Metal3Remediations say there, version by version: what holds
// for a moment only is in it as well.
type chronicle struct {
	mu sync.Mutex
	// held are the hosts that are kept powered off now, and together those that were at the same time, if ever more than one was.
	held     map[string]bool
	together []string
	// messages are those of each remediation, in order.
	messages map[string][]string
}

// follow begins a chronicle of a namespace. It ends with the spec.
func follow(ctx context.Context, namespace string) *chronicle {
	GinkgoHelper()
	c := &chronicle{held: map[string]bool{}, messages: map[string][]string{}}
	for _, list := range []client.ObjectList{&bmov1alpha1.BareMetalHostList{}, &infrav1.Metal3RemediationList{}} {
		seen, err := rig.Follow(ctx, here, list, client.InNamespace(namespace))
		Expect(err).NotTo(HaveOccurred())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range seen.ResultChan() {
				c.note(e)
			}
		}()
		DeferCleanup(func() {
			seen.Stop()
			<-ended
		})
	}
	return c
}

func (c *chronicle) note(e watch.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch is := e.Object.(type) {
	case *bmov1alpha1.BareMetalHost:
		delete(c.held, is.Name)
		if host.KeptOffByOthers(is, host.Remediation{}) != "" && e.Type != watch.Deleted {
			c.held[is.Name] = true
		}
		if len(c.held) > max(len(c.together), 1) {
			c.together = slices.Sorted(maps.Keys(c.held))
		}
	case *infrav1.Metal3Remediation:
		all := c.messages[is.Name]
		if is.Status.Message != "" && (len(all) == 0 || all[len(all)-1] != is.Status.Message) {
			c.messages[is.Name] = append(all, is.Status.Message)
		}
	}
}

// heldTogether are hosts that were kept powered off at the same time.
func (c *chronicle) heldTogether() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.together)
}

// said is all that a remediation has said.
func (c *chronicle) said(remediation string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.messages[remediation])
}
