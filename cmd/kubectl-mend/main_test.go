package main

import (
	"testing"

	"github.com/kubemend/kubemend/test/must"
)

func TestTheProgramIsCalledAsItsHostCallsIt(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/local/bin/kubectl-mend": "kubectl mend",
		"clusterctl-mend":             "clusterctl mend",
		"kubectl-mend.exe":            "kubectl mend",
		"/tmp/mend":                   "mend",
	} {
		must.Is(t, want, calledAs(file), "%s is called", file)
	}
}
