package hostremediation

import "testing"

func TestARemediationIsStaleUntilTheCacheShowsWhatWasWritten(t *testing.T) {
	at := func(version string) Object {
		rem := remediation("a", "")
		rem.SetResourceVersion(version)
		return rem
	}
	var f freshness
	for _, step := range []struct {
		name    string
		written string
		cached  string
		want    bool
	}{
		{"what was never written is not", "", "7", false},
		{"what was read before the write is", "12", "7", true},
		{"and stays so", "", "11", true},
		{"the write itself is not", "", "12", false},
		{"nor what came after it", "", "13", false},
		{"versions are numbers", "100", "99", true},
	} {
		if step.written != "" {
			f.note(at(step.written))
		}
		if got := f.stale(at(step.cached)); got != step.want {
			t.Errorf("%s: stale: %t", step.name, got)
		}
	}
}
