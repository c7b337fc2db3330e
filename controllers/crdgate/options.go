package crdgate

import (
	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Options are the user's choices of the kinds that the manager serves.
type Options struct {
	Metal3Remediations Choice
	NodeHealthChecks   Choice
}

// AddFlags adds a flag for each choice to fs and sets its default.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&o.Metal3Remediations, Auto, On, Off), "metal3-remediations",
		"Whether to act on Metal3Remediations. auto: unless their CRD belongs to CAPM3, or CAPM3's controller runs, which acts on them. "+
			"on, off: whatever the CRD says. "+
			"HostRemediations are acted on wherever their CRD is installed.")
	fs.Var(flags.OneOf(&o.NodeHealthChecks, Auto, On, Off), "node-health-checks",
		"Whether to act on NodeHealthChecks. auto: unless their CRD was installed by the Operator Lifecycle Manager, with whose operator they belong, "+
			"or medik8s' operator runs. on, off: whatever the CRD says. They belong to no namespace: of several managers in one cluster, all but one need off.")
}
