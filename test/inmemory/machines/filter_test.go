package machines

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

func TestAManagerWithAFilterLeavesMachinesOfOtherManagersWhenItReleases(t *testing.T) {
	alone(t, func(s *environment) {
		label := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"cluster.x-k8s.io/watch-filter":"one"}}}`))
		s.Expect(s.here.Patch(s.ctx, s.cluster, label)).To(Succeed())
		one := flags{unclaimed: machinehealthcheck.Act, filter: "one"}
		m := s.start(one)
		s.template("reboot")
		s.worker("a")
		s.check("check", by("reboot"))
		s.fallsSilent("a")
		s.isRequested("a")
		m.kill()

		s.Expect(s.here.Delete(s.ctx, s.getCheck("check"))).To(Succeed())
		other := s.start(flags{unclaimed: machinehealthcheck.Act, filter: "two"})
		s.Consistently(s.requested()).Should(ConsistOf("a"), "this is not its cluster")
		s.Expect(s.health("a")()).To(Equal(silent))
		other.kill()
		s.start(one)
		s.Eventually(s.requested()).Should(BeEmpty())
	})
}
