package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/cmd/get"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// The formats of --output that are kubemend's own, or treated in a way of their own.
const (
	wide = "wide"
	// svg is a picture.
	svg = "svg"
	// byName prints the names of objects, as kubectl takes them.
	byName = "name"
)

// raw are the formats in which every character is printed as it is, also on a terminal: those have escapes of their own, and are copied.
var raw = []string{"json", "yaml", "kyaml"}

// output is how a command prints for programs.
type output struct {
	flags   *genericclioptions.PrintFlags
	columns *get.CustomColumnsPrintFlags
	// own are the formats that the command has besides.
	own     []string
	printer printers.ResourcePrinter
}

// formats are all that the command has.
func (p *output) formats() []string {
	all := append(p.flags.JSONYamlPrintFlags.AllowedFormats(), p.flags.TemplatePrinterFlags.AllowedFormats()...)
	all = append(append(all, p.columns.AllowedFormats()...), p.own...)
	slices.Sort(all)
	return all
}

// complete makes the printer, so that a format or template that is none is refused before anything is read.
func (p *output) complete() error {
	format := *p.flags.OutputFormat
	own := (format == wide || format == svg) && slices.Contains(p.own, format)
	if own || format == "" && *p.flags.TemplatePrinterFlags.TemplateArgument == "" {
		return nil
	}
	var err error
	p.columns.TemplateArgument = *p.flags.TemplatePrinterFlags.TemplateArgument
	if p.printer, err = p.columns.ToPrinter(format); genericclioptions.IsNoCompatiblePrinterError(err) {
		p.printer, err = p.flags.ToPrinter()
	}
	switch {
	case genericclioptions.IsNoCompatiblePrinterError(err), format == byName && !slices.Contains(p.own, byName):
		return Exit{Misused, fmt.Errorf("--output %q: expected %s", format, listed(p.formats(), "or"))}
	case err != nil:
		return Exit{Misused, fmt.Errorf("--output %q: %w", format, errors.New(strings.TrimSpace(err.Error())))}
	}
	return nil
}

// addOutput adds the flags that say how a command prints: those of kubectl, and own formats such as wide.
func (o *Options) addOutput(c *cobra.Command, own ...string) {
	p := &output{flags: genericclioptions.NewPrintFlags("").WithDefaultOutput(""), columns: get.NewCustomColumnsPrintFlags(), own: own}
	p.flags.TemplatePrinterFlags.AddFlags(c)
	p.flags.OutputFlagSpecified = func() bool { return c.Flags().Changed("output") }
	c.Flags().StringVarP(p.flags.OutputFormat, "output", "o", "",
		"Output format. One of: ("+strings.Join(p.formats(), ", ")+"). If empty, for a person, as wide as the terminal is.")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(p.formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	before := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		o.output = p
		if err := p.complete(); err != nil {
			return err
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

// isWide reports whether --output asks for all columns.
func (o *Options) isWide() bool { return o.output != nil && *o.output.flags.OutputFormat == wide }

// width is how wide a page may be: as wide as its lines get if that is asked for, so that each stays one for who searches in it.
func (o *Options) width() int {
	if o.isWide() {
		return unbroken
	}
	return text.Width(o.Out)
}

// print writes what a command has found to out: as the flags say, or for a person. Named are the objects that it is about.
func (o *Options) print(out io.Writer, found runtime.Object, named []explain.Ref, person func() error) error {
	if o.output == nil || o.output.printer == nil {
		if err := person(); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	format := *o.output.flags.OutputFormat
	if err := o.output.write(out, found, named); err != nil {
		return fmt.Errorf("print as %s: %w", format, err)
	}
	return nil
}

// write prints found through the printer of the flags.
func (p *output) write(out io.Writer, found runtime.Object, named []explain.Ref) error {
	format := *p.flags.OutputFormat
	if slices.Contains(raw, format) || !text.IsTerminal(text.Raw(out)) {
		out = text.Raw(out)
	}
	if _, columns := p.printer.(*get.CustomColumnsPrinter); columns {
		rows, err := rowsOf(found)
		if err != nil {
			return err
		}
		return p.printer.PrintObj(rows, out)
	}
	if format != byName {
		return p.printer.PrintObj(found, out)
	}
	for _, ref := range named {
		if err := p.printer.PrintObj(metadata(ref), out); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf is found as custom columns look into it: by the names that its JSON has.
func rowsOf(found runtime.Object) (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found)
	if err != nil {
		return nil, err
	}
	rows := &unstructured.Unstructured{Object: content}
	if rows.IsList() {
		return rows.ToList()
	}
	return rows, nil
}

// metadata is the object that ref names, as far as its name goes.
func metadata(ref explain.Ref) *metav1.PartialObjectMetadata {
	is := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	is.SetGroupVersionKind(groups[kind(ref.Kind)])
	return is
}
