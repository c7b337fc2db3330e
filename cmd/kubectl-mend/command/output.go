package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// The formats of --output that kubectl's printers do not have.
const (
	wide = "wide"
	svg  = "svg"
)

// raw are the formats that are printed without replacing control characters, also on a terminal: they escape such characters themselves.
var raw = []string{"json", "yaml", "kyaml"}

// output is how a command prints. The printer is nil if the command prints for a person.
type output struct {
	format  string
	printer printers.ResourcePrinter
}

// addOutput adds the flags for the output format: kubectl's formats, and own ones such as wide. An unknown format or a template with an
// error is refused before the command reads anything.
func (o *Options) addOutput(c *cobra.Command, own ...string) {
	flags := genericclioptions.NewPrintFlags("")
	flags.NamePrintFlags = nil // the printed documents have no names
	flags.TemplatePrinterFlags.AddFlags(c)
	formats := slices.Concat(flags.JSONYamlPrintFlags.AllowedFormats(), flags.TemplatePrinterFlags.AllowedFormats(), own)
	slices.Sort(formats)
	c.Flags().StringVarP(flags.OutputFormat, "output", "o", "",
		"Output format. One of: ("+strings.Join(formats, ", ")+"). If empty, for a person, as wide as the terminal is.")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
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

// addColour adds the flag --color to all commands.
func (o *Options) addColour(root *cobra.Command) {
	root.PersistentFlags().StringVar(&o.colour, "color", text.Colours[0],
		"Whether to colour: "+listed(text.Colours, "or")+". auto is on terminals, unless NO_COLOR is set or TERM is dumb.")
	completions := cobra.FixedCompletions(text.Colours, cobra.ShellCompDirectiveNoFileComp)
	_ = root.RegisterFlagCompletionFunc("color", completions) // fails only for an unknown flag
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(text.Colours, o.colour) {
			return Exit{Misused, fmt.Errorf("--color %q: expected %s", o.colour, listed(text.Colours, "or"))}
		}
		return nil
	}
}

// listed joins things for a sentence: "a, b or c", if last is "or".
func listed(things []string, last string) string {
	if n := len(things); n > 1 {
		return strings.Join(things[:n-1], ", ") + " " + last + " " + things[n-1]
	}
	return strings.Join(things, "")
}

// unbroken is a width at which no line is wrapped.
const unbroken = 1 << 20

// layout returns how a page is printed. With -o wide no line is wrapped, so that a user can grep for whole lines.
func (o *Options) layout() text.Layout {
	l := text.Layout{Width: text.Width(o.Out), Paint: text.PainterFor(o.Out, o.colour), Wide: o.output.format == wide}
	if l.Wide {
		l.Width = unbroken
	}
	return l
}

// print prints the document found in the format of -o. Without a format for programs, it calls printPage instead.
func (o *Options) print(found runtime.Object, printPage func() error) error {
	if o.output.printer == nil {
		if err := printPage(); err != nil {
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
