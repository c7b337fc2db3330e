package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

var _ = Describe("For a host that is power-cycled", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("explain shows in every phase what the remediation reports, whatever object is named, and history shows it in order", func(ctx SpecContext) {
		fixture.cycled(ctx)
		name := fixture.WorkerNames(ctx)[0]
		host := fixture.Host(name)
		// Each phase has to last for longer than all is explained once, also under load.
		fixture.slow(simulator.Times{PowerOff: 20 * time.Second, PowerOn: 20 * time.Second, Boot: 20 * time.Second})

		fixture.silence(name)

		heard := agreements(ctx, name, "remediation/"+name, "machine/"+name, "host/"+host.Key().Name, "node/"+name)
		for _, phase := range []string{"PoweringOff", "PoweringOn", "Booting"} {
			Expect(heard).To(HaveKey(phase), "%v", heard)
		}
		fixture.AllWell(ctx)
		Eventually(func() []string {
			return reasons(parsed[cliv1.History](mend(ctx, "history", "--machine", name, "-o", "json")))
		}).Should(And(
			inThisOrder("PowerOffRequested", "Fenced", "PowerOnRequested", "PoweredOn"),
			inThisOrder("MachineMarkedUnhealthy", "Fenced", "PoweredOn", "MachineHealthy"),
		))
	}, SpecTimeout(specPatience))
})

var _ = Describe("For a host whose BMC is dead", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("explain says when kubemend stops waiting", func(ctx SpecContext) {
		fixture.cycled(ctx)
		name := fixture.WorkerNames(ctx)[0]
		host := fixture.Host(name)
		host.Die(true)
		DeferCleanup(func() { host.Die(false) })
		stepped := steps(ctx, name)

		fixture.silence(name)

		Eventually(stepped).Should(Receive(HaveField("Step", "PoweringOff")))
		var said cliv1.Step
		Eventually(func() *metav1.Time {
			said = explained(ctx, "machine/"+name).Next
			return said.Time
		}).ShouldNot(BeNil())
		rem, is := remediationOf(ctx, name)
		Expect(is).To(BeTrue())
		Expect(rem.Status.Step).To(Equal("PoweringOff"))
		Expect(said.Time.Time).To(BeTemporally("~", rem.Status.Deadline.Time, time.Second), said.Message) // which has whole seconds
		var next entered
		Eventually(stepped).Should(Receive(&next))
		Expect(next.At).To(asAnnounced(said.Time.Time), "from %s to %s", rem.Status.Step, next.Step)
		AddReportEntry("given up after the announced moment", next.At.Sub(said.Time.Time).String())
		host.Die(false)
		fixture.AllWell(ctx)
	}, SpecTimeout(specPatience))
})

// entered is a step of a remediation, and when it was first seen in it.
type entered struct {
	Step string
	At   time.Time
}

// steps reports each step of the remediation of a machine.
func steps(ctx context.Context, name string) <-chan entered {
	GinkgoHelper()
	changes, err := rig.Follow(ctx, here, &mendv1.HostRemediationList{}, client.InNamespace(fixture.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(changes.Stop)
	all := make(chan entered, 100) // more than there are
	go func() {
		was := ""
		for e := range changes.ResultChan() {
			if rem, is := e.Object.(*mendv1.HostRemediation); is && rem.Status.Step != was {
				was = rem.Status.Step
				all <- entered{was, time.Now()}
			}
		}
	}()
	return all
}

// cycled makes a check whose template power-cycles hosts, until the spec ends.
func (env *environment) cycled(ctx context.Context) {
	GinkgoHelper()
	template := &mendv1.HostRemediationTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace, Name: "cycle"}}
	template.Spec.Template.Spec.Strategy = builders.HostStrategy(infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 100})
	Expect(builders.Apply(ctx, here, template)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, template)).To(Succeed()) })
	env.checked(ctx, "hosts", builders.Claimed, builders.Patience(2*time.Second),
		builders.RemediatedBy(mendv1.GroupVersion.String(), "HostRemediationTemplate", template.Name))
}

func reasons(c *cliv1.History) []string {
	var all []string
	for _, e := range c.Items {
		all = append(all, e.Reason)
	}
	return all
}

// inThisOrder matches a list that has all of these among others, one behind the other.
func inThisOrder(wanted ...string) OmegaMatcher {
	return WithTransform(func(all []string) string {
		at := 0
		for _, is := range all {
			if at < len(wanted) && is == wanted[at] {
				at++
			}
		}
		if at == len(wanted) {
			return ""
		}
		return fmt.Sprintf("%s is missing behind those before it, in %v", wanted[at], all)
	}, BeEmpty())
}

// agreements asks about each of the subjects in turn until the remediation of a machine is over, and returns how often what was said was what the
// remediation said of itself, by its step.
func agreements(ctx context.Context, name string, subjects ...string) map[string]int {
	GinkgoHelper()
	heard, doubt := map[string]int{}, ""
	Eventually(func() error {
		return here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: name}, &mendv1.HostRemediation{})
	}).Should(Succeed())
	for i := 0; ; i++ {
		before, is := remediationOf(ctx, name)
		if !is {
			return heard
		}
		asked := subjects[i%len(subjects)]
		answer := mend(ctx, "explain", asked, "-o", "json")
		after, is := remediationOf(ctx, name)
		if !is || after.ResourceVersion != before.ResourceVersion {
			continue // it may have been of either
		}
		r := remediationIn(answer)
		if r.Acts {
			continue // so the status is about to be another one
		}
		switch diff := gocmp.Diff(fromStatus(after), fromLook(r)); {
		case diff == "":
			heard[after.Status.Step]++
		case doubt == after.ResourceVersion: // a moment is needed until the manager has heard of what was seen here at once
			Fail(fmt.Sprintf("explain %s of %s, -stored +explained:\n%s", asked, after.Status.Step, diff))
		default:
			doubt = after.ResourceVersion
		}
	}
}

func remediationOf(ctx context.Context, name string) (*mendv1.HostRemediation, bool) {
	GinkgoHelper()
	rem := &mendv1.HostRemediation{}
	err := here.Get(ctx, client.ObjectKey{Namespace: fixture.Namespace, Name: name}, rem)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return rem, err == nil
}

// remediationIn is the one remediation that an answer is about.
func remediationIn(r ran) cliv1.HostRemediation {
	GinkgoHelper()
	e := parsed[cliv1.Explanation](r)
	Expect(e.Remediations).To(HaveLen(1), r.out)
	return e.Remediations[0]
}

// phase is what both say of a remediation.
type phase struct {
	Step, Phase, Host, Message, Reason string
	Attempt                            int
	Started, Deadline                  time.Time
}

func fromStatus(rem *mendv1.HostRemediation) phase {
	s := rem.Status
	p := phase{Step: cmp.Or(s.Step, "Pending"), Phase: string(s.Phase), Host: s.Host, Message: s.Message, Attempt: int(s.Attempt)}
	if s.Started != nil {
		p.Started = s.Started.UTC()
	}
	if s.Deadline != nil {
		p.Deadline = s.Deadline.UTC()
	}
	for _, c := range s.Conditions {
		if c.Type == "Processing" {
			p.Reason = c.Reason
		}
	}
	return p
}

func fromLook(r cliv1.HostRemediation) phase {
	p := phase{Step: r.State, Phase: r.RemediationPhase, Host: r.Host, Message: r.Message, Reason: r.Reason, Attempt: r.Attempt}
	if r.AttemptStarted != nil {
		p.Started = r.AttemptStarted.UTC()
	}
	if r.Deadline != nil {
		p.Deadline = r.Deadline.UTC()
	}
	return p
}
