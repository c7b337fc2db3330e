package machines

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

func TestAMachineSaysWhetherItIsBeingRemediatedUntilItIsHealthy(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a", func(m *clusterv1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "ms", UID: "1", Controller: new(true),
			}}
		})
		s.check("check", atMost("0"))
		s.Eventually(s.health("a")).Should(Equal(well))
		s.Expect(s.remediation("a")()).To(Equal("-"))

		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.Eventually(s.remediation("a")).Should(Equal("False/WithinTimeout"))
		version := s.get("a").ResourceVersion
		s.workload.Silence(true)
		time.Sleep(time.Minute)
		s.Eventually(s.of("check", "WorkloadClusterReachable")).Should(Equal("False/Unreachable"))
		time.Sleep(long)
		s.Expect(s.get("a").ResourceVersion).To(Equal(version), "an outage writes no Machine")
		s.workload.Silence(false)
		time.Sleep(long) // what was seen before the outage counts from its end on

		s.Eventually(s.remediation("a")).Should(Equal("False/TooManyUnhealthy"))
		s.Expect(s.health("a")()).To(Equal(silent))
		s.changeCheck("check", atMost("1"))
		s.Eventually(s.remediation("a")).Should(Equal("True/OwnerAsked"))
		s.Expect(conditions.GetMessage(s.get("a"), mendv1.Remediation)).
			To(HavePrefix("Its owner, MachineSet ms, was asked to remediate it: see RemediationRecord a-"))
		version = s.get("a").ResourceVersion
		time.Sleep(long)
		s.Expect(s.get("a").ResourceVersion).To(Equal(version), "a steady world causes no writes")

		s.comesBack("a")
		s.Eventually(s.remediation("a")).Should(Equal("-"))
		s.Expect(s.health("a")()).To(Equal(well))
		patches, _ := s.calls(0, func(call apiserver.Call) bool {
			return call.Name == "a" && call.Subresource == "status" && call.Writes() && !call.Failed
		})
		s.Expect(patches).To(Equal(map[string]int{"patch machines": 6}),
			"healthy, pending, pending anew after the outage, blocked, asked, healthy: each is one patch")
	})
}

func TestAMachineInMaintenanceIsRemediatedWhenItsNodeIsDeleted(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))
		s.nodeReports("a", "MaintenanceInProgress", corev1.ConditionTrue, 0)
		s.fallsSilent("a")
		time.Sleep(25 * time.Hour)
		s.Expect(s.remediation("a")()).To(Equal("False/NodeInMaintenance"))
		s.losesNode("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
	})
}

func TestAnOwnerThatNeverAnswersKeepsItsPlaceOnlyIfOthersOfItsKindHaveAnswered(t *testing.T) {
	talos := func(m *clusterv1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "x.io/v1", Kind: "TalosControlPlane", Name: "cp", UID: "1", Controller: new(true)},
		}
	}
	inV1Beta1 := &clusterv1.Condition{
		Type: clusterv1.MachineOwnerRemediatedV1Beta1Condition, Status: corev1.ConditionFalse, Message: "too few replicas",
		Reason: clusterv1.WaitingForRemediationV1Beta1Reason, Severity: clusterv1.ConditionSeverityWarning,
	}
	for _, answers := range []string{"never", "as others", "in v1beta1"} {
		run(t, func(s *environment) {
			s.worker("a", talos)
			s.worker("elsewhere", talos, func(m *clusterv1.Machine) { m.Labels["pool"] = "another" })
			if answers == "as others" {
				s.change("elsewhere", func(m *clusterv1.Machine) {
					deferred := condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, 0)
					deferred.Reason = clusterv1.MachineSetMachineRemediationDeferredReason
					conditions.Set(m, deferred)
				})
			}
			s.check("check")
			inFlight := s.number("kubemend_remediations_in_flight", s.labels("check")...)
			s.Eventually(s.health("a")).Should(Equal(well))
			s.fallsSilent("a")
			s.Expect(s.owner("a")()).To(Equal(ownerRequested))
			if answers == "in v1beta1" {
				s.change("a", func(m *clusterv1.Machine) { v1beta1conditions.Set(m, inV1Beta1) })
				s.Eventually(func() string { return conditions.GetMessage(s.get("a"), mendv1.Remediation) }).
					Should(HaveSuffix("The owner says: too few replicas"))
			}
			s.Expect(s.here.Delete(s.ctx, s.get("elsewhere"))).To(Succeed())
			s.Expect(inFlight()).To(BeEquivalentTo(1))
			time.Sleep(3 * time.Hour)
			if answers == "as others" {
				s.Expect(inFlight()).To(BeEquivalentTo(1))
			} else {
				s.Expect(inFlight()).To(BeZero(), "it takes no place any more")
			}
		})
	}
}

