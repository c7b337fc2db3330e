package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Moment formats a time, such as "11:47:00 (in 5m)".
type Moment func(time.Time) string

// The next steps of objects that have no next step of their own.
var (
	NothingNext = Step{Reason: NothingExpected, Text: "nothing is due"}
	NoCheckNext = Step{Reason: NotSelected, Manual: true,
		Text: "To have it judged, create a check that selects it, or give it the labels that a check selects"}
	ChecksUnreadNext = Step{Reason: MissingPermission, Text: "Ask as a user who may read them", Manual: true}
)

// The answers about objects that no check judges.
var (
	NoCheckSelects  = Answer{State: NotChecked, Reason: NotSelected, Implied: true, Detail: "no check selects it"}
	NoRuleMatches   = Answer{State: NotChecked, Reason: NoRule, Implied: true, Detail: "its node is not Ready, and no rule covers that"}
	NoMachineOfHost = Answer{State: NotChecked, Reason: NotSelected, Implied: true, Detail: "no Machine is on this host"}
)

// NotJudged returns the answer about an object that c selects and does not judge.
func (c *Check) NotJudged() Answer {
	a := Answer{State: NotChecked}
	if c.Reason == NotExplained { // the manager may judge it, as it may read more
		a.State = IsUnknown
		c.notExplained(&a)
		return a
	}
	c.notActing(&a)
	return a
}

// CouldNotBeRead reports what could not be read.
func CouldNotBeRead(what string) string { return "Could not be read: " + what }

// FlawText returns a flaw of a check in one line.
func FlawText(flaw *metav1.Condition) string {
	return flaw.Reason + ": " + strings.Join(strings.Fields(strings.TrimPrefix(flaw.Message, "* ")), " ")
}

// CountsThen says that a pending target counts as unhealthy when its timeout expires.
func CountsThen(target *Target) string {
	if first := firstToExpire(target.Findings); first != nil {
		return "it counts as unhealthy unless " + first.Unless
	}
	return "it counts as unhealthy if nothing changes"
}

// StillBlocked says that a rule still blocks the remediation when the timeout has expired, or that the action then is not known.
func StillBlocked(blocker *Blocker) string {
	if blocker.Reason == MissingPermission {
		return "; what happens then cannot be read with your rights"
	}
	text := "; its remediation is still blocked then by " + named(blocker)
	if blocker.EndsWhen != "" {
		text += ", until " + blocker.EndsWhen
	}
	return text
}

// Ended returns the step that ends a blocker that time does not end. If too many targets are unhealthy, only a person can end it.
func Ended(blocker *Blocker) Step {
	if blocker.Reason == string(budget.TooMany) && blocker.Cause != string(budget.TooFew) { // both kinds of checks have this reason
		text := "repair what the unhealthy ones have in common"
		if blocker.EndsWhen != "" { // blockers read from a Machine's condition have none
			text += "; remediation resumes when " + blocker.EndsWhen
		}
		return Step{Reason: blocker.Reason, Manual: true, Text: text}
	}
	return Step{Reason: blocker.Reason, Text: Resumes(blocker)}
}

// Resumes says when a blocker ends or, if that is not known, what it is.
func Resumes(blocker *Blocker) string {
	if blocker.EndsWhen != "" {
		return "blocked. Resumes when " + blocker.EndsWhen
	}
	return "blocked by " + named(blocker)
}

func named(blocker *Blocker) string {
	if blocker.Detail == "" {
		return blocker.Name()
	}
	return blocker.Reason + " (" + blocker.Detail + ")"
}

// Are returns the verb for n things.
func Are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// Count returns how many things there are, such as "2 nodes".
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Number is Count with the verb.
func Number(n int, thing string) string { return Count(n, thing) + " " + Are(n) }

// Clause returns a sentence for use within another one: its first letter is in lower case, unless the first word may be a name.
func Clause(sentence string) string {
	first, _, _ := strings.Cut(sentence, " ")
	if slices.Contains(openings, first) {
		return strings.ToLower(sentence[:1]) + sentence[1:]
	}
	return sentence
}

