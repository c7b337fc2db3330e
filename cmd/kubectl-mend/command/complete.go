package command

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// namedByFlag are the flags whose values are names of objects.
var namedByFlag = map[string]kind{"cluster": clusterKind, "namespace": namespaceKind}

// paths are the flags of kubectl whose values are files or folders.
var paths = []string{"kubeconfig", "cache-dir", "certificate-authority", "client-certificate", "client-key"}

// completeFlags completes the values of the flags of a command and of those below it: names of objects, contexts and users of the kubeconfig, and nothing
// where there is nothing to choose from, in place of the files of the folder. A flag that has its completion keeps it.
func (o *Options) completeFlags(c *cobra.Command) {
	complete := func(f *pflag.Flag) {
		_, file := f.Annotations[cobra.BashCompFilenameExt]
		if file || f.NoOptDefVal != "" || slices.Contains(paths, f.Name) {
			return
		}
		function := cobra.NoFileCompletions
		switch k, named := namedByFlag[f.Name]; {
		case named:
			function = o.completeBare(k)
		case f.Name == "fail":
			function = func(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return o.completeNames(machineKind, nodeKind)(c, nil, typed)
			}
		case f.Name == "context", f.Name == "user":
			function = o.completeKubeconfig(f.Name)
		}
		_ = c.RegisterFlagCompletionFunc(f.Name, function) // it is an error where the flag has one
	}
	c.LocalFlags().VisitAll(complete)
	for _, below := range c.Commands() {
		o.completeFlags(below)
	}
}

// completeBare completes names of objects of one kind, without their kind. Whatever goes wrong, the shell completes nothing.
func (o *Options) completeBare(k kind) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completesWithin)
		defer cancel()
		reader, namespace, err := o.completesFrom()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if k == namespaceKind {
			namespace = ""
		}
		return completions(ctx, reader, namespace, []kind{k}, []string{k.alias()}, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeCluster completes the one argument of a command that may name a Cluster.
func (o *Options) completeCluster(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.completeBare(clusterKind)(c, nil, typed)
}

// completeKubeconfig completes what the kubeconfig has: contexts, or users.
func (o *Options) completeKubeconfig(what string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		config, err := o.Config.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := slices.Sorted(maps.Keys(config.Contexts))
		if what == "user" {
			names = slices.Sorted(maps.Keys(config.AuthInfos))
		}
		return without(names, nil, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// addExamples gives the commands that cobra adds an example each.
func (o *Options) addExamples(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example, c.DisableFlagsInUseLine = fmt.Sprintf("  %s help explain", o.Name), true
		case "completion":
			c.Example = "  source <(kubectl-mend completion bash)"
			for _, shell := range c.Commands() {
				shell.Example = fmt.Sprintf("  source <(kubectl-mend completion %s)", shell.Name())
				switch shell.Name() {
				case "fish":
					shell.Example = "  kubectl-mend completion fish | source"
				case "powershell":
					shell.Example = "  kubectl-mend completion powershell | Out-String | Invoke-Expression"
				}
			}
		}
	}
}
