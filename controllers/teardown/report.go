package teardown

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

var remainingGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_teardown_remaining",
	Help: "With --teardown: objects that still carry what kubemend wrote, by kind: claim, request, node-check-request, remediation, host-power, " +
		"host-mark, machine-condition, node-fence, node-lease, unseen (a workload cluster that does not answer).",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(remainingGauge) }

// Metrics returns what this package exports, for those who document or test it.
func Metrics() []prometheus.Collector { return []prometheus.Collector{remainingGauge} }

// tell says what was done, in an event and in the log; what is passed over again and again, once.
func (u *Uninstaller) report(ctx context.Context, s step) {
	n := noteOf(s)
	if s.do == wait || u.told[n.Text] {
		return
	}
	if s.do == pass {
		if u.told == nil {
			u.told = map[string]bool{}
		}
		u.told[n.Text] = true
	}
	log.FromContext(ctx).Info("Carried out a teardown step", "action", s.do, "object", s.owned.String(), "because", s.why)
	recorder.Send(u.Recorder, n)
}

// noteOf is the event about a step.
func noteOf(s step) recorder.Event {
	n := recorder.Event{About: remediationrequest.Identity(s.on), Kind: corev1.EventTypeNormal, Action: "Teardown"}
	switch s.do {
	case release:
		n.Reason = mendv1.EventCheckReleased
		n.Text = "kubemend is being removed: Cluster API core acts on this MachineHealthCheck from now on (docs/uninstall.md)"
		if s.template.Group == mendv1.GroupVersion.Group {
			n.Kind = corev1.EventTypeWarning
			n.Text += ". No controller acts on what is made from a " + s.template.Kind + " any more: have it name another template, or none"
		}
	case pass:
		n.Kind, n.Reason, n.Text = corev1.EventTypeWarning, mendv1.EventNotRemoved,
			fmt.Sprintf("Its nodes could not be read: %v. "+
				"A node that is fenced there has annotation kubemend.io/fenced-by (docs/uninstall.md)", s.cause)
	case unfence:
		n.Reason, n.Text = mendv1.EventOrphanSwept, fmt.Sprintf("Unfenced %s: %s", s.owned.String(), s.why)
		n.About = clusterOf(s.owned)
	case erase:
		n.Reason, n.Text = mendv1.EventRequestReleased, "Deleted: "+s.why
	default:
		n.Reason, n.Text = mendv1.EventMarksRemoved, "kubemend is being removed: its marks were removed; "+s.why
	}
	return n
}

// clusterOf is the cluster of a node, which is where users of this cluster look for events.
func clusterOf(t *owned) *metadata {
	cluster := &metadata{TypeMeta: kindOf(clusterKind)}
	cluster.Name, cluster.Namespace = t.cluster.Name, t.cluster.Namespace
	return cluster
}
