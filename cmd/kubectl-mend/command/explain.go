package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// explained are the kinds of which there is something to explain, and to wait for. A pod is explained by its node.
var explained = []kind{
	machineKind, nodeKind, hostKind, machineCheckKind, nodeCheckKind, remediationKind, metal3Kind, ownKind, deploymentKind, kubeadmKind, clusterKind,
}

var explainedOrPod = slices.Concat(explained, []kind{podKind})

func (o *Options) explain() *cobra.Command {
	var cluster string
	var full, code bool
	var again watching
	c := &cobra.Command{
		Use:   "explain (KIND NAME... | KIND/NAME...)",
		Short: "Explain why a machine is or is not being remediated, and what happens next",
		Long: "Explain a machine, a node, a host, a check or a remediation: the verdict, by which check and since when; the action; all that blocks the " +
			"action, in the order in which the controller asks; and, in the last line, the next thing that happens, or what you have to do.\n\n" +
			"Of a MachineDeployment, a KubeadmControlPlane or a Cluster: which of its machines have no Ready node, and what each waits for. " +
			"Of a pod, NAME or NAMESPACE/NAME: its node; with --cluster a pod of that workload cluster.",
		Example: fmt.Sprintf("  %[1]s explain machine/workers-x7k2p\n  %[1]s explain node/rack1-07 --cluster edge-3\n"+
			"  %[1]s explain mhc/workers -o yaml\n  %[1]s explain md/workers\n  %[1]s explain machine/workers-x7k2p --exit-code -o name", o.Name),
		Args:              someNames(explainedOrPod...),
		ValidArgsFunction: o.completeNames(explained...),
		RunE: func(c *cobra.Command, args []string) error {
			return o.watch(c.Context(), again, func(ctx context.Context, out io.Writer) error {
				all, err := o.explanations(ctx, args, cluster, full)
				if err != nil {
					return err
				}
				if err := o.printExplanations(out, all); err != nil || !code {
					return err
				}
				return exitOf(all)
			})
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "", "Name of the Cluster that the node is of, where several have one of that name, or that the pod is of.")
	c.Flags().BoolVar(&full, "full", false, "Read all machines and nodes of a cluster also where the status of the check counts them.")
	again.addTo(c)
	c.Flags().BoolVar(&code, "exit-code", false, "Exit with a code that says what was found: 0 healthy, 10 pending, 11 unhealthy and being remediated, "+
		"12 unhealthy and blocked, 13 unknown. Of several objects, the worst counts.")
	o.addOutput(c, wide, byName)
	o.addSourceFlags(c)
	excluding(c, "watch", "from")
	excluding(c, "watch", "exit-code")
	return c
}

// someNames are the arguments of a command that is about one object or several.
func someNames(expected ...kind) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return Exit{Misused, fmt.Errorf("expected %s", spelled(expected))}
		}
		_, err := parseAll(args, expected...)
		return err
	}
}

