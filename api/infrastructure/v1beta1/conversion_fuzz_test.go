package v1beta1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// Numbers of any size arrive, as the schema of v1beta1 has no bounds. None changes its sign or grows, and what was stored once reads and stores as the
// same for ever: an object that differs each time would be written each time.
func FuzzConversion(f *testing.F) {
	for _, n := range []int64{0, 1, -1, 999_999_999, 100_900_000_000, 1 << 31, 1<<31 - 1, -1 << 31, 1<<63 - 1, -1 << 63} {
		f.Add(n, n, "Reboot", "Running", "", true)
	}
	f.Add(int64(1), int64(time.Minute), "", "\xff", "why", false)
	f.Fuzz(func(t *testing.T, retries, timeout int64, kind, phase, message string, has bool) {
		asked := Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{"note": message}}}
		asked.Spec.Strategy = &RemediationStrategy{Type: RemediationType(kind), RetryLimit: int(retries)}
		if has {
			asked.Spec.Strategy.Timeout = &metav1.Duration{Duration: time.Duration(timeout)}
		}
		asked.Status.Phase, asked.Status.RetryCount, asked.Status.Message = phase, int(retries), message
		var stored, again infrav1.Metal3Remediation
		var read Metal3Remediation
		for _, convert := range []func() error{
			func() error { return asked.ConvertTo(&stored) }, func() error { return read.ConvertFrom(&stored) }, func() error { return read.ConvertTo(&again) },
		} {
			if err := convert(); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(stored, again); diff != "" {
			t.Errorf("stored again, it differs (-first +second):\n%s", diff)
		}
		is := stored.Spec.Strategy
		if !smaller(int64(is.RetryLimit), retries) || !smaller(int64(stored.Status.RetryCount), retries) {
			t.Errorf("%d retries are %d, and %d", retries, is.RetryLimit, stored.Status.RetryCount)
		}
		if has && !smaller(int64(is.TimeoutSeconds), timeout/int64(time.Second)) || !has && is.TimeoutSeconds != 0 {
			t.Errorf("%s are %d seconds", time.Duration(timeout), is.TimeoutSeconds)
		}
		if string(is.Type) != kind || string(stored.Status.Phase) != phase || stored.Status.Message != message || stored.Annotations["note"] != message {
			t.Errorf("texts have changed: %+v", stored)
		}
	})
}

// smaller reports whether is has the sign of asked and is not further from 0.
func smaller(is, asked int64) bool {
	if asked >= 0 {
		return is >= 0 && is <= asked && (is == asked || is == 1<<31-1)
	}
	return is < 0 && is >= asked && (is == asked || is == -1<<31)
}
