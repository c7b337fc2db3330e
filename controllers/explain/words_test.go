package explain

import "testing"

func TestASentenceGoesOnInAnotherOne(t *testing.T) {
	for sentence, want := range map[string]string{
		"":                            "",
		"The check is being deleted":  "the check is being deleted",
		"No request can be made":      "no request can be made",
		"Cluster c1 is being deleted": "Cluster c1 is being deleted",
		"Metal3Remediation w1 exists": "Metal3Remediation w1 exists",
		"the workload did not move":   "the workload did not move",
	} {
		if got := Clause(sentence); got != want {
			t.Errorf("%q goes on as %q, want %q", sentence, got, want)
		}
	}
}
