package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
)

// Blocker is what the capacity of a machine waits for, as kubectl mend explain says it and as a scene knows it.
type Blocker struct {
	// Ends is how the wait has ended: Back, or why no machine is made; empty while it goes on. A machine that is being deleted may still be waited for then.
	Ends string
	// Reason and Object are what is waited for, Next what comes next; empty if that does not count.
	Reason, Object, Next string
	// Todo is what a person can do; empty if that does not count.
	Todo string
	// Deadline is when the wait ends by itself; zero without one.
	Deadline time.Time
	// Names are what the sentence has to name, of what is true.
	Names []string
}

// NoSuchObject is how explain ends of an object that there is not, and that no record is about.
const NoSuchObject = "NoSuchObject"

// Back is how a wait ends when the capacity is back, by whatever machine.
const Back = "Back"

// Said is what was said at a moment, in words for programs and for people.
type Said struct {
	Blocker

	Text string
}

// is reports whether what was said is true.
func (s *Said) is(truth Blocker) bool {
	same := func(said, is string) bool { return is == "" || said == is }
	if s.Ends != truth.Ends || !same(s.Reason, truth.Reason) || !same(s.Object, truth.Object) || !same(s.Next, truth.Next) || !same(s.Todo, truth.Todo) {
		return false
	}
	if off := s.Deadline.Sub(truth.Deadline); truth.Reason != "" && truth.Ends == "" && (off > time.Second || off < -time.Second) {
		return false
	}
	return !slices.ContainsFunc(truth.Names, func(name string) bool { return !strings.Contains(s.Text, name) })
}

// Looks are what was said at many moments, beside what was true then.
type Looks struct {
	mu    sync.Mutex
	all   int
	wrong []string
}

// Compare compares what is said of an object with what is true: before, after, or at any moment between. It returns all that was true.
func (l *Looks) Compare(ctx context.Context, what string, say func() (Said, error), truths func() []Blocker) []Blocker {
	ginkgo.GinkgoHelper()
	all := truths()
	var said Said
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		said, err = say()
	}()
	gomega.Eventually(func() <-chan struct{} {
		all = append(all, truths()...)
		return ended
	}).WithContext(ctx).WithPolling(200 * time.Millisecond).Should(gomega.BeClosed())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	all = append(all, truths()...)
	_, _ = fmt.Fprintf(ginkgo.GinkgoWriter, "%s\n  %+v %s\n", what, said.Blocker, said.Text)
	l.add(what, &said, all)
	return all
}

func (l *Looks) add(what string, said *Said, truths []Blocker) {
	right := slices.ContainsFunc(truths, said.is)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all++
	if !right {
		l.wrong = append(l.wrong, fmt.Sprintf("%s\n  said: %+v\n  text: %s\n  true: %s",
			what, said.Blocker, said.Text, strings.Join(distinct(truths), "\n        ")))
	}
}

// Right expects that of a hundred looks ninety-nine were right, and lists the others.
func (l *Looks) Right(atLeast int) {
	ginkgo.GinkgoHelper()
	all, wrong := l.Counts()
	ginkgo.AddReportEntry("looks", fmt.Sprintf("%d looks, %d wrong, random seed %d\n%s", all, len(wrong), ginkgo.GinkgoRandomSeed(), strings.Join(wrong, "\n")))
	gomega.Expect(all).To(gomega.BeNumerically(">=", atLeast), "looks")
	gomega.Expect(100*(all-len(wrong))).To(gomega.BeNumerically(">=", 99*all), "with the random seed %d, %d of %d looks are wrong:\n%s",
		ginkgo.GinkgoRandomSeed(), len(wrong), all, strings.Join(wrong, "\n"))
}

// AtRandom waits for a random moment, at most so far from now.
func AtRandom(ctx context.Context, dice *rand.Rand, within time.Duration) {
	ginkgo.GinkgoHelper()
	at := time.Now().Add(time.Duration(dice.Int63n(int64(within))))
	gomega.Eventually(time.Now).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(gomega.BeTemporally(">=", at))
}

// StartupDeadline is when a check counts m as unhealthy without a node: its timeout after the last of the moments that m cannot have one before.
func StartupDeadline(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, m *clusterv1.Machine) time.Time {
	if check == nil || cluster == nil || check.Spec.Checks.NodeStartupTimeoutSeconds == nil {
		return time.Time{}
	}
	from := m.CreationTimestamp.Time
	for _, c := range []*metav1.Condition{
		conditions.Get(cluster, clusterv1.ClusterControlPlaneInitializedCondition), conditions.Get(cluster, clusterv1.ClusterInfrastructureReadyCondition),
		conditions.Get(m, clusterv1.MachineInfrastructureReadyCondition),
	} {
		if c != nil && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(from) {
			from = c.LastTransitionTime.Time
		}
	}
	return from.Add(time.Duration(*check.Spec.Checks.NodeStartupTimeoutSeconds) * time.Second)
}

// Counts are how many looks there were, and those that were wrong.
func (l *Looks) Counts() (all int, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, slices.Clone(l.wrong)
}

func distinct(truths []Blocker) []string {
	var all []string
	for i := range truths {
		if text := fmt.Sprintf("%+v", truths[i]); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// Explain is what kubectl mend explain says of an object, such as machine/m; nil of one that there is not.
func Explain(ctx context.Context, in *rig.ControlPlane, namespace, object string) (*cliv1.Explanation, error) {
	run, err := rig.Kubectl(ctx, in.KubeconfigFile(), "mend", "explain", object, "--namespace", namespace, "-o", "json")
	if err != nil {
		return nil, err
	}
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	var exit *exec.ExitError
	if err := run.Run(); errors.As(err, &exit) && strings.Contains(complaint.String(), "there is no ") {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("explain %s in %s: %w: %s", object, namespace, err, complaint.String())
	}
	e := &cliv1.Explanation{}
	if err := json.Unmarshal(out.Bytes(), e); err != nil {
		return nil, fmt.Errorf("read the explanation of %s in %s: %w", object, namespace, err)
	}
	return e, nil
}

// SaidOf is what e says of one of its waits; of an explanation without it, that there is none.
func SaidOf(e *cliv1.Explanation, which func(*cliv1.Capacity) bool) Said {
	if e == nil {
		return Said{Blocker: Blocker{Ends: NoSuchObject}}
	}
	i := slices.IndexFunc(e.Capacity, func(c cliv1.Capacity) bool { return which(&c) })
	if i < 0 {
		return Said{Blocker: Blocker{Ends: Back}, Text: e.Message}
	}
	c := &e.Capacity[i]
	said := Said{Text: e.Message + " | " + c.Message}
	if e.Todo != nil {
		said.Text += " | " + e.Todo.Message
	}
	switch c.Stage {
	case "Back", "NotReplaced":
		// What the deletion of a machine waits for that is not replaced is in the answer alone.
		said.Ends, said.Reason, said.Next = c.Reason, e.Reason, e.Next.Reason
		if c.Stage == "Back" {
			said.Ends = Back
		}
		return said
	}
	said.Reason = c.Reason
	if c.WaitsFor != nil {
		said.Object = c.WaitsFor.Kind + " " + c.WaitsFor.Name
	}
	if c.Next != nil {
		said.Next = c.Next.Reason
	}
	if c.Stage == "Deleting" && len(e.Owners) == 0 && e.Next.Reason != said.Next {
		said.Next += ", and in the last line " + e.Next.Reason
	}
	if c.Todo != nil {
		said.Todo = c.Todo.Reason
	}
	if c.Deadline != nil {
		said.Deadline = c.Deadline.Time
	}
	return said
}
