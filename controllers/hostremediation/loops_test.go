package hostremediation

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// byCheck is a remediation that a check has just requested.
func byCheck(rem *mendv1.HostRemediation) {
	rem.CreationTimestamp = metav1.NewTime(noon)
	rem.Annotations, rem.Labels = map[string]string{mendv1.MadeByAnnotation: "workers"}, map[string]string{mendv1.MadeByUIDLabel: "check-uid"}
}

// cycledBefore is a host whose power cycles were begun so many minutes before noon, each of which helped for a while.
func (k *fixture) cycledBefore(minutes ...int) {
	k.t.Helper()
	for i, ago := range minutes {
		begun := noon.Add(-time.Duration(ago) * time.Minute)
		record := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(rune('a' + i))}}
		record.Spec.Remediator, record.Spec.Decided = mendv1.RemediatedByRequest, metav1.NewTime(begun)
		record.Spec.Target.Host = &mendv1.RecordRef{Kind: "BareMetalHost", Namespace: "ns", Name: "h"}
		record.Status.Begun, record.Status.Ended = new(metav1.NewTime(begun)), new(metav1.NewTime(begun.Add(5*time.Minute)))
		k.creates(record)
	}
}

func TestAHostThatFailsSoonAfterEachPowerCycleWaits(t *testing.T) {
	k := fixtureOf(t, byCheck)
	k.cycledBefore(60, 45, 20)
	status := k.pass()
	for _, says := range []string{"3 since 2026-01-01T11:00:00Z", "the next one at 2026-01-01T12:04:00Z"} {
		if status.Step != string(powercycle.Pending) || !strings.Contains(status.Message, says) {
			t.Fatalf("it is in %s: %s; want it to say %s", status.Step, status.Message, says)
		}
	}
	if got := k.remediation().Annotations[mendv1.WaitsForAnnotation]; got != "RemediationLoop" {
		t.Errorf("for its check it waits for %q", got)
	}
	if next := k.explained().Next; !next.At.Equal(noon.Add(4*time.Minute)) || next.Manual {
		t.Errorf("a page says that next is, at %s: %s", next.At, next.Text)
	}
	k.expects(powersOff)
	if status := k.wait(4 * time.Minute); status.Step != string(powercycle.PoweringOff) {
		t.Errorf("after that it is in %s: %s", status.Step, status.Message)
	}
	if until := k.remediation().Status.BlockedUntil; until != nil {
		t.Errorf("it is blocked until %s", until)
	}
}

// A manager that has just started does not know the records yet.
func TestAHostWaitsAfterAStartUntilItsRecordsAreKnown(t *testing.T) {
	k := fixtureOf(t, byCheck)
	k.r.Records = &records.Records{
		Client: k.client, Live: k.client, Clock: k.clock, Installed: func(context.Context, string) (bool, error) { return true, nil },
	}
	if status := k.pass(); status.Step != string(powercycle.Pending) || !strings.Contains(status.Message, "not known yet") {
		t.Errorf("it is in %s: %s", status.Step, status.Message)
	}
	if result := k.reconciles(); result.RequeueAfter != retry {
		t.Errorf("it looks again in %s", result.RequeueAfter)
	}
	k.expects(powersOff)
	if status := k.wait(30 * time.Second); status.Step != string(powercycle.PoweringOff) {
		t.Errorf("after 30 s it is in %s: %s", status.Step, status.Message)
	}
}

func TestAPowerCycleBeginsAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		edit  func(*mendv1.HostRemediation)
		begin func(*fixture)
	}{
		"of a host that was well for an hour": {byCheck, func(k *fixture) { k.cycledBefore(65) }},
		"that a user wrote":                   {func(*mendv1.HostRemediation) {}, func(k *fixture) { k.cycledBefore(20) }},
		"that a user asked for by kubectl mend": {func(rem *mendv1.HostRemediation) {
			byCheck(rem)
			rem.Annotations[mendv1.RequestedAnnotation] = `{"by":"alice","at":"2026-01-01T12:00:00Z"}`
		}, func(k *fixture) { k.cycledBefore(20) }},
		"of a machine that a user has marked": {byCheck, func(k *fixture) {
			k.cycledBefore(20)
			k.edits("m", func(m *clusterv1.Machine) {
				m.Annotations = map[string]string{clusterv1.RemediateMachineAnnotation: ""}
			})
		}},
		"whose own record its check has written": {func(rem *mendv1.HostRemediation) {
			byCheck(rem)
			rem.Annotations[mendv1.RecordAnnotation] = "a"
		}, func(k *fixture) { k.cycledBefore(0) }},
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, tc.edit)
			tc.begin(k)
			k.expects(powersOff)
			if status := k.pass(); status.Step != string(powercycle.PoweringOff) {
				t.Errorf("it is in %s: %s", status.Step, status.Message)
			}
		})
	}
}
