package kubeadm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Facts)
		want Answer
	}{
		"a machine that replaced no other has no retries": {
			edit: func(f *Facts) { f.Last, f.Rules.MaxRetry = Remediation{}, 0 },
		},
		"before the retry period is over, no retry": {
			edit: func(f *Facts) { f.Rules.RetryPeriod = 5 * time.Minute },
			want: Answer{Reason: WithinRetryPeriod, Until: noon.Add(3 * time.Minute)},
		},
		"without a retry period the next retry waits for nothing": {
			edit: func(f *Facts) { f.Rules.RetryPeriod = 0 },
		},
		"the wait ends at the moment itself": {
			edit: func(f *Facts) { f.Rules.RetryPeriod, f.Asked = 2*time.Minute, noon },
		},
		"a wait that has ended since the answer leaves the retry to the next reconcile": {
			edit: func(f *Facts) { f.Rules.RetryPeriod, f.Asked = 2*time.Minute, ago(time.Second) },
			want: Answer{Reason: RetryDue},
		},
		"a failure after the healthy period is a new one": {
			edit: func(f *Facts) { f.Rules, f.Asked = Rules{RetryPeriod: time.Hour, MinHealthy: 2 * time.Minute}, noon },
		},
		"a retry period that is longer than the healthy period ends with that": {
			edit: func(f *Facts) { f.Rules.RetryPeriod, f.Rules.MinHealthy = time.Hour, 10*time.Minute },
			want: Answer{Reason: WithinRetryPeriod, Until: noon.Add(8 * time.Minute)},
		},
		"after the last retry there is none until the healthy period is over": {
			edit: func(f *Facts) { f.Refused, f.Rules.MaxRetry = true, 1 },
			want: Answer{Reason: RetriesExhausted, Until: noon.Add(58 * time.Minute)},
		},
		"no retry at all is a limit too": {
			edit: func(f *Facts) { f.Refused, f.Rules.MaxRetry, f.Last.Retries = true, 0, 0 },
			want: Answer{Reason: RetriesExhausted, Until: noon.Add(58 * time.Minute)},
		},
		"with retries left the limit is no reason": {
			edit: func(f *Facts) { f.Rules.MaxRetry = 2 },
		},
		"within the retry period, and without a retry left, the later moment counts": {
			edit: func(f *Facts) { f.Rules.RetryPeriod, f.Rules.MaxRetry = 5*time.Minute, 1 },
			want: Answer{Reason: RetriesExhausted, Until: noon.Add(58 * time.Minute)},
		},
		"a refusal for retries that count anew by now waits for the next reconcile": {
			edit: func(f *Facts) {
				f.Refused, f.Rules.MaxRetry, f.Rules.MinHealthy, f.Asked = true, 1, 2*time.Minute, ago(time.Minute)
			},
			want: Answer{Reason: RetryDue},
		},
		"a refusal with retries left has another reason": {
			edit: func(f *Facts) { f.Refused, f.Rules.MaxRetry, f.Rules.RetryPeriod = true, 5, 5*time.Minute },
		},
		"a control plane does not replace its only machine": {
			edit: func(f *Facts) { f.Refused, f.Machines = true, 1 },
			want: Answer{Reason: OnlyMachine},
		},
		"before it is initialized it would": {
			edit: func(f *Facts) { f.Refused, f.Machines, f.Initialized = true, 1, false },
		},
		"machines without a node are waited for": {
			edit: func(f *Facts) { f.Provisioning, f.Deleting = []string{"cp-4"}, []string{"cp-2"} },
			want: Answer{Reason: OthersProvisioning, Others: []string{"cp-4"}},
		},
		"machines that are being deleted are waited for": {
			edit: func(f *Facts) { f.Deleting = []string{"cp-2"} },
			want: Answer{Reason: OthersDeleting, Others: []string{"cp-2"}},
		},
		"what is only put off is not refused for the others": {
			edit: func(f *Facts) { f.Refused, f.Deleting = true, []string{"cp-2"} },
		},
		"without any of these the reason is not known": {edit: func(*Facts) {}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{
				Now: noon, Asked: ago(90 * time.Second), Initialized: true, Machines: 3,
				Last: Remediation{At: ago(2 * time.Minute), Retries: 1}, Rules: Rules{MaxRetry: -1, MinHealthy: time.Hour},
			}
			tc.edit(&f)
			if diff := cmp.Diff(tc.want, Decide(f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