func (s *environment) recorded() []mendv1.RemediationRecord {
	all := &mendv1.RemediationRecordList{}
	s.Expect(s.here.List(s.ctx, all, client.InNamespace(s.cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})).To(Succeed())
	return all.Items
}

func recordsWritten(call apiserver.Call) bool {
	return call.Resource == "remediationrecords" && call.Writes() && !call.Failed
}

// objectsRead are reads of the objects that checks and records are about.
func objectsRead(call apiserver.Call) bool {
	about := []string{
		"clusters", "machines", "machinesets", "machinedeployments", "machinehealthchecks", "metal3remediations", "remediationrecords",
	}
	return slices.Contains(about, call.Resource) && (call.Verb == "get" || call.Verb == "list")
}

// It is made by one write, and each step is one. At rest it costs nothing but a read of its owner, which is not watched, in ten minutes.
func TestWhatARecordCosts(t *testing.T) {
	for name, edits := range map[string][]func(*clusterv1.MachineHealthCheck){
		"by its owner": nil, "by a request": {byRequests},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *environment) {
				s.template()
				s.workers("a", "b", "c")
				s.check("check", append(edits, atMost("40%"))...)
				s.Eventually(s.health("a")).Should(Equal(well))
				_, since := s.calls(0, recordsWritten)
				s.fallsSilent("a")
				time.Sleep(90 * time.Minute)
				writes, now := s.calls(since, recordsWritten)
				s.Expect(writes["create remediationrecords"]).To(Equal(1))
				s.Expect(writes["patch remediationrecords"]).To(BeNumerically("<=", 2))
				s.Expect(s.recorded()[0].Status.Steps).To(HaveLen(2))

				time.Sleep(6 * time.Hour)
				writes, _ = s.calls(now, recordsWritten)
				s.Expect(writes).To(BeEmpty())
				reads, now := s.calls(now, objectsRead)
				s.Expect(reads["get machinesets"]).To(BeNumerically("<=", 40*(1-len(edits))))
				delete(reads, "get machinesets")
				s.Expect(reads).To(BeEmpty())

				s.comesBack("a")
				time.Sleep(time.Hour)
				writes, _ = s.calls(now, recordsWritten)
				s.Expect(writes["patch remediationrecords"]).To(BeNumerically("<=", 2), "it is healed, and its request gone: in any order")
				reads, _ = s.calls(now, objectsRead)
				for resource, n := range reads { // what an end rests on is read past the caches
					s.Expect(n).To(BeNumerically("<=", 2), resource)
				}
				s.Expect(s.recorded()[0].Status.Outcome).To(Equal(mendv1.RecordHealed))
			})
		})
	}
}

func TestTheRecordOfARequestThatIsDeletedAtOnceSaysThatItBegan(t *testing.T) {
	run(t, func(s *environment) {
		s.template()
		s.workers("a", "b", "c")
		s.check("check", byRequests)
		s.Eventually(s.health("a")).Should(Equal(well))
		s.nodeReports("a", corev1.NodeReady, corev1.ConditionUnknown, long)
		for len(s.requested()()) == 0 {
			time.Sleep(50 * time.Millisecond) // less than events of requests are merged for
		}
		s.comesBack("a")
		time.Sleep(time.Minute)
		s.Expect(s.requested()()).To(BeEmpty())
		s.Expect(s.recorded()).To(ConsistOf(HaveField("Status", And(
			HaveField("Begun", Not(BeNil())), HaveField("Outcome", mendv1.RecordHealed)))))
	})
}

