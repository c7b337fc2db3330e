package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// The formats of --output that are kubemend's own.
const (
	wide = "wide"
	// svg is a picture.
	svg = "svg"
)

// raw are the formats in which every character is printed as it is, also on a terminal: those have escapes of their own, and are copied.
var raw = []string{"json", "yaml", "kyaml"}

// output is how a command prints. The printer is nil where it prints for a person.
type output struct {
	format  string
	printer printers.ResourcePrinter
}

// addOutput adds the flags that say how a command prints: those of kubectl, and own formats such as wide. A format or a template that is
// none is refused before anything is read.
func (o *Options) addOutput(c *cobra.Command, own ...string) {
	flags := genericclioptions.NewPrintFlags("")
	flags.NamePrintFlags = nil // what is printed are documents, which have no names
	flags.TemplatePrinterFlags.AddFlags(c)
	formats := slices.Concat(flags.JSONYamlPrintFlags.AllowedFormats(), flags.TemplatePrinterFlags.AllowedFormats(), own)
	slices.Sort(formats)
	c.Flags().StringVarP(flags.OutputFormat, "output", "o", "",
		"Output format. One of: ("+strings.Join(formats, ", ")+"). If empty, for a person, as wide as the terminal is.")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.PreRunE = func(*cobra.Command, []string) error {
		o.output = output{format: *flags.OutputFormat}
		name, _, _ := strings.Cut(o.output.format, "=")
		switch {
		case name != "" && !slices.Contains(formats, name):
			return Exit{Misused, fmt.Errorf("--output %q: expected %s", o.output.format, listed(formats, "or"))}
		case slices.Contains(own, name), name == "" && *flags.TemplatePrinterFlags.TemplateArgument == "":
			return nil
		case name == "":
			*flags.OutputFormat = "go-template"
		}
		var err error
		if o.output.printer, err = flags.ToPrinter(); err != nil {
			return Exit{Misused, fmt.Errorf("--output %q: %w", o.output.format, errors.New(strings.TrimSpace(err.Error())))}
		}
		return nil
	}
}

// addColour adds the flag that says whether to colour, to all commands. Flags that exclude each other are refused here with the code of a
// misuse: cobra's own check comes later, and ends with that of a failure.
func (o *Options) addColour(root *cobra.Command) {
	root.PersistentFlags().StringVar(&o.colour, "color", text.Colours[0],
		"Whether to colour: "+listed(text.Colours, "or")+". auto is on terminals, unless NO_COLOR is set or TERM is dumb.")
	completions := cobra.FixedCompletions(text.Colours, cobra.ShellCompDirectiveNoFileComp)
	_ = root.RegisterFlagCompletionFunc("color", completions) // the flag is there
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateFlagGroups(); err != nil {
			return Exit{Misused, err}
		}
		if !slices.Contains(text.Colours, o.colour) {
			return Exit{Misused, fmt.Errorf("--color %q: expected %s", o.colour, listed(text.Colours, "or"))}
		}
		return nil
	}
}

func (o *Options) painter(out io.Writer) text.Painter {
	return text.PainterFor(out, o.colour)
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

func (o *Options) isWide() bool { return o.output.format == wide }

// width is how wide a page may be: as wide as its lines get if that is asked for, so that each stays one for who searches in it.
func (o *Options) width() int {
	if o.isWide() {
		return unbroken
	}
	return text.Width(o.Out)
}

func (o *Options) print(found runtime.Object, person func() error) error {
	if o.output.printer == nil {
		if err := person(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	out := o.Out
	if slices.Contains(raw, o.output.format) || !text.IsTerminal(out) {
		out = text.Raw(out)
	}
	if err := o.output.printer.PrintObj(found, out); err != nil {
		return fmt.Errorf("print as %s: %w", o.output.format, err)
	}
	return nil
}
