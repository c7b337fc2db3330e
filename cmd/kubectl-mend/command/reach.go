package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

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
	if server, learns := o.Clock.(*serverClock); learns {
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

// reader reads the cluster or, with --from, the file, whose time it is then. The namespace is the one that the user means; empty for all.
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
		o.Clock = recorded.Clock
		return recorded.ReadOnly(), namespace, nil
	}
	c, err := o.client()
	return c, namespace, err
}