// explanations explain all that the arguments name.
func (o *Options) explanations(ctx context.Context, args []string, cluster string, full bool) ([]*page.Explanation, error) {
	named, err := parseAll(args, explainedOrPod...)
	if err != nil {
		return nil, err
	}
	all := make([]*page.Explanation, 0, len(named))
	for _, n := range named {
		e, err := o.explanation(ctx, n, cluster, full)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// printExplanations prints one as it is, and several one after the other.
func (o *Options) printExplanations(out io.Writer, all []*page.Explanation) error {
	list, named := &cliv1.ExplanationList{TypeMeta: cliv1.TypeOf("ExplanationList")}, make([]explain.Ref, 0, len(all))
	for _, e := range all {
		list.Items, named = append(list.Items, *e.Document()), append(named, e.Subject)
	}
	var found runtime.Object = list
	if len(all) == 1 {
		found = &list.Items[0]
	}
	return o.print(out, found, named, func() error {
		for i, e := range all {
			if i > 0 {
				_, _ = fmt.Fprint(out, "\n\n") // as kubectl describe does
			}
			if err := e.Print(out, o.width(), o.painter(o.Out)); err != nil {
				return err
			}
		}
		return nil
	})
}

// explanation explains what the user names.
func (o *Options) explanation(ctx context.Context, named subject, cluster string, full bool) (*page.Explanation, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	if named.kind == podKind {
		if named, err = o.nodeOf(ctx, named.name, namespace, cluster); err != nil {
			return nil, err
		}
	}
	k, name := named.kind, named.name
	scope, err := o.scopeAround(ctx, k, client.ObjectKey{Namespace: namespace, Name: name}, cluster)
	if err != nil {
		return nil, err
	}
	scope.AllMachines = full
	e, err := o.explained(ctx, scope, k, namespace, name, cluster)
	if err == nil && e.QueueUnread() { // all machines that wait have to be read to tell which is first
		scope.AllMachines = true
		return o.explained(ctx, scope, k, namespace, name, cluster)
	}
	return e, err
}

// explained explains an object of which that much is read.
func (o *Options) explained(ctx context.Context, scope snapshot.Scope, k kind, namespace, name, cluster string) (*page.Explanation, error) {
	a, err := o.asker(ctx, scope)
	if err != nil {
		return nil, err
	}
	return settled(ctx, a, func() (*page.Explanation, error) { return pageOf(ctx, a, k, namespace, name, cluster) })
}

// settled makes a page of what a reads, and again if more than before could not be read meanwhile: a page says all of that.
func settled[T any](ctx context.Context, a *inspect.Asker, page func() (T, error)) (T, error) {
	for {
		missing := len(a.Snapshot.Missing())
		made, err := page()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || len(a.Snapshot.Missing()) == missing {
			return made, err
		}
	}
}

// pageOf is the page of an object.
func pageOf(ctx context.Context, a *inspect.Asker, k kind, namespace, name, cluster string) (*page.Explanation, error) {
	switch k {
	case nodeKind:
		return page.Node(ctx, a, namespace, cluster, name)
	case nodeCheckKind:
		return page.NodeHealthCheck(ctx, a, name)
	}
	key, err := keyOf(ctx, a, k, namespace, name)
	if err != nil {
		return nil, err
	}
	switch k {
	case machineCheckKind:
		return page.MachineHealthCheck(ctx, a, key)
	case hostKind:
		return page.Host(ctx, a, key)
	case remediationKind:
		return page.Remediation(ctx, a, "", key)
	case metal3Kind, ownKind:
		return page.Remediation(ctx, a, string(k), key)
	case deploymentKind:
		return page.MachineDeployment(ctx, a, key)
	case kubeadmKind:
		return page.KubeadmControlPlane(ctx, a, key)
	case clusterKind:
		return page.OfCluster(ctx, a, key)
	default:
		return page.Machine(ctx, a, key)
	}
}

// keyOf is where the object of that name is; where the user means all namespaces, there has to be one.
func keyOf(ctx context.Context, a *inspect.Asker, k kind, namespace, name string) (client.ObjectKey, error) {
	if namespace != "" {
		return client.ObjectKey{Namespace: namespace, Name: name}, nil
	}
	kinds := []kind{k}
	if k == remediationKind {
		kinds = []kind{metal3Kind, ownKind}
	}
	called, namespaces := make([]string, 0, len(kinds)), []string{}
	for _, k := range kinds {
		called = append(called, string(k))
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(groups[k].GroupVersion().WithKind(groups[k].Kind + "List"))
		if err := a.Reader().List(ctx, list); err != nil && !remediationrequest.Missing(err) {
			return client.ObjectKey{}, fmt.Errorf("look for %s %s: %w", k, name, err)
		}
		for i := range list.Items {
			if list.Items[i].Name == name {
				namespaces = append(namespaces, list.Items[i].Namespace)
			}
		}
	}
	switch len(namespaces) {
	case 0:
		return client.ObjectKey{}, fmt.Errorf("there is no %s %s in any namespace", listed(called, "or"), name)
	case 1:
		return client.ObjectKey{Namespace: namespaces[0], Name: name}, nil
	}
	return client.ObjectKey{}, Exit{Misused, fmt.Errorf("there is a %s %s in several namespaces: say which with -n: %s",
		k, name, strings.Join(namespaces, ", "))}
}

// asker inspects the cluster, or the record, that the flags name, at the time that it is there.
func (o *Options) asker(ctx context.Context, scope snapshot.Scope) (*inspect.Asker, error) {
	w, err := o.snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	a, err := inspect.New(ctx, w, w.Clock.Now())
	if err != nil {
		return nil, err
	}
	o.sayVersions(a.Managers.All)
	return a, nil
}

// scopeAround is what has to be read to explain an object, of a Cluster that the user names, or of the one that it is of.
func (o *Options) scopeAround(ctx context.Context, k kind, key client.ObjectKey, cluster string) (snapshot.Scope, error) {
	scope := snapshot.Scope{Nodes: true, Cluster: cluster}
	switch k {
	case machineKind, deploymentKind, kubeadmKind, clusterKind: // records have kept which machines are gone, and which came in their place
		scope.Records = key.Namespace != ""
	}
	if k == nodeKind {
		scope.Node = key.Name
	}
	if k == nodeKind || k == nodeCheckKind || cluster != "" || o.from != "" || o.read != nil || key.Namespace == "" {
		return scope, nil
	}
	reader, err := o.client()
	if err != nil {
		return scope, err
	}
	scope.Cluster, scope.Machine = belongings(ctx, reader, k, key)
	return scope, nil
}

// belongings are the names of the Cluster and of the Machine that an object belongs to, so that no others need to be read; each is empty if it is
// not known at once. Errors are reported when the cluster is read.
func belongings(ctx context.Context, reader client.Reader, k kind, key client.ObjectKey) (cluster, machine string) {
	switch k {
	case clusterKind:
		return key.Name, ""
	case machineCheckKind:
		check := &clusterv1.MachineHealthCheck{}
		_ = reader.Get(ctx, key, check)
		return check.Spec.ClusterName, ""
	case machineKind:
		cluster = metadataOf(ctx, reader, k, key).Labels[clusterv1.ClusterNameLabel]
		if cluster != "" {
			machine = key.Name
		}
		return cluster, machine
	case hostKind:
		host := &bmov1alpha1.BareMetalHost{}
		_ = reader.Get(ctx, key, host)
		if host.Spec.ConsumerRef == nil || host.Spec.ConsumerRef.Namespace != key.Namespace {
			return "", ""
		}
		consumer := &metav1.PartialObjectMetadata{}
		consumer.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
		_ = reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: host.Spec.ConsumerRef.Name}, consumer)
		return ownedBy(ctx, reader, consumer)
	case remediationKind:
		if cluster, machine = ownedBy(ctx, reader, metadataOf(ctx, reader, ownKind, key)); cluster == "" {
			return ownedBy(ctx, reader, metadataOf(ctx, reader, metal3Kind, key))
		}
		return cluster, machine
	}
	return ownedBy(ctx, reader, metadataOf(ctx, reader, k, key))
}

func metadataOf(ctx context.Context, reader client.Reader, k kind, key client.ObjectKey) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(groups[k])
	_ = reader.Get(ctx, key, obj)
	return obj
}

// ownedBy are the Cluster and the Machine that own an object.
func ownedBy(ctx context.Context, reader client.Reader, obj client.Object) (cluster, machine string) {
	for _, owner := range obj.GetOwnerReferences() {
		if owner.Kind == groups[machineKind].Kind {
			return belongings(ctx, reader, machineKind, client.ObjectKey{Namespace: obj.GetNamespace(), Name: owner.Name})
		}
	}
	return obj.GetLabels()[clusterv1.ClusterNameLabel], ""
}
