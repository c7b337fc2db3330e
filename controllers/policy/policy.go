// Package policy reads RemediationPolicies and keeps the ledger, which counts targets, unhealthy targets and remediations in flight. The
// ledger blocks a remediation that would exceed a limit, or must not begin now, and gives each place to one remediation only.
package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for images without a time zone database

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Target is a Machine or Node as policies see it.
type Target = place.Target

// Policy is a RemediationPolicy that was read, or a RemediationOverride that has an effect.
type Policy struct {
	rule.Ref

	generation int64
	everywhere bool               // it applies to all namespaces
	selects    [4]labels.Selector // of namespaces, clusters, checks, targets; nil selects all
	kinds      []string           // empty selects all
	namespaces map[string]bool    // the namespaces that selects[0] selects
	limits     []mendv1.PolicyLimit
	windows    []window
	blockWhile []mendv1.Signal // nil if not set; empty if no signal blocks
	mode       mendv1.PolicyMode
	spareWait  time.Duration // zero if remediations do not wait for a spare host
	// Invalid is the field that cannot be parsed, and why; empty if all can.
	Invalid        string
	selectsNothing bool      // because a selector cannot be used
	override       *override // nil for a RemediationPolicy
}

// window is a recurring time in which remediations may, or may not, begin.
type window struct {
	mendv1.PolicyWindow

	opens cron.Schedule
	zone  *time.Location
	lasts time.Duration
}

