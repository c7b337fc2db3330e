package v1beta1

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	conversionutil "sigs.k8s.io/cluster-api/util/conversion"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/randfill"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

func TestRoundTripsLoseNothing(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{AddToScheme, infrav1.AddToScheme} {
		must.Do(t, add(scheme))
	}
	t.Run("Metal3Remediation", conversionutil.FuzzTestFunc(conversionutil.FuzzTestFuncInput{
		Scheme: scheme, Hub: &infrav1.Metal3Remediation{}, Spoke: &Metal3Remediation{},
		FuzzerFuncs: []fuzzer.FuzzerFuncs{whatBothCanSay},
	}))
	t.Run("Metal3RemediationTemplate", conversionutil.FuzzTestFunc(conversionutil.FuzzTestFuncInput{
		Scheme: scheme, Hub: &infrav1.Metal3RemediationTemplate{}, Spoke: &Metal3RemediationTemplate{},
		FuzzerFuncs: []fuzzer.FuzzerFuncs{whatBothCanSay},
	}))
}

// whatBothCanSay limits random objects to whole seconds and 32-bit numbers, which both versions can hold. The tables below test the
// rounding of others.
func whatBothCanSay(serializer.CodecFactory) []any {
	return []any{
		func(s *RemediationStrategy, c randfill.Continue) {
			c.FillNoCustom(s)
			s.RetryLimit, s.Timeout = int(int32(c.Uint32())), nil
			if n := int32(c.Uint32()); n != 0 && c.Bool() {
				s.Timeout = &metav1.Duration{Duration: time.Duration(n) * time.Second}
			}
		},
		func(s *Metal3RemediationStatus, c randfill.Continue) {
			c.FillNoCustom(s)
			s.RetryCount = int(int32(c.Uint32()))
		},
	}
}

func TestTimeouts(t *testing.T) {
	for name, row := range map[string]struct {
		old  *metav1.Duration
		hub  int32
		back *metav1.Duration
	}{
		"none is none":                                  {},
		"five minutes are 300 seconds":                  {lasts(5 * time.Minute), 300, lasts(5 * time.Minute)},
		"a fraction of a second is dropped":             {lasts(100*time.Second + 999*time.Millisecond), 100, lasts(100 * time.Second)},
		"zero is none":                                  {old: lasts(0)},
		"less than a second is none":                    {old: lasts(999 * time.Millisecond)},
		"a negative one stays so, and is refused":       {lasts(-5 * time.Second), -5, lasts(-5 * time.Second)},
		"one longer than 68 years is as long as can be": {lasts(math.MaxInt64), math.MaxInt32, lasts(math.MaxInt32 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			hub, back := roundTrip(t, Metal3RemediationSpec{Strategy: &RemediationStrategy{Timeout: row.old}})
			must.Is(t, row.hub, hub.Spec.Strategy.TimeoutSeconds, "timeoutSeconds is")
			must.Equal(t, row.back, back.Spec.Strategy.Timeout, "timeout on the way back")
		})
	}
}

func lasts(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// Cluster API core refuses a template without spec.template, so an empty one must be kept.
func TestAnEmptyTemplateStaysOne(t *testing.T) {
	for name, manifest := range map[string]string{
		"an empty spec of the remediation": `{"spec":{"template":{"spec":{}}}}`,
		"an empty spec":                    `{"spec":{}}`,
		"no spec":                          `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			var old, back Metal3RemediationTemplate
			must.Do(t, json.Unmarshal([]byte(manifest), &old))
			var hub infrav1.Metal3RemediationTemplate
			must.Do(t, old.ConvertTo(&hub))
			must.Do(t, back.ConvertFrom(&hub))
			for version, object := range map[string]any{"v1beta2": &hub, "v1beta1": &back} {
				content, err := json.Marshal(object)
				must.Do(t, err)
				must.Is(t, `{"metadata":{},"spec":{"template":{"spec":{}}}}`, string(content), "%s is", version)
			}
		})
	}
}

func TestAConversionSharesNothing(t *testing.T) {
	began := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	old := Metal3Remediation{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Status:     Metal3RemediationStatus{LastRemediated: &began, Conditions: []metav1.Condition{{Type: "PoweredOff"}}},
	}
	before := old.DeepCopy()
	var hub infrav1.Metal3Remediation
	must.Do(t, old.ConvertTo(&hub))
	hub.Labels["a"] = "c"
	hub.Status.LastRemediated.Time = began.Add(time.Hour)
	hub.Status.Conditions[0].Type = "PoweredOn"
	if diff := cmp.Diff(before, &old); diff != "" {
		t.Errorf("a change of the result changed the source (-before +after):\n%s", diff)
	}
}

// stranger is a kind to which none of these kinds converts.
type stranger struct{ infrav1.Metal3Remediation }

func TestAnotherKindIsAnError(t *testing.T) {
	for name, object := range map[string]conversion.Convertible{
		"a remediation": &Metal3Remediation{}, "a template": &Metal3RemediationTemplate{},
	} {
		t.Run(name, func(t *testing.T) {
			if err := object.ConvertTo(&stranger{}); err == nil {
				t.Error("it was converted to another kind")
			}
			if err := object.ConvertFrom(&stranger{}); err == nil {
				t.Error("it was converted from another kind")
			}
		})
	}
}

func roundTrip(t *testing.T, spec Metal3RemediationSpec) (hub infrav1.Metal3Remediation, back Metal3Remediation) {
	t.Helper()
	old := Metal3Remediation{Spec: spec}
	must.Do(t, old.ConvertTo(&hub))
	must.Do(t, back.ConvertFrom(&hub))
	return hub, back
}

// The schema of v1beta1 has no bounds, so any number may be converted. No number changes its sign or grows. A stored object converts to the
// same object for ever; otherwise each read would cause a write.
func FuzzConversion(f *testing.F) {
	for _, n := range []int64{0, 1, -1, 999_999_999, 100_900_000_000, 1 << 31, 1<<31 - 1, 1 << 32, -1 << 31, -1<<31 - 1, -1<<32 + 5, 1<<63 - 1, -1 << 63} {
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
			must.Do(t, convert())
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