// What a power cycle costs beside what its own controller writes: a Machine and its check are written when the node falls silent, when the
// remediation begins, and when it has helped; and each step that lasts is one patch of the record.
func TestWhatAPowerCycleCostsItsCheckAndItsRecord(t *testing.T) {
	aside := []string{"leases", "selfsubjectaccessreviews"}
	for name, tc := range map[string]struct {
		lasts   time.Duration // each state
		records int
	}{
		"within a second":    {150 * time.Millisecond, 3},
		"as on real servers": {time.Minute, 6},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *environment) {
				s.template()
				s.workers("a", "b", "c")
				s.check("check", byRequests)
				s.Eventually(s.counts("check")).Should(Equal([]int32{3, 3, 3}))
				changed := func(call apiserver.Call) bool { return call.Writes() && !slices.Contains(aside, call.Resource) }
				_, since := s.calls(0, changed)
				s.fallsSilent("a")
				for _, state := range []string{"PoweringOff", "MovingWorkload", "PoweringOn", "Booting"} {
					request := s.request("a")
					annotations.AddAnnotations(request, map[string]string{
						mendv1.PowerCycleAnnotation: `{"state":"` + state + `","touched":true}`,
					})
					s.Expect(s.here.Update(s.ctx, request)).To(Succeed())
					time.Sleep(tc.lasts)
				}
				s.comesBack("a")
				time.Sleep(10 * time.Minute)
				record := s.recorded()[0].Status
				s.Expect(string(record.Outcome)+record.EndedBy).To(Equal("Healed"), "it was carried out")
				writes, _ := s.calls(since, changed)
				s.Expect(writes).To(Equal(map[string]int{
					"patch machines": 3, "create metal3remediations": 1, "delete metal3remediations": 1, "create remediationrecords": 1,
					"patch remediationrecords": tc.records, "patch machinehealthchecks": 3, "create events": 4,
				}))
			})
		})
	}
}

// Of two checks of one machine each judges its own remediation: what the other one finds besides keeps no record open.
func TestARecordIsHealedByTheRulesOfTheCheckThatAskedAlone(t *testing.T) {
	run(t, func(s *environment) {
		twoChecks(s, byRequests)
		s.fallsSilent("a")
		s.isRequested("a")
		s.changeCheck("a-younger", atMost("0"))
		s.nodeReports("a", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.Eventually(func() string { return conditions.GetMessage(s.get("a"), "HealthCheckSucceeded") }).
			Should(ContainSubstring("DiskPressure"))
		s.comesBack("a")
		time.Sleep(15 * time.Minute)

		s.Expect(s.health("a")()).To(Equal(silent), "the younger check says so")
		s.Expect(s.recorded()).To(HaveLen(1))
		s.Expect(s.recorded()[0].Status.Outcome).To(Equal(mendv1.RecordHealed))
	})
}

// sentEvents returns the events of an environment, unsorted, as "Object Reason"; but for those that say what capacity waits for, which
// depend on for how long.
func (s *environment) sentEvents() func() []string {
	return func() []string {
		var all []string
		for _, e := range s.allEvents() {
			if !strings.HasPrefix(e.Reason, "Capacity") {
				all = append(all, e.Regarding.Name+" "+e.Reason)
			}
		}
		return all
	}
}

// note is the text of the only event of a reason on an object.
func (s *environment) note(object, reason string) func() string {
	return func() string { return strings.Join(s.notes(object, reason), "\n") }
}

func (s *environment) notes(object, reason string) (texts []string) {
	for _, e := range s.allEvents() {
		if e.Regarding.Name == object && e.Reason == reason {
			texts = append(texts, e.Type+": "+e.Note)
		}
	}
	return texts
}

func TestW17EventsAndMetricsOneEventPerChangeRecoveryIncludedAndNoneWithoutAChange(t *testing.T) {
	run(t, func(s *environment) {
		s.template()
		s.workers("a", "b", "c")
		s.check("check", byRequests, atMost("1"))
		s.Eventually(s.counts("check")).Should(Equal([]int32{3, 3, 1}))
		s.Expect(s.sentEvents()()).To(BeEmpty(), "a healthy check causes no event")
		in := s.cluster.Namespace + "/"

		s.fallsSilent("a")
		s.Eventually(s.sentEvents()).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted"))
		s.Eventually(s.note("a", "MachineMarkedUnhealthy")).
			Should(Equal("Normal: Machine " + in + "a has been marked as unhealthy by " + in + "check: " +
				"Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		s.Eventually(s.note("check", "RemediationStarted")).Should(Equal("Normal: Requested a Metal3Remediation for a"))

		s.nodeReports("b", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.Eventually(s.sentEvents()).Should(ContainElement("check RemediationRestricted"))
		s.Eventually(s.note("check", "RemediationRestricted")).Should(Equal("Warning: " + s.message("check", "RemediationAllowed")()))
		time.Sleep(patience)
		s.Eventually(s.sentEvents()).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted",
			"b MachineMarkedUnhealthy", "check RemediationRestricted"))

		s.Eventually(s.number("kubemend_machinehealthcheck_short_circuited", s.labels("check")...)).Should(BeEquivalentTo(1))

		s.comesBack("a")
		s.Eventually(s.sentEvents()).Should(ConsistOf("a MachineMarkedUnhealthy", "check RemediationStarted",
			"b MachineMarkedUnhealthy", "check RemediationRestricted",
			"a MachineHealthy", "check RemediationEnded", "check RemediationAllowed", "check RemediationStarted"))
		s.Eventually(s.note("a", "MachineHealthy")).
			Should(Equal("Normal: Machine " + in + "a has been marked as healthy again by " + in + "check"))
		s.Eventually(s.note("check", "RemediationEnded")).Should(Equal("Normal: Healthy again: a"))

		s.Eventually(s.message("check", mendv1.CapacityBack)).
			Should(Equal("The capacity of Machine b is not back: Metal3Remediation b has not ended"))
		// Whether capacity is back is said when a record is closed, and the check says it then too.
		time.Sleep(10 * time.Second)
		before := s.versions()
		for _, value := range []string{"1", "2", "3"} { // reconciles in which nothing changes
			s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = map[string]string{"irrelevant": value} })
			before["MachineHealthCheck/check"] = s.getCheck("check").ResourceVersion
			s.Consistently(s.versions).WithTimeout(10 * time.Second).Should(Equal(before))
		}
	})
}

