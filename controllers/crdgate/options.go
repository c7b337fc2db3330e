package crdgate

import (
	"github.com/spf13/pflag"

	"github.com/kubemend/kubemend/controllers/flags"
)

// Choice says whether a kind is served. It is the value of a flag.
type Choice string

const (
	// Auto serves a kind unless somebody else's controller does.
	Auto Choice = "auto"
	// On serves it, even beside another controller.
	On Choice = "on"
	// Off does not serve it.
	Off Choice = "off"
)

// Options are the user's choices of the kinds that the manager serves.
type Options struct {
	Metal3Remediations Choice
	NodeHealthChecks   Choice
}

// AddFlags adds a flag for each choice to fs and sets its default.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&o.Metal3Remediations, Auto, On, Off), "metal3-remediations",
		"Whether to act on Metal3Remediations. auto: unless their CRD belongs to CAPM3, or CAPM3's controller runs. on, off: always, never. "+
			"The manager acts on HostRemediations wherever their CRD is installed.")
	fs.Var(flags.OneOf(&o.NodeHealthChecks, Auto, On, Off), "node-health-checks",
		"Whether to act on NodeHealthChecks. auto: unless the Operator Lifecycle Manager installed their CRD, or medik8s' operator runs. "+
			"on, off: always, never. They have no namespace: of several managers in one cluster, all but one need off.")
}
