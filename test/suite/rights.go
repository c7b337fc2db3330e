package suite

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/rights"
)

// LookedFor are requests that are forbidden, and shall be: at its start the manager looks for requests of its own among all kinds that have a
// sibling named Template, and skips what it may not list.
var LookedFor = []string{"list controlplane.cluster.x-k8s.io/kubeadmcontrolplanes"}

// NothingForbidden expects that control planes with Audit have forbidden kubemend nothing but LookedFor: that a right is missing shall not
// depend on whether a spec notices. The API groups of remediators that bring their rights along later are left out.
func NothingForbidden(planes []*rig.ControlPlane, latecomers ...string) {
	ginkgo.GinkgoHelper()
	var found []string
	for _, plane := range planes {
		events, err := plane.Audited()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		for _, user := range []string{rig.Account, rig.WorkloadUser} {
			for _, r := range rights.Refused(events, user) {
				if !slices.Contains(LookedFor, r.String()) && !slices.Contains(latecomers, r.Group) {
					found = append(found, fmt.Sprintf("%s: %s", user, r))
				}
			}
		}
	}
	gomega.Expect(found).To(gomega.BeEmpty(), "what kubemend was not allowed")
}

// Written are the names of the objects of a resource into which kubemend has written a text since a moment, though it may be gone from there.
func Written(plane *rig.ControlPlane, resource string, since time.Time, text string) []string {
	ginkgo.GinkgoHelper()
	events, err := plane.Audited()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	var names []string
	for i := range events {
		e := &events[i]
		if e.ObjectRef != nil && e.ObjectRef.Resource == resource && e.RequestObject != nil && e.RequestReceivedTimestamp.After(since) &&
			bytes.Contains(e.RequestObject.Raw, []byte(text)) {
			names = append(names, e.ObjectRef.Name)
		}
	}
	return names
}
