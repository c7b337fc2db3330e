package command

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const completionTimeout = 2 * time.Second

// completeFlags completes the values of flags that name objects of the cluster, as the arguments are completed, and the context.
func (o *Options) completeFlags(c *cobra.Command) {
	names := func(given []string, kinds ...kind) cobra.CompletionFunc {
		return func(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return o.completeNames(kinds...)(c, given, typed)
		}
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"namespace": names([]string{namespaceKind.alias()}, namespaceKind),
		"cluster":   names([]string{clusterKind.alias()}, clusterKind),
		"fail":      names(nil, machineKind, nodeKind),
		"context":   o.completeContexts,
	} {
		_ = c.RegisterFlagCompletionFunc(flag, complete) // it is an error where the command has no such flag
	}
	for _, below := range c.Commands() {
		o.completeFlags(below)
	}
}

func (o *Options) completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := o.Config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completeNames completes arguments such as mhc/NAME. The kind stays as the user calls it; before there is one, all kinds are offered.
// Whatever goes wrong, the shell completes nothing.
func (o *Options) completeNames(kinds ...kind) cobra.CompletionFunc {
	return func(c *cobra.Command, given []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		reader, namespace, err := o.reader()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		called, _, hasKind := strings.Cut(typed, "/")
		prefix := called + "/"
		if !hasKind && len(given) > 0 && !strings.Contains(given[0], "/") { // the kind is an argument of its own
			called, prefix, hasKind = given[0], "", true
		}
		var offered []cobra.Completion
		for _, k := range kinds {
			named, known := kindCalled(called)
			switch {
			case !hasKind:
				prefix = k.alias() + "/"
			case !known || named != k:
				continue
			}
			for _, name := range namesOf(ctx, reader, namespace, k) {
				if strings.HasPrefix(prefix+name, typed) && !slices.Contains(given, prefix+name) {
					offered = append(offered, prefix+name)
				}
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf are the names of a kind, as far as they can be read. Machines know the nodes of workload clusters.
func namesOf(ctx context.Context, reader client.Reader, namespace string, k kind) []string {
	var names []string
	list := listOf(k)
	if reader.List(ctx, list, client.InNamespace(namespace)) == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	machines := &clusterv1.MachineList{}
	if k == nodeKind && reader.List(ctx, machines, client.InNamespace(namespace)) == nil {
		for i := range machines.Items {
			if node := machines.Items[i].Status.NodeRef.Name; node != "" {
				names = append(names, node)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func listOf(k kind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(groups[k].GroupVersion().WithKind(groups[k].Kind + "List"))
	return list
}