// Read reads a RemediationPolicy. A policy in the namespace everywhere applies to all namespaces.
func Read(object *mendv1.RemediationPolicy, everywhere string) *Policy {
	spec := &object.Spec
	p := &Policy{
		Ref: rule.Ref{Kind: "RemediationPolicy", Namespace: object.Namespace, Name: object.Name}, generation: object.Generation,
		everywhere: object.Namespace == everywhere, limits: spec.Limits, kinds: spec.Selector.Kinds,
		mode: spec.Mode, blockWhile: spec.BlockWhile,
	}
	if spec.WaitForSpare != nil {
		p.spareWait = time.Duration(cmp.Or(spec.WaitForSpare.TimeoutSeconds, 3600)) * time.Second // the default of the CRD
	}
	if spec.Selector.Namespaces != nil && !p.everywhere {
		p.Invalid = "spec.selector.namespaces: a policy outside of namespace " + everywhere + " applies only to its own namespace"
		p.selectsNothing = true
		return p
	}
	parts := []struct {
		field    string
		selector *metav1.LabelSelector
	}{
		{"namespaces", spec.Selector.Namespaces}, {"clusters", spec.Selector.Clusters}, {"checks", spec.Selector.Checks},
		{"targets", spec.Selector.Targets},
	}
	for i, part := range parts {
		if part.selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(part.selector)
		if err != nil {
			p.Invalid, p.selectsNothing = fmt.Sprintf("spec.selector.%s: %s", part.field, err), true
			return p
		}
		p.selects[i] = selector
	}
	for i := range spec.Windows {
		w, err := windowOf(spec.Windows[i])
		if err != nil {
			p.Invalid = cmp.Or(p.Invalid, fmt.Sprintf("spec.windows[%d].%s", i, err))
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
	if strings.Contains(spec.Schedule, "TZ=") { // the cron library would use it as the time zone
		return w, fmt.Errorf("schedule: %q names a time zone, which belongs into timeZone", spec.Schedule)
	}
	if w.opens, err = cron.ParseStandard(spec.Schedule); err != nil || strings.HasPrefix(spec.Schedule, "@") {
		return w, fmt.Errorf("schedule: %q does not have the five fields of cron, such as 0 8 * * 1-5", spec.Schedule)
	}
	return w, nil
}

// Selects reports whether p applies to target.
func (p *Policy) Selects(target *Target) bool {
	if p.override != nil {
		return p.override.matches(target)
	}
	ofKind := len(p.kinds) == 0 || slices.Contains(p.kinds, target.Kind)
	if !ofKind || p.selectsNothing || !p.reaches(target.Namespace) {
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

func (p *Policy) reaches(namespace string) bool { return p.everywhere || p.Namespace == namespace }

// groupOf returns the group of limit that target belongs to, named by its values; grouped is false if target lacks a value.
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

// amount returns a number of a limit for a group of so many targets. A percentage is rounded up.
func amount(written *intstr.IntOrString, targets int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(written, targets, true)
	if err != nil {
		return 0 // the CRD's schema does not allow such a value
	}
	return n
}

// OfHosts reports whether p needs to know the hosts of Machines.
func (p *Policy) OfHosts() bool {
	if p.override != nil {
		return p.override.TargetRef.Kind == "BareMetalHost" || p.override.TargetRef.Kind == "FailureDomain"
	}
	return slices.ContainsFunc(p.limits, func(limit mendv1.PolicyLimit) bool {
		return slices.ContainsFunc(limit.GroupBy, func(by mendv1.PolicyGroupKey) bool {
			return by.Key == mendv1.GroupByHostLabel || by.Key == mendv1.GroupByFailureDomain
		})
	})
}

// Closed returns until when the windows of p block a remediation; zero if they do not. live says that the target's node reports.
func (p *Policy) Closed(live bool, now time.Time) time.Time {
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

// openUntil returns when w closes; zero if it is closed now. It joins up to a hundred openings that follow each other.
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

// numbers are the counts of a group that its limit is compared with. claimed is the part of inFlight that has a place and has not begun.
type numbers struct{ targets, unavailable, inFlight, claimed, waiting int }

// reached is a limit that lets no further remediation begin in a group.
type reached struct {
	reason, arithmetic string
	until              time.Time // when it may end by time alone; zero if it does not
}

// reachedBy returns the first limit of g that is reached with n; its reason is empty if none is.
func (g *group) reachedBy(n numbers, now time.Time) reached {
	limit := g.limit
	if limit.MaxUnavailable != nil {
		if most := amount(limit.MaxUnavailable, n.targets); n.unavailable > most {
			return reached{reason: place.GroupUnavailable, arithmetic: fmt.Sprintf(
				"%d of %d are unavailable, at most %d may be (maxUnavailable %s)", n.unavailable, n.targets, most, limit.MaxUnavailable)}
		}
	}
	if limit.MaxInFlight != nil {
		if most := amount(limit.MaxInFlight, n.targets); n.inFlight >= most {
			return reached{reason: place.GroupInFlight, arithmetic: fmt.Sprintf("%d of at most %d are under way (maxInFlight %s)",
				n.inFlight, most, limit.MaxInFlight)}
		}
	}
	if limit.MaxPerHour != nil {
		if until := g.trials.rate(int(*limit.MaxPerHour), n.claimed, now); !until.IsZero() {
			return reached{place.GroupRate, fmt.Sprintf("%d have begun within an hour, at most %d may (maxPerHour)",
				len(g.trials.within(now))+n.claimed, *limit.MaxPerHour), until}
		}
	}
	if limit.SlowStart != mendv1.SlowStartEnabled {
		return reached{}
	}
	until, blocks := g.trials.slow(n.claimed, now)
	switch {
	case !blocks:
		return reached{}
	case now.Before(g.trials.until):
		return reached{place.SlowStart, "a remediation has failed, so none begins for " + g.trials.pause.String(), until}
	}
	return reached{place.SlowStart, fmt.Sprintf("%d remediations are not proven yet, at most %d may be unproven at a time (slowStart)",
		len(g.trials.unproven)+n.claimed, max(g.trials.width, 1)), until}
}

// LimitText names a limit and its group.
func LimitText(g cliv1.LimitGroup) string {
	text := fmt.Sprintf("limit %s of %s", g.Limit, g.Policy)
	if g.Group != "" {
		text += " in " + g.Group
	}
	return text
}

// OnSet makes the ledger call do whenever the policies change.
func (l *Ledger) OnSet(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced = do
}

// ofCheck returns a target with the fields that all Machines of check share.
func ofCheck(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) Target {
	return Target{
		Kind: MachineHealthCheck, Check: check.Name, CheckLabels: check.Labels,
		Namespace: check.Namespace, Cluster: check.Spec.ClusterName, ClusterLabels: cluster.Labels,
	}
}

// SelectsMachine reports whether p applies to machine, which check selects.
func (p *Policy) SelectsMachine(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, machine *clusterv1.Machine) bool {
	target := ofCheck(check, cluster)
	target.Labels = machine.Labels
	return p.Selects(&target)
}

// ModeOf returns the mode that policies set for check, and the policy that sets it. Observe takes precedence over Act; mode is empty if no
// policy sets one. known is false before policies were read, or if an invalid policy with a mode may apply to check.
func (l *Ledger) ModeOf(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) (mode mendv1.PolicyMode, by rule.Ref, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	target := ofCheck(check, cluster)
	known = l.read
	for _, p := range slices.SortedFunc(maps.Values(l.policies), byName) {
		switch {
		case p.mode == "":
		case p.Invalid != "":
			known = known && !p.reaches(check.Namespace)
		case mode == mendv1.PolicyObserves, mode == p.mode, !p.Selects(&target):
		default:
			mode, by = p.mode, p.Ref
		}
	}
	return mode, by, known
}

// SpareWaits returns how long, by the current policies, Machines of check wait for a spare host at most; zero for those that do not wait.
func (l *Ledger) SpareWaits(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) func(*clusterv1.Machine) time.Duration {
	var policies []*Policy
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		policies = slices.Collect(maps.Values(l.policies))
	}
	return func(machine *clusterv1.Machine) (longest time.Duration) {
		for _, p := range policies {
			if p.spareWait > longest && p.SelectsMachine(check, cluster, machine) {
				longest = p.spareWait
			}
		}
		return longest
	}
}
