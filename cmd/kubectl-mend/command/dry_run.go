package command

import (
	"cmp"
	"errors"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dryRun is the value of --dry-run, as kubectl has it. It implements pflag.Value.
type dryRun string

const (
	noDryRun     dryRun = "" // printed as none
	clientDryRun dryRun = "client"
	serverDryRun dryRun = "server"
)

// addTo adds the flag. Without a value it means the server, which also checks rights and admission.
func (d *dryRun) addTo(flags *pflag.FlagSet) {
	flags.Var(d, "dry-run", `Must be "none", "client" or "server". With client, only show what would change; with server, `+
		"have the API server check it too. Neither changes anything.")
	flags.Lookup("dry-run").NoOptDefVal = string(serverDryRun)
}

// Set implements pflag.Value.
func (d *dryRun) Set(value string) error {
	switch value {
	case "none":
		*d = noDryRun
	case string(clientDryRun), string(serverDryRun):
		*d = dryRun(value)
	default:
		return errors.New("expected none, client or server")
	}
	return nil
}

// String implements pflag.Value.
func (d *dryRun) String() string { return cmp.Or(string(*d), "none") }

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
