package capacity

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// toDo is an event that says what a user can do.
var toDo = And(HavePrefix("Warning "), ContainSubstring("To do: "))

// remembered holds what is left of the scenes when they have ended: records, conditions, events and metrics, and what kubectl shows of them.
func remembered() {
	It("is in one record of each machine, which has ended as the wait did", func(ctx SpecContext) {
		for _, s := range lasting() {
			s.ended(ctx)
			is := s.record(ctx)
			back := conditions.Get(is, mendv1.RecordCapacityBack)
			if s.ends == suite.Back {
				Expect(is.Status.Outcome).To(Equal(mendv1.RecordReplaced), s.Name)
				Expect(back.Status).To(Equal(metav1.ConditionTrue), s.Name)
				Expect(s.first).NotTo(ContainElement(is.Status.Replacement.Machine.Name), s.Name)
			} else {
				Expect(is.Status.Outcome).To(Equal(mendv1.RecordGone), s.Name)
				Expect(is.Status.EndedBy).To(Equal(s.ends), s.Name)
				Expect(back.Status).To(Equal(metav1.ConditionFalse), s.Name)
			}
			for _, reason := range s.sees {
				Expect(is.Status.Waits).To(ContainElement(HaveField("Reason", reason)), s.Name)
			}
			Expect(is.OwnerReferences).To(ConsistOf(HaveField("UID", s.Cluster.UID)), s.Name)
		}
	})

	It("is shown by kubectl get", func(ctx SpecContext) {
		s := replacedOnHost(ctx)
		shown := strings.Fields(kubectl(ctx, s, "get", "rrec", "-o", "wide", "--no-headers"))
		Expect(shown[1:9]).To(Equal([]string{s.Name, s.old, s.old, s.record(ctx).Spec.Target.Host.Name, "workers", "Active", "Ready=False", "Replaced"}))
		Expect(shown).To(HaveLen(11), "it waits for nothing, and says when it began and when capacity was back")
	})

	It("may be read by who may read Machines of the namespace", func(ctx SpecContext) {
		s := scenes[0]
		Expect(builders.Apply(ctx, here, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
		})).To(Succeed())
		may := func(verb, namespace string) func(Gomega) bool {
			return func(g Gomega) bool {
				ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "reader", ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: mendv1.GroupVersion.Group, Resource: "remediationrecords", Verb: verb, Namespace: namespace,
				}}}
				g.Expect(here.Create(ctx, ask)).To(Succeed())
				return ask.Status.Allowed
			}
		}
		Eventually(may("list", s.Namespace)).Should(BeTrue())
		Expect(may("list", scenes[1].Namespace)(NewGomega(Fail))).To(BeFalse())
		Expect(may("update", s.Namespace)(NewGomega(Fail))).To(BeFalse())
	})

	It("was the check's condition CapacityBack as long as it was missing, and is no more", func(ctx SpecContext) {
		for _, s := range lasting() {
			Expect(s.conditions).To(ContainElement(HavePrefix("False ")), s.Name)
			Eventually(s.condition).WithArguments(ctx).Should(HavePrefix("True "), s.Name)
		}
		Expect(scenes[0].conditions).To(ContainElement("False DrainBlockedByBudget"))
		Expect(spare().conditions).To(ContainElement("False NoHost"))
	})

	It("was reported in events about the check, which kubectl describe finds", func(ctx SpecContext) {
		for _, s := range lasting() {
			end := "CapacityBack"
			if s.ends != suite.Back {
				end = "CapacityNotComing"
			}
			Eventually(func() []string { return s.told(ctx, end) }).Should(ConsistOf(And(ContainSubstring(s.old), HavePrefix("Normal "))), s.Name)
			awaited := s.told(ctx, "CapacityAwaited")
			Expect(len(awaited)).To(BeNumerically("<=", len(s.record(ctx).Status.Steps)), "%s: at most one for each change: %q", s.Name, awaited)
		}
		Expect(spare().told(ctx, "CapacityAwaited")).To(ContainElement(toDo), "a user has to add a host")
	})

	It("is counted by metrics, by what was waited for", func(ctx SpecContext) {
		for _, s := range lasting() {
			for _, reason := range s.sees {
				Eventually(func(g Gomega) float64 {
					seconds, err := strconv.ParseFloat(suite.Metric(ctx, manager, "kubemend_capacity_waited_seconds_total", `reason="`+reason+`"`)(g), 64)
					g.Expect(err).NotTo(HaveOccurred(), reason)
					return seconds
				}).Should(BeNumerically(">", 0), s.Name)
			}
			Eventually(suite.Metric(ctx, manager, "kubemend_capacity_missing", `namespace="`+s.Namespace+`"`)).Should(Equal("missing"), s.Name)
		}
		replaced := strconv.Itoa(len(lasting()) - 1)
		Eventually(suite.Metric(ctx, manager, "kubemend_remediation_due_to_capacity_seconds_count", `outcome="Replaced"`)).Should(Equal(replaced))
	})

	It("is what kubectl mend report counts", func(ctx SpecContext) {
		got := &cliv1.Report{}
		Expect(json.Unmarshal([]byte(kubectl(ctx, scenes[0], "mend", "report", "-A", "--by", "cluster,cause", "-o", "json")), got)).To(Succeed())
		Expect(got.Total.Remediations).To(Equal(len(lasting())))
		Expect(got.Total.Replaced).To(Equal(len(lasting()) - 1))
		Expect([]int{got.Total.Gone, got.Total.Open, got.Total.NotBegun}).To(Equal([]int{1, 0, 0}))
		Expect(got.Items).To(HaveLen(len(lasting())))
		var longest float64
		for _, s := range lasting() {
			if is := s.record(ctx); is.Status.CapacityBack != nil {
				longest = max(longest, is.Status.CapacityBack.Sub(is.Spec.UnhealthySince.Time).Seconds())
			}
		}
		Expect(got.Total.TimeToCapacityBack.MaxSeconds).To(BeNumerically("~", longest, 1))
		Expect(strings.Split(kubectl(ctx, scenes[0], "mend", "report", "-A", "-o", "csv"), "\n")).To(ContainElement(HavePrefix("budget/budget,1,0,0,1,0,")))
		Expect(kubectl(ctx, scenes[0], "mend", "report", "shadow", "-A", "--since", "14d")).To(ContainSubstring("kubemend observed: 0"))
	})

	It("is the history of machines that are gone", func(ctx SpecContext) {
		for _, s := range lasting() {
			Expect(kubectl(ctx, s, "mend", "history", "machine/"+s.old)).To(And(ContainSubstring("RemediationDecided"), ContainSubstring(s.sees[0]), ContainSubstring(string(s.record(ctx).Status.Outcome))), s.Name)
		}
	})

	It("can be waited for", func(ctx SpecContext) {
		back, down := scenes[0], scenes[slices.IndexFunc(scenes, func(s *scene) bool { return s.ends == "ScaledDown" })]
		for _, object := range []string{"machine/" + back.old, "machinedeployment/" + back.Pool(), "cluster/" + back.Name} {
			Expect(kubectl(ctx, back, "mend", "wait", object, "--for=capacity-back", "--timeout=30s")).To(ContainSubstring("condition met"))
		}
		Expect(kubectl(ctx, down, "mend", "wait", "machine/"+down.old, "--for=capacity-back", "--timeout=30s")).To(ContainSubstring("condition met"), "none is to come")
		run, complaint := command(ctx, back, "mend", "wait", "machine/never", "--for=capacity-back", "--timeout=30s")
		Expect(run.Run()).NotTo(Succeed())
		Expect(complaint.String()).To(ContainSubstring("there is no Machine never in namespace budget"))
	})

	It("goes with its Cluster", func(ctx SpecContext) { // the last one: nothing is left of the scene
		s := scenes[0]
		Expect(s.record(ctx).Status.Ended).NotTo(BeNil())
		Expect(here.Delete(ctx, s.Cluster.DeepCopy())).To(Succeed())
		Eventually(func(g Gomega) {
			list := &mendv1.RemediationRecordList{}
			g.Expect(here.List(ctx, list, client.InNamespace(s.Namespace))).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	})
}

// lasting are the scenes whose namespace, and with it their record, is still there at their end.
func lasting() []*scene {
	return slices.DeleteFunc(slices.Clone(scenes), func(s *scene) bool { return s.ends == "NamespaceDeleted" })
}

// replacedOnHost is a scene whose worker was replaced, and whose record names its host: what a busy API server does not tell in time is not in a record.
func replacedOnHost(ctx context.Context) *scene {
	GinkgoHelper()
	i := slices.IndexFunc(scenes, func(s *scene) bool { return s.ends == suite.Back && s.record(ctx).Spec.Target.Host != nil })
	Expect(i).NotTo(Equal(-1), "no record names a host")
	return scenes[i]
}

// spare is the scene in which a user has to do something at once.
func spare() *scene {
	return scenes[slices.IndexFunc(scenes, func(s *scene) bool { return slices.Contains(s.sees, "NoHost") })]
}

// record is that of the worker. There is one.
func (s *scene) record(ctx context.Context) *mendv1.RemediationRecord {
	GinkgoHelper()
	list := &mendv1.RemediationRecordList{}
	Expect(here.List(ctx, list, client.InNamespace(s.Namespace))).To(Succeed())
	Expect(list.Items).To(ConsistOf(And(HaveField("Spec.Mode", mendv1.RecordActive), HaveField("Spec.Target.Machine.Name", s.old))), s.Name)
	return &list.Items[0]
}

// ended waits until the record has ended, as users do.
func (s *scene) ended(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, s, "wait", "rrec", "--all", "--for=condition="+mendv1.RecordEnded, "--timeout=3m")
}

