package hostremediation

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
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
	}{
		"a HostRemediation that says nothing":             {ownOf(&mendv1.HostRemediationStrategy{}), 2, 10 * time.Minute},
		"no retry":                                        {ownOf(&mendv1.HostRemediationStrategy{RetryLimit: ptr.To[int32](0)}), 1, 10 * time.Minute},
		"a strategy that is not there":                    {ownOf(nil), 2, 10 * time.Minute},
		"beyond the limits, stored before there were any": {ownOf(&mendv1.HostRemediationStrategy{RetryLimit: ptr.To[int32](1 << 30), TimeoutSeconds: 1 << 30}), 101, 24 * time.Hour},
		"a Metal3Remediation that says nothing":           {metal3Of(0, 0), 2, 10 * time.Minute},
		"as it likes":                                     {metal3Of(3, 300), 4, 5 * time.Minute},
		"for 68 years":                                    {metal3Of(1<<31-1, 1<<31-1), 101, 24 * time.Hour},
	} {
		if p := policyOf(row.of.Strategy()); p.Attempts() != row.attempts || p.Timeout != row.timeout {
			t.Errorf("%s: %d attempts of %s, want %d of %s", name, p.Attempts(), p.Timeout, row.attempts, row.timeout)
		}
	}
}
