package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// The formats of --output that kubectl's printers do not have.
const (
	wide = "wide"
	svg  = "svg"
)

// raw are the formats that are printed without replacing control characters, also on a terminal: they escape such characters themselves.
var raw = []string{"json", "yaml", "kyaml"}

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
		o.format = *flags.OutputFormat
		if slices.Contains(own, o.format) || o.format == "" && *flags.TemplatePrinterFlags.TemplateArgument == "" {
			return nil
		}
		var err error
		o.printer, err = flags.ToPrinter()
		if genericclioptions.IsNoCompatiblePrinterError(err) {
			err = fmt.Errorf("expected %s", listed(formats, "or"))
		}
		if err != nil {
			return Exit{Misused, fmt.Errorf("--output %q: %s", o.format, strings.TrimSpace(err.Error()))}
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
	l := text.Layout{Width: text.Width(o.Out), Paint: text.PainterFor(o.Out, o.colour), Wide: o.format == wide}
	if l.Wide {
		l.Width = unbroken
	}
	return l
}

// print prints the document found in the format of -o. Without a format for programs, it calls printPage instead.
func (o *Options) print(found runtime.Object, printPage func() error) error {
	if o.printer == nil {
		if err := printPage(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	out := o.Out
	if slices.Contains(raw, o.format) || !text.IsTerminal(out) {
		out = text.Raw(out)
	}
	if err := o.printer.PrintObj(found, out); err != nil {
		return fmt.Errorf("print as %s: %w", o.format, err)
	}
	return nil
}