func TestW17EventsAndMetricsMetricsCountRemediationsStartedAndFinishedByKind(t *testing.T) {
	run(t, func(s *environment) {
		s.template()
		s.workers("recovers", "is-replaced", "is-skipped")
		s.worker("owned", func(m *clusterv1.Machine) { m.Labels["pool"] = "owned" })
		s.check("check", byRequests)
		s.check("owned", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "owned" })
		began := func(check, kind string) func() float64 {
			return s.number("kubemend_remediations_started_total", s.labels(check, `kind="`+kind+`"`)...)
		}
		ended := func(check, kind, result string) func() float64 {
			return s.number("kubemend_remediations_finished_total", s.labels(check, `kind="`+kind+`"`, `result="`+result+`"`)...)
		}
		inFlight := s.number("kubemend_remediations_in_flight", s.labels("check")...)
		s.Eventually(s.health("owned")).Should(Equal(well))

		s.fallsSilent("recovers", "is-replaced", "is-skipped", "owned")
		s.Eventually(began("check", "Metal3Remediation")).Should(BeEquivalentTo(3))
		s.Eventually(began("owned", "Owner")).Should(BeEquivalentTo(1))
		s.Eventually(inFlight).Should(BeEquivalentTo(3))
		s.Expect(s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="unhealthy"`)...)()).To(BeEquivalentTo(3))

		s.comesBack("recovers", "owned")
		s.Eventually(ended("check", "Metal3Remediation", "recovered")).Should(BeEquivalentTo(1))
		s.Eventually(ended("owned", "Owner", "recovered")).Should(BeEquivalentTo(1))
		s.Expect(s.here.Delete(s.ctx, s.get("is-replaced"))).To(Succeed())
		s.Eventually(ended("check", "Metal3Remediation", "replaced")).Should(BeEquivalentTo(1))
		s.change("is-skipped", annotated(clusterv1.MachineSkipRemediationAnnotation))
		s.Eventually(ended("check", "Metal3Remediation", "cancelled")).Should(BeEquivalentTo(1))
		s.Eventually(inFlight).Should(BeZero())
		s.Expect(began("check", "Metal3Remediation")()).To(BeEquivalentTo(3))
		s.Expect(began("owned", "Owner")()).To(BeEquivalentTo(1))
	})
}
