package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// phase is what a check says it is doing, and why.
func (s *environment) phase(ctx context.Context, check string) func() string {
	return func() string {
		st := s.get(ctx, check).Status
		return fmt.Sprintf("%s: %s", st.Phase, st.Reason)
	}
}

const (
	enabled     = "Enabled: NHC is enabled, no ongoing remediation"
	remediating = "Remediating: NHC is remediating 1 nodes"
)

// counts are the nodes that a check observes, and those of them that are healthy.
func (s *environment) counts(ctx context.Context, check string) func() []int {
	return func() []int {
		st := s.get(ctx, check).Status
		return []int{ptr.Deref(st.ObservedNodes, -1), ptr.Deref(st.HealthyNodes, -1)}
	}
}

// listed are the unhealthy nodes of a check, each with the requests that are listed for it and whether they were given up:
// "w1: RebootRemediation/soft*, ReplaceRemediation/hard".
func (s *environment) listed(ctx context.Context, check string) func() []string {
	return func() []string {
		found := []string{}
		for _, n := range s.get(ctx, check).Status.UnhealthyNodes {
			var requests []string
			for _, r := range n.Remediations {
				text := r.Resource.Kind + "/" + r.TemplateName
				if r.TimedOut != nil {
					text += "*"
				}
				requests = append(requests, text)
			}
			found = append(found, strings.TrimSuffix(s.short(n.Name)+": "+strings.Join(requests, ", "), ": "))
		}
		return found
	}
}

// entry is what a check says of a node; nil if it says nothing.
func (s *environment) entry(ctx context.Context, check, node string) *nhcv1.UnhealthyNode {
	nodes := s.get(ctx, check).Status.UnhealthyNodes
	if i := slices.IndexFunc(nodes, func(n nhcv1.UnhealthyNode) bool { return n.Name == s.called(node) }); i >= 0 {
		return &nodes[i]
	}
	return nil
}

// of is a condition of a check, as "Status/Reason".
func (s *environment) of(ctx context.Context, check, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(s.get(ctx, check).Status.Conditions, kind)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

// message is that of a condition of a check.
func (s *environment) message(ctx context.Context, check, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(s.get(ctx, check).Status.Conditions, kind)
		if c == nil {
			return ""
		}
		return c.Message
	}
}

func (s *environment) allowed(ctx context.Context, check string) func() string {
	return s.of(ctx, check, nhcv1.RemediationAllowedCondition)
}

const yes = "True/Allowed"

// events are the events of a reason about a check, as "Type note", each as often as it was sent.
func (s *environment) events(_ context.Context, check, reason string) func() []string {
	return func() []string {
		GinkgoHelper()
		Expect(s.program.Settle()).To(Succeed())
		return s.notes.of(s, check, reason)
	}
}

// lease is the lease on a node; nil if there is none.
func (s *environment) lease(ctx context.Context, node string) *coordinationv1.Lease {
	GinkgoHelper()
	l := &coordinationv1.Lease{}
	err := s.here.Get(ctx, client.ObjectKey{Namespace: s.leases, Name: "node-" + s.called(node)}, l)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return l
}

// metric is the value of a series, the sum of a histogram's observations counting as one; -1 if there is none.
func (s *environment) metric(name string, labels map[string]string) float64 {
	GinkgoHelper()
	Expect(s.program.Settle()).To(Succeed())
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			is := map[string]string{}
			for _, l := range m.GetLabel() {
				is[l.GetName()] = l.GetValue()
			}
			for key, value := range labels {
				if is[key] != value {
					continue series
				}
			}
			switch {
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			default:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// said reports how often the controller has said something in its log.
func (s *environment) said(text string) func() int {
	return func() int {
		GinkgoHelper()
		Expect(s.program.Settle()).To(Succeed())
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for _, line := range s.log {
			if strings.Contains(line, text) {
				n++
			}
		}
		return n
	}
}
