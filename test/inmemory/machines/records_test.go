package machines

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/inmemory/apiserver"
)

// recorded are the records of an environment.
func (s *environment) recorded() []mendv1.RemediationRecord {
	all := &mendv1.RemediationRecordList{}
	s.Expect(s.here.List(s.ctx, all, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})).To(Succeed())
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
		"by its owner": nil, "by a request": {by("reboot")},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s *environment) {
				s.template("reboot")
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

// Of two checks of one machine each judges its own remediation: what the other one finds besides keeps no record open.
func TestARecordIsHealedByTheRulesOfTheCheckThatAskedAlone(t *testing.T) {
	run(t, func(s *environment) {
		twoChecks(s, by("reboot"))
		s.fallsSilent("a")
		s.isRequested("a")
		s.changeCheck("a-younger", func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "0"}
		})
		s.nodeReports("a", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.Eventually(func() string { return conditions.GetMessage(s.get("a"), "HealthCheckSucceeded") }).Should(ContainSubstring("DiskPressure"))
		s.comesBack("a")
		time.Sleep(15 * time.Minute)

		s.Expect(s.health("a")()).To(Equal(silent), "the younger check says so")
		s.Expect(s.recorded()).To(HaveLen(1))
		s.Expect(s.recorded()[0].Status.Outcome).To(Equal(mendv1.RecordHealed))
	})
}
