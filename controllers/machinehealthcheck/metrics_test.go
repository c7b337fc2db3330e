package machinehealthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestTheOldestRequestIsTheOneThatWasMadeFirst(t *testing.T) {
	made := func(d time.Duration) func(*target) {
		return func(t *target) {
			t.request = &remediationrequest.Metadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(ago(d))}}
		}
	}
	targets := aCheck(
		a("m1", health.Healthy), a("m2", health.Unhealthy, made(time.Hour)), a("m3", health.Unhealthy, made(2*time.Hour)), a("m4", health.Unhealthy, made(0)),
	).targets
	if got := madeFirst(targets, []int{0, 1, 2, 3}); !got.Equal(ago(2 * time.Hour)) {
		t.Errorf("got %s, want two hours ago", got)
	}
	if got := madeFirst(targets, []int{0}); !got.IsZero() {
		t.Errorf("without requests got %s, want none", got)
	}
}
