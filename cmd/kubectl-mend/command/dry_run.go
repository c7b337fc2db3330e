package command

import (
	"fmt"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dryRun is the value of --dry-run, as kubectl has it. It implements pflag.Value.
type dryRun string

const (
	noDryRun     dryRun = "none"
	clientDryRun dryRun = "client"
	serverDryRun dryRun = "server"
)

// addTo adds the flag. Without a value it means the server, which also checks rights and admission.
func (d *dryRun) addTo(flags *pflag.FlagSet) {
	*d = noDryRun
	flags.Var(d, "dry-run", `Must be "none", "client" or "server". With client, only show what would change; with server, have the API server check it too. `+
		"Neither changes anything.")
	flags.Lookup("dry-run").NoOptDefVal = string(serverDryRun)
}

// Set implements pflag.Value.
func (d *dryRun) Set(value string) error {
	switch dryRun(value) {
	case noDryRun, clientDryRun, serverDryRun:
		*d = dryRun(value)
		return nil
	}
	return fmt.Errorf("expected %s, %s or %s", noDryRun, clientDryRun, serverDryRun)
}

// String implements pflag.Value.
func (d *dryRun) String() string { return string(*d) }

// Type implements pflag.Value.
func (d *dryRun) Type() string { return "string" }

// options are those of a write.
func (d dryRun) options() []string {
	if d == serverDryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// suffix follows what is printed of a change.
func (d dryRun) suffix() string {
	switch d {
	case clientDryRun:
		return " (dry run)"
	case serverDryRun:
		return " (server dry run)"
	case noDryRun:
	}
	return ""
}
