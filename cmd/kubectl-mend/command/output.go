package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// addOutput adds the flag that says how a command prints, and refuses what it cannot.
func (o *Options) addOutput(c *cobra.Command, formats ...string) {
	c.Flags().StringVarP(&o.output, "output", "o", "", "How to print: "+listed(formats, "or")+". If empty, for a person, as wide as the terminal is.")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	before := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if o.output != "" && !slices.Contains(formats, o.output) {
			return Exit{Misused, fmt.Errorf("--output %q: expected %s", o.output, listed(formats, "or"))}
		}
		return before(c, args)
	}
}

// colours are the values of --color.
var colours = []string{string(text.ColourAuto), string(text.ColourAlways), string(text.ColourNever)}

// addColour adds the flag that says whether to colour, to all commands.
func (o *Options) addColour(root *cobra.Command) {
	root.PersistentFlags().StringVar(&o.colour, "color", colours[0],
		"Whether to colour: "+listed(colours, "or")+". auto is on terminals, unless NO_COLOR is set or TERM is dumb.")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colours, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(colours, o.colour) {
			return Exit{Misused, fmt.Errorf("--color %q: expected %s", o.colour, listed(colours, "or"))}
		}
		return nil
	}
}

// painter paints what is written to out, as the flags ask.
func (o *Options) painter(out io.Writer) text.Painter {
	return text.PainterFor(out, text.Colour(o.colour))
}

// excluding refuses flags that go only one at a time, as what they are: cobra's own error for that would be one of the program.
func excluding(c *cobra.Command, flags ...string) {
	c.MarkFlagsMutuallyExclusive(flags...) // so that a shell offers no second one
	before := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		var given []string
		for _, name := range flags {
			if c.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 1 {
			return Exit{Misused, fmt.Errorf("%s exclude each other", listed(given, "and"))}
		}
		return before(c, args)
	}
}

// listed are things in a sentence: a, b and c.
func listed(things []string, last string) string {
	if n := len(things); n > 1 {
		return strings.Join(things[:n-1], ", ") + " " + last + " " + things[n-1]
	}
	return strings.Join(things, "")
}

// unbroken is a width at which no line is broken.
const unbroken = 1 << 20

// width is how wide a page may be: as wide as its lines get if that is asked for, so that each stays one for who searches in it.
func (o *Options) width() int {
	if o.output == "wide" {
		return unbroken
	}
	return text.Width(o.Out)
}

// print writes what a command has found to out: as the flags say, or for a person. A program gets every character as it is.
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
		_, err = text.Raw(out).Write(content)
	}
	if err != nil {
		return fmt.Errorf("print as %s: %w", o.output, err)
	}
	return nil
}
