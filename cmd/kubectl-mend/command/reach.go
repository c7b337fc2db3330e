package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// completesWithin is how long a shell waits for names.
const completesWithin = 2 * time.Second

// groups are where the kinds that users name are.
var groups = map[kind]schema.GroupVersionKind{
	machineKind:      clusterv1.GroupVersion.WithKind("Machine"),
	nodeKind:         {Version: "v1", Kind: "Node"},
	hostKind:         bmov1alpha1.GroupVersion.WithKind("BareMetalHost"),
	machineCheckKind: clusterv1.GroupVersion.WithKind("MachineHealthCheck"),
	nodeCheckKind:    nhcv1.GroupVersion.WithKind("NodeHealthCheck"),
	metal3Kind:       infrav1.GroupVersion.WithKind("Metal3Remediation"),
	ownKind:          mendv1.GroupVersion.WithKind("HostRemediation"),
	clusterKind:      clusterv1.GroupVersion.WithKind("Cluster"),
	namespaceKind:    {Version: "v1", Kind: "Namespace"},
	deploymentKind:   clusterv1.GroupVersion.WithKind("MachineDeployment"),
	kubeadmKind:      controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"),
}

// addScope adds the flag that widens a command to all namespaces.
func (o *Options) addScope(c *cobra.Command) {
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Read all namespaces.")
}

// namespace is the one that the user means; empty for all. A file has nothing to do with the namespace of a kubeconfig.
func (o *Options) namespace() (string, error) {
	if o.allNamespaces {
		return "", nil
	}
	if o.from != "" {
		return ptr.Deref(o.Config.Namespace, ""), nil
	}
	name, _, err := o.Config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	return name, nil
}

// config says which cluster, and as which user. Without a kubeconfig client-go asks a server on this machine, and the user would only see that there is
// none.
func (o *Options) config() (*rest.Config, error) {
	config, err := o.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	written, err := o.Config.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(written.Clusters) == 0 && ptr.Deref(o.Config.APIServer, "") == "" && config.Host == clientcmd.ClusterDefaults.Server {
		return nil, errors.New("no kubeconfig was found, or it names no cluster: name one with --kubeconfig, or in KUBECONFIG")
	}
	if server, is := o.Clock.(*serverClock); is {
		config.Wrap(server.watch)
	}
	return config, nil
}

// client reads and writes with the user's rights. All that it writes has one name, see mendv1.CommandLineFieldOwner.
func (o *Options) client() (client.Client, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(o.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	c, err := client.New(config, client.Options{Scheme: snapshot.New().Scheme()})
	if err != nil {
		return nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	return client.WithFieldOwner(c, mendv1.CommandLineFieldOwner), nil
}

// completesFrom is what names are completed from: the cluster or, with --from, the file; and the namespace that the user means.
func (o *Options) completesFrom() (client.Reader, string, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, "", err
	}
	if o.from != "" {
		w, err := load(o.from)
		if err != nil {
			return nil, "", err
		}
		return w.ReadOnly(), namespace, nil
	}
	c, err := o.client()
	return c, namespace, err
}

// completeNames completes arguments such as mhc/NAME. Whatever goes wrong, the shell completes nothing.
func (o *Options) completeNames(kinds ...kind) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completesWithin)
		defer cancel()
		reader, namespace, err := o.completesFrom()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completions(ctx, reader, namespace, kinds, args, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// completions are what typed may become. The kind stays as the user calls it; before there is one, all
// kinds are offered as messages call them.
func completions(ctx context.Context, c client.Reader, namespace string, kinds []kind, given []string, typed string) []cobra.Completion {
	var all []cobra.Completion
	called, _, has := strings.Cut(typed, "/")
	prefix := called + "/"
	if !has && len(given) > 0 && !strings.Contains(given[0], "/") { // the kind is an argument of its own
		called, prefix, has = given[0], "", true
	}
	for _, k := range kinds {
		if is, known := kindCalled(called); has && (!known || is != k) {
			continue
		}
		if !has {
			prefix = k.alias() + "/"
		}
		for _, name := range namesOf(ctx, c, namespace, k) {
			all = append(all, prefix+name)
		}
	}
	return without(all, given, typed)
}

// namesOf are the names of a kind, as far as they can be read. Of nodes they are also those of workload clusters, which their Machines know.
func namesOf(ctx context.Context, c client.Reader, namespace string, k kind) []string {
	var names []string
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(groups[k].GroupVersion().WithKind(groups[k].Kind + "List"))
	if c.List(ctx, list, client.InNamespace(namespace)) == nil {
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	machines := &clusterv1.MachineList{}
	if k == nodeKind && c.List(ctx, machines, client.InNamespace(namespace)) == nil {
		for i := range machines.Items {
			if node := machines.Items[i].Status.NodeRef.Name; node != "" {
				names = append(names, node)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// without are those of all that begin as typed and were not given before.
func without(all, given []string, typed string) []string {
	seen := map[string]bool{}
	for _, g := range given {
		seen[g] = true
	}
	var left []string
	for _, name := range all {
		if strings.HasPrefix(name, typed) && !seen[name] {
			left = append(left, name)
		}
	}
	return left
}
