package conformance

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sentEvents returns the events of an environment, unsorted, as "Object Reason"; but for those that say what capacity waits for, which depend on for how long.
func (s *environment) sentEvents(ctx context.Context) func() []string {
	return func() []string {
		var all []string
		for _, e := range s.allEvents(ctx) {
			if !strings.HasPrefix(e.Reason, "Capacity") {
				all = append(all, e.Regarding.Name+" "+e.Reason)
			}
		}
		return all
	}
}

func (s *environment) allEvents(ctx context.Context) []eventsv1.Event {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(here.List(ctx, list, client.InNamespace(s.cluster.Namespace))).To(Succeed())
	return list.Items
}

// note is the text of the only event of a reason on an object.
func (s *environment) note(ctx context.Context, object, reason string) func() string {
	return func() string {
		var texts []string
		for _, e := range s.allEvents(ctx) {
			if e.Regarding.Name == object && e.Reason == reason {
				texts = append(texts, e.Type+": "+e.Note)
			}
		}
		return strings.Join(texts, "\n")
	}
}
