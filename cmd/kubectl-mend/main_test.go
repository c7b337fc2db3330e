package main

import "testing"

func TestTheProgramIsCalledAsItsHostCallsIt(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/local/bin/kubectl-mend": "kubectl mend",
		"clusterctl-mend":             "clusterctl mend",
		"kubectl-mend.exe":            "kubectl mend",
		"/tmp/mend":                   "mend",
	} {
		if got := calledAs(file); got != want {
			t.Errorf("%s is called %q, want %q", file, got, want)
		}
	}
}
