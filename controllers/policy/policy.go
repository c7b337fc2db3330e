// Package policy has what RemediationPolicies say, and the one memory of what they count: which targets there are, which are not healthy,
// and which remediations are under way. It blocks what would exceed a limit, or is not to begin now, and gives each place away once.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // images without a database of time zones

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// Target is what policies see of a Machine that a check selects, or of a Node. It is not changed once it was reported.
type Target struct {
	UID types.UID // see NodeID
	// Namespace and Cluster are those of the Machine; empty for a node without one.
	Namespace, Name, Cluster string
	// Kind and Check are those of the check.
	Kind, Check string
	// The labels of the Machine, or of a node without one, of its BareMetalHost, of its Cluster and of its check.
	Labels, HostLabels, ClusterLabels, CheckLabels map[string]string
	FailureDomain                                  string

	// Unknown says that it cannot be judged; Unavailable that it is unhealthy, or about to be, or its remediation is under way; InFlight
	// that it is and takes a place. Observed says that kubemend does not act on its check, so that it only counts.
	Unknown, Unavailable, InFlight, Observed bool
	// Live says that its node reports: its condition Ready is True or False.
	Live bool
	// Due is since when it is due to be remediated, ByHand that a person has marked it.
	Due    time.Time
	ByHand bool
}

// OfMachine is m as a target, but for the rest.
func OfMachine(m *clusterv1.Machine) *Target {
	return &Target{
		UID: m.UID, Namespace: m.Namespace, Name: m.Name, Cluster: m.Spec.ClusterName, Labels: m.Labels,
		FailureDomain: cmp.Or(m.Status.FailureDomain, m.Spec.FailureDomain),
	}
}

// On notes which node and host t is on, the host by its labels; nil if that is not known.
func (t *Target) On(node *corev1.Node, host map[string]string) {
	if node != nil {
		t.FailureDomain = cmp.Or(t.FailureDomain, node.Labels[corev1.LabelTopologyZone])
		t.Live = slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
			return cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionUnknown
		})
	}
	t.HostLabels, t.FailureDomain = host, cmp.Or(host[records.FailureDomainLabel], t.FailureDomain)
}

// NodeID is what identifies a node: one that comes back under its name is the same target.
func NodeID(name string) types.UID { return types.UID("Node " + name) }

// Policy is a RemediationPolicy that was read.
type Policy struct {
	types.NamespacedName

	generation int64
	everywhere bool               // it reaches all namespaces
	selects    [4]labels.Selector // nil selects all
	kinds      []string           // none are all
	namespaces map[string]bool    // those that the first selector selects
	limits     []mendv1.PolicyLimit
	windows    []window
	// invalid is the field that cannot be read, and why; empty if all can.
	invalid        string
	selectsNothing bool // since a selector cannot be read
}

// window is a time that comes again and again.
type window struct {
	mendv1.PolicyWindow

	opens cron.Schedule
	zone  *time.Location
	lasts time.Duration
}

// Read reads a RemediationPolicy. One in the namespace everywhere reaches all namespaces.
func Read(object *mendv1.RemediationPolicy, everywhere string) *Policy {
	spec := &object.Spec
	p := &Policy{
		NamespacedName: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, generation: object.Generation,
		everywhere: object.Namespace == everywhere, limits: spec.Limits, kinds: spec.Selector.Kinds,
	}
	if spec.Selector.Namespaces != nil && !p.everywhere {
		p.invalid, p.selectsNothing = "spec.selector.namespaces: a policy outside of namespace "+everywhere+" reaches its own namespace alone", true
		return p
	}
	parts := []struct {
		field    string
		selector *metav1.LabelSelector
	}{{"namespaces", spec.Selector.Namespaces}, {"clusters", spec.Selector.Clusters}, {"checks", spec.Selector.Checks}, {"targets", spec.Selector.Targets}}
	for i, part := range parts {
		if part.selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(part.selector)
		if err != nil {
			p.invalid, p.selectsNothing = fmt.Sprintf("spec.selector.%s: %s", part.field, err), true
			return p
		}
		p.selects[i] = selector
	}
	for i := range spec.Windows {
		w, err := windowOf(spec.Windows[i])
		if err != nil {
			p.invalid = cmp.Or(p.invalid, fmt.Sprintf("spec.windows[%d].%s", i, err))
			continue
		}
		p.windows = append(p.windows, w)
	}
	return p
}

func windowOf(spec mendv1.PolicyWindow) (window, error) {
	w := window{PolicyWindow: spec, lasts: time.Duration(spec.DurationSeconds) * time.Second}
	var err error
	if w.zone, err = time.LoadLocation(cmp.Or(spec.TimeZone, "Etc/UTC")); err != nil || spec.TimeZone == "Local" {
		return w, fmt.Errorf("timeZone: %q is no name of the IANA database, such as Europe/Berlin", spec.TimeZone)
	}
	if strings.Contains(spec.Schedule, "TZ=") { // the library would take it for the time zone
		return w, fmt.Errorf("schedule: %q names a time zone, which belongs into timeZone", spec.Schedule)
	}
	if w.opens, err = cron.ParseStandard(spec.Schedule); err != nil || strings.HasPrefix(spec.Schedule, "@") {
		return w, fmt.Errorf("schedule: %q does not have the five fields of cron, such as 0 8 * * 1-5", spec.Schedule)
	}
	return w, nil
}

