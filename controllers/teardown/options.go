package teardown

import "github.com/spf13/pflag"

// Options are the settings of the teardown.
type Options struct {
	// Leave has the manager do nothing but tear down.
	Leave bool
}

// AddFlags adds the flag of the teardown to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Leave, "leave", false,
		"Do nothing but to take back everything of kubemend's, so that it can be removed: docs/uninstall.md. A replica is ready when nothing is left.")
}
