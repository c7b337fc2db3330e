package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// addOutput adds the flag that says how a command prints, and refuses what it cannot.
func (o *Options) addOutput(c *cobra.Command, formats ...string) {
	c.Flags().StringVarP(&o.output, "output", "o", "", strings.Join(formats, ", ")+".")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	before := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if o.output != "" && !slices.Contains(formats, o.output) {
			return Exit{Misused, fmt.Errorf("--output %q: expected one of %s", o.output, strings.Join(formats, ", "))}
		}
		return before(c, args)
	}
}

// print writes what a command has found to out: as the flags say, or for a person.
func (o *Options) print(out io.Writer, found any, person func() error) error {
	var content []byte
	var err error
	switch o.output {
	case "json":
		content, err = json.MarshalIndent(found, "", "  ")
		content = append(content, '\n')
	case "yaml":
		content, err = yaml.Marshal(found)
	default:
		if err := person(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	if err == nil {
		_, err = out.Write(content)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", o.output, err)
	}
	return nil
}
