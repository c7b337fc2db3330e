// Package command is the command line of kubectl mend: one file for each command, or for two commands that read the same objects.
//
// A command reads flags and a cluster, calls the functions of the controllers and prints their plans. It decides nothing itself.
package command

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/utils/clock"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

// The exit codes. A test compares these comments with the table in docs/cli/README.md.
const (
	// Done says that the command did its work, whatever it found.
	Done = 0
	// Failed says that the command failed. The reason is on the standard error.
	Failed = 1
	// Misused says that the command line is wrong, such as an unknown command, flag or kind.
	Misused = 2
	// WouldStart says that `simulate` found remediations that would start.
	WouldStart = 3
	// Refused says that the change would do harm or was not confirmed, or `simulate` found more remediations than --at-most allows.
	Refused = 4
)

// Options holds what all commands share.
type Options struct {
	genericiooptions.IOStreams
	// Name is how the user calls the program, such as "kubectl mend".
	Name string
	// Config has kubectl's flags for the cluster, the user and the namespace.
	Config *genericclioptions.ConfigFlags
	// Clock is the clock of the API server or, with --from, of the file.
	Clock clock.PassiveClock

	allNamespaces bool
	format        string
	printer       printers.ResourcePrinter // nil if the command prints for a person
	from          string
	colour        string

	version string

	// read replaces snapshot.Read in tests.
	read func(context.Context, snapshot.Scope) (*snapshot.Snapshot, error)
	// polls is the interval at which `wait` reads the cluster.
	polls time.Duration
}

// New returns the root command. name is how the user calls the program.
func New(streams genericiooptions.IOStreams, name, version string) *cobra.Command {
	o := &Options{
		IOStreams: streams, Name: name, Config: genericclioptions.NewConfigFlags(true),
		Clock: &serverClock{PassiveClock: clock.RealClock{}, warn: streams.ErrOut}, polls: 5 * time.Second,
	}
	o.Config.ClusterName = nil // --cluster names a Cluster of Cluster API here, not an entry of the kubeconfig
	return o.root(version)
}

// commands are all commands, in the order of the help.
var commands = []func(*Options) *cobra.Command{
	(*Options).status, (*Options).explain, (*Options).wait, (*Options).history, (*Options).report, (*Options).claim, (*Options).release,
	(*Options).remediate, (*Options).reset, (*Options).hold, (*Options).allow, (*Options).simulate, (*Options).record,
	(*Options).check, (*Options).versions, (*Options).options,
}

func (o *Options) root(version string) *cobra.Command {
	o.version = version
	o.Out, o.ErrOut = text.OnScreen(o.Out), text.OnScreen(o.ErrOut)
	root := &cobra.Command{
		Use:           "kubectl-mend",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: o.Name},
		Short:         "Say why a machine is or is not being remediated, and when the next thing happens",
		Example:       fmt.Sprintf("  %[1]s status -A\n  %[1]s explain node/rack1-07 -A\n  %[1]s explain machine/workers-x7k2p", o.Name),
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // RunE reports an unknown command, with the exit code Misused
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			meant := ""
			if names := c.SuggestionsFor(args[0]); len(names) > 0 {
				meant = ": did you mean " + strings.Join(names, ", ") + "?"
			}
			return Exit{Misused, fmt.Errorf("there is no command %q%s", args[0], meant)}
		},
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2, // cobra sets its default only in its own error path, which RunE replaces
	}
	o.Config.AddFlags(root.PersistentFlags())
	o.addColour(root)
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.ErrOut)
	o.addHelp(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Exit{Misused, err} })
	for _, add := range commands {
		verb := add(o)
		verb.DisableFlagsInUseLine, verb.ValidArgsFunction = true, cobra.NoFileCompletions // kubectl's help template adds [options]
		root.AddCommand(verb)
	}
	return root
}

// addHelp prints help with kubectl's template, and replaces "kubectl-mend", which the template prints, by "kubectl mend".
func (o *Options) addHelp(root *cobra.Command) {
	templates.ActsAsRootCommand(root, nil)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var written strings.Builder
		out := c.OutOrStdout()
		c.SetOut(&written)
		help(c, args)
		c.SetOut(out)
		_, _ = fmt.Fprint(out, strings.ReplaceAll(written.String(), `Use "`+root.Name()+" ", `Use "`+o.Name+" "))
	})
}

// options is the command that lists the global flags. The help of the other commands leaves them out.
func (o *Options) options() *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "List the flags that every command takes",
		Example: fmt.Sprintf("  %s options", o.Name),
		Args:    noArgs,
		Run: func(c *cobra.Command, _ []string) {
			_, _ = fmt.Fprint(o.Out, "The following options can be passed to any command:\n\n")
			printer := templates.NewHelpFlagPrinter(o.Out, uint(text.Width(o.Out)))
			c.InheritedFlags().VisitAll(printer.PrintHelpFlag)
		},
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Exit{Misused, fmt.Errorf("%q: this command takes no arguments, only flags", args[0])}
	}
	return nil
}

// Exit is an error that sets the exit code of the program.
type Exit struct {
	Code int
	Err  error
}

// Error returns the text of the cause, or nothing if the printed answer explains the exit code.
func (e Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e Exit) Unwrap() error { return e.Err }

// Run runs the command line, prints its error and returns the exit code.
func Run(ctx context.Context, root *cobra.Command, streams genericiooptions.IOStreams) (code int) {
	say := func(wrong string) { _, _ = fmt.Fprintln(text.OnScreen(streams.ErrOut), text.Below(wrong)) }
	defer func() {
		if fault := recover(); fault != nil { // the panic may quote text from a server, which Go would print unescaped
			say(fmt.Sprintf("error: the program failed: %v\n%s", fault, debug.Stack()))
			code = Failed
		}
	}()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return Done
	}
	if err.Error() != "" {
		say(worded(err))
	}
	if exit := (Exit{}); errors.As(err, &exit) {
		return exit.Code
	}
	return Failed
}

// worded returns the text that kubectl prints for an error, such as "Error from server (Forbidden): ..." for an answer of the API server.
func worded(err error) string {
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if says, known := cmdutil.StandardErrorMessage(cause); known {
			return says
		}
	}
	return "error: " + err.Error()
}
