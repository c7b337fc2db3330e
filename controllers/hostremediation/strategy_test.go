package hostremediation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// H-11: 0 retries can be asked for where the wire has room for that, and no number makes a remediation wait for ever.
func TestWhatAStrategyAsksFor(t *testing.T) {
	metal3Of := func(retries, seconds int32) remediation.Object {
		return remediation.Wrap(&infrav1.Metal3Remediation{Spec: infrav1.Metal3RemediationSpec{
			Strategy: &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: retries, TimeoutSeconds: seconds},
		}})
	}
	ownOf := func(s *mendv1.HostRemediationStrategy) remediation.Object {
		return remediation.Wrap(&mendv1.HostRemediation{Spec: mendv1.HostRemediationSpec{Strategy: s}})
	}
	for name, row := range map[string]struct {
		of       remediation.Object
		attempts int
		timeout  time.Duration
		boot     time.Duration
	}{
		"a HostRemediation that says nothing":             {ownOf(&mendv1.HostRemediationStrategy{}), 2, 10 * time.Minute, 20 * time.Minute},
		"no retry":                                        {ownOf(&mendv1.HostRemediationStrategy{RetryLimit: ptr.To[int32](0)}), 1, 10 * time.Minute, 20 * time.Minute},
		"a strategy that is not there":                    {ownOf(nil), 2, 10 * time.Minute, 20 * time.Minute},
		"beyond the limits, stored before there were any": {ownOf(&mendv1.HostRemediationStrategy{RetryLimit: ptr.To[int32](1 << 30), TimeoutSeconds: 1 << 30, BootTimeoutSeconds: 1 << 30}), 101, 24 * time.Hour, 24 * time.Hour},
		"a Metal3Remediation that says nothing":           {metal3Of(0, 0), 2, 10 * time.Minute, 10 * time.Minute},
		"as it likes":                                     {metal3Of(3, 300), 4, 5 * time.Minute, 5 * time.Minute},
		"for 68 years":                                    {metal3Of(1<<31-1, 1<<31-1), 101, 24 * time.Hour, 24 * time.Hour},
	} {
		if p := policyOf(row.of.Strategy(), 0); p.Attempts() != row.attempts || p.Timeout != row.timeout || p.Boot != row.boot {
			t.Errorf("%s: %d attempts of %s and boots of %s, want %d of %s and %s", name, p.Attempts(), p.Timeout, p.Boot, row.attempts, row.timeout, row.boot)
		}
	}
}

// eks-anywhere#5637: large servers take more than ten minutes for their self-test.
func TestABootMayTakeTwiceAsLongAsTheLastOne(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(-d)} }
	booted := func(outcome mendv1.RecordOutcome, ended *metav1.Time, seconds int64) mendv1.RemediationRecord {
		step := func(reason string, before int64) mendv1.RecordStep {
			return mendv1.RecordStep{Reason: reason, Time: metav1.NewMicroTime(ended.Add(-time.Duration(before) * time.Second))}
		}
		return mendv1.RemediationRecord{Status: mendv1.RemediationRecordStatus{
			Outcome: outcome, Ended: ended, Steps: []mendv1.RecordStep{step("PoweringOff", seconds+7), step("Booting", seconds)},
		}}
	}
	for name, row := range map[string]struct {
		records []mendv1.RemediationRecord
		want    int64
	}{
		"no record": {nil, 0},
		"the last one counts": {[]mendv1.RemediationRecord{
			booted(mendv1.RecordHealed, ago(time.Hour), 900), booted(mendv1.RecordHealed, ago(2*time.Hour), 300),
		}, 900},
		"not one after which the machine was not healthy": {[]mendv1.RemediationRecord{
			booted(mendv1.RecordReplaced, ago(time.Minute), 3000), booted(mendv1.RecordHealed, ago(time.Hour), 900),
		}, 900},
	} {
		if got := lastBoot(row.records); got != row.want {
			t.Errorf("%s: %d s, want %d", name, got, row.want)
		}
	}
	for last, want := range map[int64]time.Duration{0: 20 * time.Minute, 900: 30 * time.Minute, 7200: time.Hour} {
		k := fixtureOf(t, func(rem *mendv1.HostRemediation) { rem.Spec.Strategy.BootTimeoutSeconds = 0 }).recording()
		k.obeys()
		before := booted(mendv1.RecordHealed, ago(time.Hour), last)
		before.Namespace, before.Name, before.Labels = "ns", "before", map[string]string{mendv1.RecordHostLabel: "h"}
		k.creates(&before)
		k.reaches(powercycle.Booting)
		if got := k.wait(0).Deadline.Sub(k.clock.Now()); got != want {
			t.Errorf("after a boot of %d s the next one may take %s, want %s", last, got, want)
		}
		if status := k.wait(12 * time.Minute); status.Step != string(powercycle.Booting) {
			t.Errorf("a server in its self-test is in %s", status.Step)
		}
	}
}
