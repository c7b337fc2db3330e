package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
)

func (o *Options) addScope(c *cobra.Command) {
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Read all namespaces.")
}

// namespace returns the namespace of the flags or of the kubeconfig; empty for all. With --from the kubeconfig does not count.
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

// config returns how to reach the management cluster. Without a kubeconfig client-go would ask localhost:8080, and the user would see only
// that the connection was refused.
func (o *Options) config() (*rest.Config, error) {
	config, err := o.Config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	written, err := o.Config.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(written.Clusters) == 0 && ptr.Deref(o.Config.APIServer, "") == "" &&
		config.Host == clientcmd.ClusterDefaults.Server {
		return nil, errors.New("no kubeconfig was found, or it names no cluster: name one with --kubeconfig, or in KUBECONFIG")
	}
	if server, learns := o.Clock.(*serverClock); learns {
		config.Wrap(server.watch)
	}
	return config, nil
}

// client returns a client with the user's rights. Its field owner is mendv1.CommandLineFieldOwner.
func (o *Options) client() (client.Client, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	config.WarningHandler = rest.NewWarningWriter(o.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	c, err := client.New(config, client.Options{Scheme: snapshot.Scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	return client.WithFieldOwner(c, mendv1.CommandLineFieldOwner), nil
}

// reader returns a reader of the cluster or, with --from, of the file, and the namespace to read; empty for all. With --from, o.Clock
// becomes the clock of the file.
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
		return recorded, namespace, nil
	}
	c, err := o.client()
	return c, namespace, err
}

func (o *Options) addSourceFlags(cmd *cobra.Command) {
	o.addScope(cmd)
	cmd.Flags().StringVar(&o.from, "from", "",
		"Read a file that the record command has written, instead of the cluster: what was there when it was recorded, "+
			"in all namespaces unless -n names one.")
	_ = cmd.MarkFlagFilename("from") // fails only for an unknown flag
}

// snapshot loads the file of --from, or reads the scope from the cluster, in the namespace of the flags. The clock of the snapshot is that
// of the file or of the API server.
func (o *Options) snapshot(ctx context.Context, scope snapshot.Scope) (*snapshot.Snapshot, error) {
	if o.from != "" {
		return load(o.from)
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	scope.Namespace = namespace
	if o.read != nil {
		return o.read(ctx, scope)
	}
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	return snapshot.Read(ctx, config, o.Clock, scope)
}

func load(name string) (*snapshot.Snapshot, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written to it
	w, err := snapshot.Load(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}

func (o *Options) sayMissing(w *snapshot.Snapshot) {
	missing := w.Missing()
	if len(missing) == 0 {
		return
	}
	_, _ = fmt.Fprintln(o.ErrOut, "Could not be read:")
	for _, m := range missing {
		_, _ = fmt.Fprintf(o.ErrOut, "  %s\n", text.Below(m))
	}
}

// tolerated is the largest difference between the clocks of the user and of the API server that is ignored, because the Date header has
// whole seconds and an answer takes a while.
const tolerated = 3 * time.Second

// serverClock is the clock of the API server, from the Date header of the first answer; until then it is that of this machine. Managers
// renew their leases by the clocks of the cluster: with a user's clock a minute ahead, every manager's lease would look expired.
type serverClock struct {
	clock.PassiveClock

	warn  io.Writer
	first sync.Once
	ahead atomic.Int64 // how far the API server's clock is ahead of this machine's: a time.Duration
}

// Now returns the time of the API server.
func (c *serverClock) Now() time.Time { return c.PassiveClock.Now().Add(time.Duration(c.ahead.Load())) }

// Since returns the time from t to now.
func (c *serverClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// watch learns the API server's time from the first answer.
func (c *serverClock) watch(next http.RoundTripper) http.RoundTripper {
	return snapshot.RoundTripper(func(request *http.Request) (*http.Response, error) {
		asked := c.PassiveClock.Now()
		response, err := next.RoundTrip(request)
		if err == nil {
			c.first.Do(func() { c.learn(response.Header.Get("Date"), asked) })
		}
		return response, err
	})
}

// learn compares the Date header of an answer with the time on this machine, from the request (asked) to now. If the header is further than
// `tolerated` outside, learn warns, and the clock follows the API server.
func (c *serverClock) learn(said string, asked time.Time) {
	date, err := http.ParseTime(said)
	second, answered, differs := date.Add(time.Second), c.PassiveClock.Now(), "behind"
	var ahead time.Duration
	switch {
	case err != nil:
		return
	case second.Add(tolerated).Before(asked):
		ahead, differs = second.Sub(asked), "ahead of"
	case date.After(answered.Add(tolerated)):
		ahead = date.Sub(answered)
	default:
		return
	}
	c.ahead.Store(int64(ahead))
	_, _ = fmt.Fprintf(c.warn, "warning: the clock of this machine is %s %s that of the API server, which is the one that counts here\n",
		ahead.Abs().Round(time.Second), differs)
}

// timeAt returns the time of the API server that c reads. Any answer has it, even an error.
func (o *Options) timeAt(ctx context.Context, c client.Reader) time.Time {
	_ = c.List(ctx, listOf(machineCheckKind), client.Limit(1)) // the caller's own reads report the errors
	return o.Clock.Now()
}