func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// openings are the first words of the sentences of holds that are not names.
var openings = []string{"A", "An", "As", "How", "It", "No", "Remediation", "The", "There", "Whether"}

// Brief formats a duration briefly: 10m, not 10m0s.
func Brief(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

// Unmatched returns which requirements of selector the labels do not meet, sorted by key and separated by semicolons; empty if they meet
// all. An empty selector matches all labels. An invalid selector matches none.
func Unmatched(selector metav1.LabelSelector, is map[string]string) string {
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return "the selector is invalid: " + err.Error()
	}
	var failed []string
	requirements, _ := parsed.Requirements()
	for i := range requirements {
		if r := &requirements[i]; !r.Matches(labels.Set(is)) {
			failed = append(failed, failing(r, is))
		}
	}
	return strings.Join(failed, "; ")
}

func failing(r *labels.Requirement, is map[string]string) string {
	had, has := is[r.Key()]
	switch {
	case r.Operator() == selection.DoesNotExist:
		return "has label " + r.Key() + ", which it must not have"
	case !has:
		return "has no label " + r.Key() + ": needs " + r.String()
	}
	return fmt.Sprintf("label %s is %q: needs %s", r.Key(), had, r)
}

// Attribution is who asked for something with `kubectl mend`, when and why, by an annotation. A user who may write the object can forge it.
type Attribution struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// longestAttribution is how many bytes of a name, and of a reason, are shown at most.
const longestAttribution = 512

// AttributionOf returns what an annotation of o says; false if o does not have it, or if it names no user.
func AttributionOf(o metav1.Object, annotation string) (Attribution, bool) {
	var a Attribution
	if json.Unmarshal([]byte(o.GetAnnotations()[annotation]), &a) != nil || a.By == "" {
		return Attribution{}, false
	}
	a.By, a.Reason = health.Short(a.By, longestAttribution), health.Short(a.Reason, longestAttribution)
	return a, true
}

// Text returns who, when and why: "by alice at 2026-01-01T12:00:00Z: the NIC drops packets".
func (a Attribution) Text() string {
	text := "by " + a.By
	if !a.At.IsZero() {
		text += " at " + stamp(a.At)
	}
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	return text
}

// Attributions returns who asked with `kubectl mend` for something about o.
func Attributions(o metav1.Object) []cliv1.Fact {
	var facts []cliv1.Fact
	for _, annotated := range []cliv1.Fact{
		{Name: "remediation requested", Value: mendv1.RequestedAnnotation}, {Name: "reset", Value: mendv1.ResetAnnotation},
	} {
		if by, has := AttributionOf(o, annotated.Value); has {
			facts = append(facts, cliv1.Fact{Name: annotated.Name, Value: by.Text()})
		}
	}
	return facts
}

// Note returns the text of an event about what a user did: "reset by alice: the NIC drops packets".
func (a Attribution) Note(did string) string { return joined(": ", did+" by "+a.By, a.Reason) }

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// appliers are the labels and annotations that tools write on the objects that they apply.
var appliers = []struct{ key, tool string }{
	{"kustomize.toolkit.fluxcd.io/name", "Flux"},
	{"helm.toolkit.fluxcd.io/name", "Flux"},
	{"argocd.argoproj.io/tracking-id", "Argo CD"},
	{"argocd.argoproj.io/instance", "Argo CD"},
	{"meta.helm.sh/release-name", "Helm"},
	{clusterv1.ClusterTopologyOwnedLabel, "the topology controller of Cluster API"},
}

// AppliersOf returns the tools that apply an object, according to its labels and annotations.
func AppliersOf(o metav1.Object) []string {
	var found []string
	for _, applier := range appliers {
		_, annotated := o.GetAnnotations()[applier.key]
		_, labelled := o.GetLabels()[applier.key]
		if (annotated || labelled) && !slices.Contains(found, applier.tool) {
			found = append(found, applier.tool)
		}
	}
	return found
}