// condition is what the check says of the capacity, as its status and its reason.
func (s *scene) condition(ctx context.Context) string {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "workers"}, check)).To(Succeed())
	return conditionOf(check)
}

func conditionOf(check *clusterv1.MachineHealthCheck) string {
	c := conditions.Get(check, mendv1.CapacityBack)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// follows collects what the check says of the capacity, write by write, until the returned function is called: who only looks now and then misses it on a busy
// machine.
func (s *scene) follows(ctx context.Context) (stop func()) {
	GinkgoHelper()
	writes, err := rig.Follow(ctx, here, &clusterv1.MachineHealthCheckList{}, client.InNamespace(s.Namespace))
	Expect(err).NotTo(HaveOccurred())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for e := range writes.ResultChan() {
			if check, is := e.Object.(*clusterv1.MachineHealthCheck); is {
				s.conditions = append(s.conditions, conditionOf(check))
			}
		}
	}()
	return func() {
		writes.Stop()
		<-over
	}
}

// told are the events about the check that have the reason, as their type and their note.
func (s *scene) told(ctx context.Context, reason string) []string {
	GinkgoHelper()
	check := &clusterv1.MachineHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "workers"}, check)).To(Succeed())
	list := &eventsv1.EventList{}
	Expect(here.List(ctx, list, client.InNamespace(s.Namespace))).To(Succeed())
	var all []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == reason && e.Regarding.UID == check.UID && e.Regarding.Kind == "MachineHealthCheck" {
			all = append(all, e.Type+" "+e.Note)
		}
	}
	return all
}

// kubectl runs kubectl in the namespace of a scene, and returns what it prints.
func kubectl(ctx context.Context, s *scene, args ...string) string {
	GinkgoHelper()
	var out bytes.Buffer
	run, complaint := command(ctx, s, args...)
	run.Stdout = &out
	Expect(run.Run()).To(Succeed(), "kubectl %s: %s", strings.Join(args, " "), complaint)
	return out.String()
}

// command is kubectl in the namespace of a scene, unless it is to be of all, and what it will complain.
func command(ctx context.Context, s *scene, args ...string) (*exec.Cmd, *bytes.Buffer) {
	GinkgoHelper()
	if !slices.Contains(args, "-A") {
		args = append(args, "--namespace", s.Namespace)
	}
	run, err := rig.Kubectl(ctx, management.KubeconfigFile(), args...)
	Expect(err).NotTo(HaveOccurred())
	complaint := &bytes.Buffer{}
	run.Stderr = complaint
	return run, complaint
}