// Selects reports whether p is for target.
func (p *Policy) Selects(target *Target) bool {
	ofKind := len(p.kinds) == 0 || slices.Contains(p.kinds, target.Kind)
	if !ofKind || p.selectsNothing || !p.everywhere && p.Namespace != target.Namespace {
		return false
	}
	if p.selects[0] != nil && !p.namespaces[target.Namespace] || p.selects[1] != nil && target.Cluster == "" {
		return false
	}
	for i, of := range []map[string]string{target.ClusterLabels, target.CheckLabels, target.Labels} {
		if by := p.selects[i+1]; by != nil && !by.Matches(labels.Set(of)) {
			return false
		}
	}
	return true
}

// groupOf are the values by which target belongs to a group of limit; false if it lacks one.
func groupOf(limit *mendv1.PolicyLimit, target *Target) (group string, grouped bool) {
	values := make([]string, 0, len(limit.GroupBy))
	for _, by := range limit.GroupBy {
		value := ""
		switch by.Key {
		case mendv1.GroupByCluster:
			if target.Cluster != "" {
				value = target.Namespace + "/" + target.Cluster
			}
		case mendv1.GroupByNamespace:
			value = target.Namespace
		case mendv1.GroupByFailureDomain:
			value = target.FailureDomain
		case mendv1.GroupByHostLabel:
			value = target.HostLabels[by.Label]
		case mendv1.GroupByMachineLabel:
			value = target.Labels[by.Label]
		}
		if value == "" {
			return "", false
		}
		values = append(values, value)
	}
	return strings.Join(values, ", "), true
}

// amount is how many of so many targets a number of a limit is: a percentage is rounded up.
func amount(written *intstr.IntOrString, targets int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(written, targets, true)
	if err != nil {
		return 0 // the schema refuses it
	}
	return n
}

// OfHosts reports whether p needs to know the hosts of Machines.
func (p *Policy) OfHosts() bool {
	return slices.ContainsFunc(p.limits, func(limit mendv1.PolicyLimit) bool {
		return slices.ContainsFunc(limit.GroupBy, func(by mendv1.PolicyGroupKey) bool {
			return by.Key == mendv1.GroupByHostLabel || by.Key == mendv1.GroupByFailureDomain
		})
	})
}

// closed is until when the windows of p let no remediation begin of a target whose node reports, or does not; zero if they do.
func (p *Policy) closed(live bool, now time.Time) time.Time {
	var until, opens time.Time
	allowing, open := false, false
	for i := range p.windows {
		w := &p.windows[i]
		if w.Scope == mendv1.WindowLiveNodes && !live {
			continue
		}
		ends := w.openUntil(now)
		switch next := w.opens.Next(now.In(w.zone)); {
		case w.Action == mendv1.WindowDeny && ends.After(until):
			until = ends
		case w.Action == mendv1.WindowDeny:
		default:
			allowing, open = true, open || !ends.IsZero()
			if opens.IsZero() || !next.IsZero() && next.Before(opens) {
				opens = next
			}
		}
	}
	switch {
	case !until.IsZero():
		return until
	case allowing && !open:
		return cmp.Or(opens, now.AddDate(1, 0, 0))
	}
	return time.Time{}
}

// openUntil is when w closes, also if one of its openings follows another; zero if it is closed now. After so many that do, it is asked
// again.
func (w *window) openUntil(now time.Time) time.Time {
	var ends time.Time
	from := now.Add(-w.lasts)
	for range 100 {
		opened := w.opens.Next(from.In(w.zone))
		if opened.IsZero() || opened.After(now) && opened.After(ends) {
			break
		}
		from, ends = opened, opened.Add(w.lasts)
	}
	return ends
}

// numbers are what the limits of a group compare.
type numbers struct{ targets, unavailable, inFlight, waiting int }

// exceeded is the reason of the limit by which no further remediation may begin in a group, and a sentence about it; empty if one may.
func exceeded(limit *mendv1.PolicyLimit, n numbers) (reason, arithmetic string) {
	if limit.MaxUnavailable != nil {
		if most := amount(limit.MaxUnavailable, n.targets); n.unavailable > most {
			return GroupUnavailable, fmt.Sprintf("%d of %d are unavailable, at most %d may be (maxUnavailable %s)",
				n.unavailable, n.targets, most, limit.MaxUnavailable)
		}
	}
	if limit.MaxInFlight != nil {
		if most := amount(limit.MaxInFlight, n.targets); n.inFlight >= most {
			return GroupInFlight, fmt.Sprintf("%d of at most %d are under way (maxInFlight %s)", n.inFlight, most, limit.MaxInFlight)
		}
	}
	return "", ""
}

// limitText names a limit of p in a group.
func (p *Policy) limitText(limit *mendv1.PolicyLimit, group string) string {
	text := fmt.Sprintf("limit %s of RemediationPolicy %s", limit.Name, p.NamespacedName)
	if group != "" {
		text += " in " + group
	}
	return text
}
