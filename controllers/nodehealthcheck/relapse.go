package nodehealthcheck

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// resumed: the node is not well, so a healthy delay that was begun was begun in vain, and begins anew when it is well again. Of a single remediation that
// had succeeded the annotation says when that was found.
func (s *step) resumed(w *observed) {
	t := s.target
	turned := t.listed != nil && t.listed.ConditionsHealthyTimestamp != nil && ptr.Deref(t.listed.HealthyDelayed, false)
	for _, f := range t.requests {
		_, begun := f.obj.GetAnnotations()[nhcv1.HealthyDelayAnnotation]
		switch {
		case f.leaving():
		case begun, turned && w.classic() && f.recovered && !f.relapsed():
			s.resume = append(s.resume, f)
		}
	}
}

// relapsed: the remediation had succeeded, the node was seen well then, and now it is bad once more. Where no step follows another one, nobody
// would do anything about it; so what has succeeded ends, and the node begins anew. With a ladder the next step's turn comes by time.
//
// That a condition has turned says nothing of that: a node that boots is False, Unknown and False again, and what is remediated once more because of
// it loses its power in the middle of the boot, without end. (NodeHealthCheck issue 274.)
func (s *step) relapsed(w *observed) {
	if !w.classic() {
		return
	}
	for _, f := range s.target.requests {
		if answer, _ := f.condition(nhcv1.SucceededCondition); answer == escalation.Yes && !f.leaving() && (f.recovered || f.relapsed()) {
			s.end = append(s.end, f)
		}
	}
}

// relapsed reports whether the request says that its node had recovered, and was found to be bad again.
func (f *found) relapsed() bool { return !f.annotated(mendv1.RelapsedAnnotation).IsZero() }

// recover notes of which requests it is known that they had succeeded when their node was seen well, whatever the clocks say. Of those that were seen well
// before this process began the status tells: they were delayed. It goes on saying so of a node that is bad again, until that is begun anew.
func (m *memory) recover(w *observed) {
	is, recovered := m.of(w.check.Name), map[types.UID]bool{}
	for i := range w.targets {
		t := &w.targets[i]
		well := t.node != nil && t.verdict.State == health.Healthy
		delayed := t.listed != nil && ptr.Deref(t.listed.HealthyDelayed, false)
		for _, f := range t.requests {
			had, known := is.recovered[f.obj.GetUID()]
			answer, _ := f.condition(nhcv1.SucceededCondition)
			f.recovered = had || answer == escalation.Yes && (well || !known && delayed)
			recovered[f.obj.GetUID()] = f.recovered
		}
	}
	is.recovered = recovered
}

// awaitsRepeat reports whether a single remediation of t, which had succeeded, is begun anew when the node has been bad for long enough.
func (t *target) awaitsRepeat(w *observed, o *outcome) bool {
	return !t.wellOrGone() && slices.ContainsFunc(t.requests, func(f *found) bool {
		return w.classic() && f.recovered && !f.leaving() && !slices.Contains(o.ended, f)
	})
}
