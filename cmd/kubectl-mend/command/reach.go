package command

import (
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
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

// reader reads the cluster or, with --from, the file. With it comes the namespace that the user means; empty for all.
func (o *Options) reader() (client.Reader, string, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, "", err
	}
	if o.from != "" {
		recorded, err := load(o.from)
		if err != nil {
			return nil, "", err
		}
		return recorded.ReadOnly(), namespace, nil
	}
	c, err := o.client()
	return c, namespace, err
}
