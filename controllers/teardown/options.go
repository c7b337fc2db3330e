package teardown

import "github.com/spf13/pflag"

// Options are the settings of the teardown.
type Options struct {
	// Enabled has the manager do nothing else.
	Enabled bool
}

// AddFlags adds the flag of the teardown to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "teardown", false,
		"Only remove what kubemend wrote on objects, before it is uninstalled (docs/uninstall.md). A replica is ready when nothing is left.")
}
