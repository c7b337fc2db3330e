package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

type output struct {
	flags *get.PrintFlags
	// own are the formats that the command has besides: wide, name, and svg, which kubectl does not know.
	own     []string
	printer printers.ResourcePrinter
}

func (p *output) formats() []string {
	formats := slices.DeleteFunc(p.flags.AllowedFormats(), func(format string) bool {
		return (format == wide || format == byName) && !slices.Contains(p.own, format)
	})
	if slices.Contains(p.own, svg) {
		formats = append(formats, svg)
	}
	slices.Sort(formats)
	return formats
}

// complete makes the printer, so that a format or template that is none is refused before anything is read.
func (p *output) complete() error {
	format := *p.flags.OutputFormat
	name, _, _ := strings.Cut(format, "=")
	switch {
	case format != "" && !slices.Contains(p.formats(), name):
		return Exit{Misused, fmt.Errorf("--output %q: expected %s", format, listed(p.formats(), "or"))}
	case format == wide, format == svg, format == "" && *p.flags.TemplateFlags.TemplateArgument == "":
		return nil
	}
	var err error
	if p.printer, err = p.flags.ToPrinter(); err != nil {
		return Exit{Misused, fmt.Errorf("--output %q: %w", format, errors.New(strings.TrimSpace(err.Error())))}
	}
	return nil
}

// addOutput adds the flags that say how a command prints: those of kubectl, and own formats such as wide.
func (o *Options) addOutput(c *cobra.Command, own ...string) {
	p := &output{flags: get.NewGetPrintFlags(), own: own}
	p.flags.TemplateFlags.AddFlags(c)
	c.Flags().StringVarP(p.flags.OutputFormat, "output", "o", "",
		"Output format. One of: ("+strings.Join(p.formats(), ", ")+"). If empty, for a person, as wide as the terminal is.")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(p.formats(), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	c.PreRunE = func(*cobra.Command, []string) error {
		o.output = p
		return p.complete()
	}
}

var colours = []string{string(text.ColourAuto), string(text.ColourAlways), string(text.ColourNever)}

// addColour adds the flag that says whether to colour, to all commands. Flags that exclude each other are refused here with the code of a
// misuse: cobra's own check comes later, and ends with that of a failure.
func (o *Options) addColour(root *cobra.Command) {
	root.PersistentFlags().StringVar(&o.colour, "color", colours[0],
		"Whether to colour: "+listed(colours, "or")+". auto is on terminals, unless NO_COLOR is set or TERM is dumb.")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colours, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateFlagGroups(); err != nil {
			return Exit{Misused, err}
		}
		if !slices.Contains(colours, o.colour) {
			return Exit{Misused, fmt.Errorf("--color %q: expected %s", o.colour, listed(colours, "or"))}
		}
		return nil
	}
}

func (o *Options) painter(out io.Writer) text.Painter {
	return text.PainterFor(out, text.Colour(o.colour))
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
	if err := o.output.write(out, found, named); err != nil {
		return fmt.Errorf("print as %s: %w", *o.output.flags.OutputFormat, err)
	}
	return nil
}

func (p *output) write(out io.Writer, found runtime.Object, named []explain.Ref) error {
	format := *p.flags.OutputFormat
	if slices.Contains(raw, format) || !text.IsTerminal(text.Raw(out)) {
		out = text.Raw(out)
	}
	if format == byName {
		for _, ref := range named {
			if _, err := fmt.Fprintln(out, resourceName(ref.Kind, ref.Name)); err != nil {
				return err
			}
		}
		return nil
	}
	if _, columns := p.printer.(*get.CustomColumnsPrinter); !columns {
		return p.printer.PrintObj(found, out)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found) // columns look into it by the names that its JSON has
	if err != nil {
		return err
	}
	rows := &unstructured.Unstructured{Object: content}
	if !rows.IsList() {
		return p.printer.PrintObj(rows, out)
	}
	list, err := rows.ToList()
	if err != nil {
		return err
	}
	return p.printer.PrintObj(list, out)
}

// resourceName is an object as kubectl names it: machine.cluster.x-k8s.io/NAME.
func resourceName(kindName, name string) string {
	if group := groups[kind(kindName)].Group; group != "" {
		kindName += "." + group
	}
	return strings.ToLower(kindName) + "/" + name
}
