package hostremediation

import (
	"context"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/workload"
)

// H-11: HostRemediations can ask for 0 retries, and no value makes a remediation wait for ever.
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

// eks-anywhere#5637: the self-test of large servers takes more than ten minutes.
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
		must.Is(t, want, k.wait(0).Deadline.Sub(k.clock.Now()), "after a boot of %d s the next one may take", last)
		if status := k.wait(12 * time.Minute); status.Step != string(powercycle.Booting) {
			t.Errorf("a server in its self-test is in %s", status.Step)
		}
	}
}

// deadlines notes the deadlines of reads from a workload cluster that does not answer.
type deadlines struct {
	Nodes
	all []time.Time
}

func (d *deadlines) note(ctx context.Context) {
	at, _ := ctx.Deadline()
	d.all = append(d.all, at)
}

func (d *deadlines) View(ctx context.Context, _ client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	d.note(ctx)
	return workload.View{Link: workload.Down}, nil
}

func (d *deadlines) Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error) {
	d.note(ctx)
	return d.Nodes.Look(ctx, cluster, node, by)
}

func TestAllThatAReconcileReadsFromAClusterHasOneDeadline(t *testing.T) {
	k := fixtureOf(t)
	there := &deadlines{Nodes: k.nodes}
	k.r.Nodes, k.r.Clusters = there, there
	k.expects(powersOff, fences)
	most := 0
	for i := range 8 {
		if there.all = nil; i == 4 {
			k.power(false)
		}
		before := clock.RealClock{}.Now()
		k.reconciles()
		for _, at := range there.all {
			if !at.Equal(there.all[0]) {
				t.Fatalf("the deadlines are %v", there.all)
			}
			if in := at.Sub(before); in < 0 || in > workload.AnswerWithin+time.Second {
				t.Errorf("the deadline is in %s", in)
			}
		}
		most = max(most, len(there.all))
	}
	if most < 2 {
		t.Errorf("the cluster is asked %d times at most, want its nodes and the node", most)
	}
}

// Before the controller is set up, a read from the cache would start an informer.
func TestRemediationsAreReadFromTheCacheOnceTheyAreWatched(t *testing.T) {
	k := fixtureOf(t)
	k.r.Installed = func() ([]remediation.Kind, error) {
		return []remediation.Kind{remediation.Metal3, remediation.Own}, nil
	}
	own := remediation.Own.GroupVersionKind
	for name, tc := range map[string]struct {
		r         *Reconciler
		kind      schema.GroupVersionKind
		namespace string
		has       bool
		all       int
	}{
		"those of a kind":           {k.r, own, k.key.Namespace, true, 1},
		"those of another place":    {k.r, own, "elsewhere", true, 0},
		"those of CAPM3's kind":     {k.r, remediation.Metal3.GroupVersionKind, k.key.Namespace, true, 0},
		"those of a kind of others": {k.r, mendv1.GroupVersion.WithKind("Another"), k.key.Namespace, false, 0},
		"before it is set up":       {&Reconciler{Installed: k.r.Installed, Client: k.client}, own, k.key.Namespace, false, 0},
	} {
		if all, has, err := tc.r.Cached(t.Context(), tc.kind, tc.namespace); err != nil || has != tc.has || len(all) != tc.all {
			t.Errorf("%s: %d, %t, %v; want %d, %t", name, len(all), has, err, tc.all, tc.has)
		}
	}
}
