package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// explained are the kinds that both `explain` and `wait` take.
var explained = []kind{
	machineKind, nodeKind, hostKind, machineCheckKind, nodeCheckKind, metal3Kind, ownKind, deploymentKind, kubeadmKind, clusterKind,
}

var explainedOrPod = slices.Concat(explained, []kind{podKind, policyKind, overrideKind})

// selectable are the kinds that --selector selects: not Nodes, most of which are not in the management cluster.
var selectable = slices.DeleteFunc(slices.Clone(explained), func(k kind) bool { return k == nodeKind })

func (o *Options) explain() *cobra.Command {
	var cluster, selector string
	c := &cobra.Command{
		Use:   "explain (KIND NAME... | KIND/NAME... | KINDS -l SELECTOR)",
		Short: "Explain why a machine is or is not being remediated, and what happens next",
		Long: "Explain a machine, a node, a host, a check or a remediation: the verdict, the action, all that blocks it, and in the last " +
			"line the next thing that happens, or what you have to do. Of a MachineDeployment, a KubeadmControlPlane or a Cluster: " +
			"which of its machines have no Ready node, and what each waits for. Of a pod, NAME or NAMESPACE/NAME: its node; with " +
			"--cluster a pod of that workload cluster. Of policies, overrides: what they block.",
		Example: fmt.Sprintf("  %[1]s explain machine/workers-x7k2p\n  %[1]s explain node/rack1-07 --cluster edge-3\n"+
			"  %[1]s explain machines -l rack=rack1\n  %[1]s explain mhc/workers -o yaml\n  %[1]s explain md/workers", o.Name),
		RunE: func(c *cobra.Command, args []string) error {
			found, err := o.explanations(c.Context(), args, cluster, selector)
			if err := cmp.Or(err, c.Context().Err()); err != nil { // do not print a page of an interrupted read
				return err
			}
			return o.printExplanations(found)
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "",
		"Name of the Cluster that the node is of, where several have one of that name, or that the pod is of.")
	c.Flags().StringVarP(&selector, "selector", "l", "", "Explain all objects of the kind whose labels match.")
	o.addOutput(c, wide)
	o.addSourceFlags(c)
	return c
}

func (o *Options) explanations(ctx context.Context, args []string, cluster, selector string) ([]*page.Explanation, error) {
	if selector != "" {
		return o.selectedExplanations(ctx, args, cluster, selector)
	}
	named, err := parseSome(args, explainedOrPod...)
	if err != nil {
		return nil, err
	}
	found := make([]*page.Explanation, len(named))
	for i, subject := range named {
		if found[i], err = o.explanation(ctx, subject, cluster); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// selectedExplanations explains the objects of a kind whose labels match. It reads the cluster once for all of them.
func (o *Options) selectedExplanations(ctx context.Context, args []string, cluster, selector string) ([]*page.Explanation, error) {
	k, err := kindAlone(args, selectable...)
	if err != nil {
		return nil, err
	}
	labelled, err := labels.Parse(selector)
	if err != nil {
		return nil, Exit{Misused, fmt.Errorf("--selector: %w", err)}
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	a, err := o.asker(ctx, snapshot.Scope{Cluster: cluster, Records: true, AllMachines: true})
	if err != nil {
		return nil, err
	}
	list := listOf(k)
	if err := a.Snapshot.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: labelled}); err != nil {
		return nil, fmt.Errorf("list %ss: %w", k, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no %s has labels that match %s", k, selector)
	}
	found := make([]*page.Explanation, len(list.Items))
	for i, item := range list.Items {
		if found[i], err = pageOf(ctx, a, subject{kind: k, namespace: item.Namespace, name: item.Name}, cluster); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (o *Options) printExplanations(found []*page.Explanation) error {
	list := &cliv1.ExplanationList{TypeMeta: cliv1.TypeOf("ExplanationList")}
	for _, e := range found {
		list.Items = append(list.Items, *e.Document())
	}
	var document runtime.Object = list
	if len(found) == 1 {
		document = &list.Items[0]
	}
	return o.print(document, func() error {
		for i, e := range found {
			if i > 0 {
				_, _ = fmt.Fprint(o.Out, "\n\n") // as kubectl describe does
			}
			if err := e.Print(o.Out, o.layout()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (o *Options) explanation(ctx context.Context, named subject, cluster string) (*page.Explanation, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	if named.kind == podKind {
		if named, err = o.nodeOf(ctx, named.name, namespace, cluster); err != nil {
			return nil, err
		}
	}
	if named.namespace = namespace; (named.kind == policyKind || named.kind == overrideKind) && namespace == managerlease.UsualNamespace {
		everywhere := *o // policies and overrides in kubemend-system apply to all namespaces
		everywhere.allNamespaces, o = true, &everywhere
	}
	a, err := o.askerAround(ctx, named, cluster, false)
	if err != nil {
		return nil, err
	}
	return pageOf(ctx, a, named, cluster)
}

func pageOf(ctx context.Context, a *inspect.Asker, named subject, cluster string) (*page.Explanation, error) {
	switch named.kind {
	case nodeKind:
		return page.Node(ctx, a, named.namespace, cluster, named.name)
	case nodeCheckKind:
		return page.NodeHealthCheck(ctx, a, named.name)
	}
	key, err := keyOf(ctx, a, named)
	if err != nil {
		return nil, err
	}
	switch named.kind {
	case machineCheckKind:
		return page.MachineHealthCheck(ctx, a, key)
	case hostKind:
		return page.Host(ctx, a, key)
	case metal3Kind, ownKind:
		return page.Remediation(ctx, a, string(named.kind), key)
	case deploymentKind:
		return page.OfOwner(ctx, a, key, &clusterv1.MachineDeployment{})
	case kubeadmKind:
		return page.OfOwner(ctx, a, key, &controlplanev1.KubeadmControlPlane{})
	case clusterKind:
		return page.OfCluster(ctx, a, key)
	case policyKind:
		return page.Policy(ctx, a, key)
	case overrideKind:
		return page.Override(ctx, a, key)
	default:
		return page.Machine(ctx, a, key)
	}
}

// keyOf returns the namespace and name of an object. With -A it looks for the name, and returns an error unless one namespace has it.
func keyOf(ctx context.Context, a *inspect.Asker, named subject) (client.ObjectKey, error) {
	if named.namespace != "" {
		return named.key(), nil
	}
	list := listOf(named.kind)
	if err := a.Snapshot.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
		return client.ObjectKey{}, fmt.Errorf("look for %s %s: %w", named.kind, named.name, err)
	}
	var namespaces []string
	for i := range list.Items {
		if list.Items[i].Name == named.name {
			namespaces = append(namespaces, list.Items[i].Namespace)
		}
	}
	switch len(namespaces) {
	case 0:
		return client.ObjectKey{}, fmt.Errorf("there is no %s %s in any namespace", named.kind, named.name)
	case 1:
		return client.ObjectKey{Namespace: namespaces[0], Name: named.name}, nil
	}
	return client.ObjectKey{}, Exit{Misused, fmt.Errorf("there is a %s %s in several namespaces: say which with -n: %s",
		named.kind, named.name, strings.Join(namespaces, ", "))}
}

// asker reads the scope and returns an Asker for it, at the time of the cluster or of the record of --from.
func (o *Options) asker(ctx context.Context, scope snapshot.Scope) (*inspect.Asker, error) {
	w, err := o.snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	a := inspect.New(ctx, w, w.Clock.Now())
	a.Judges = scope.Judge
	return a, nil
}

// askerAround reads what explains an object: of the Cluster that the user named, or else of the object's own Cluster. With judge the nodes
// are judged here.
func (o *Options) askerAround(ctx context.Context, named subject, cluster string, judge bool) (*inspect.Asker, error) {
	scope := snapshot.Scope{Cluster: cluster, Records: named.namespace != "", Judge: judge}
	switch {
	case named.kind == nodeKind:
		scope.Node = named.name
	case named.kind == nodeCheckKind, cluster != "", o.from != "", o.read != nil, named.namespace == "":
	default:
		reader, err := o.client()
		if err != nil {
			return nil, err
		}
		scope.Cluster, scope.Machine = belongings(ctx, reader, named.kind, named.key())
	}
	return o.asker(ctx, scope)
}

// belongings returns the names of the Cluster and the Machine that an object belongs to, so that no other need be read; empty if unknown.
// It ignores errors, because reading the snapshot reports them.
func belongings(ctx context.Context, reader client.Reader, k kind, key client.ObjectKey) (cluster, machine string) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(k.gvk())
	switch k {
	case clusterKind:
		return key.Name, ""
	case machineCheckKind:
		check := &clusterv1.MachineHealthCheck{}
		_ = reader.Get(ctx, key, check)
		return check.Spec.ClusterName, ""
	case hostKind: // a host belongs to the owner of its consumer
		host := &bmov1alpha1.BareMetalHost{}
		_ = reader.Get(ctx, key, host)
		if host.Spec.ConsumerRef == nil || host.Spec.ConsumerRef.Namespace != key.Namespace {
			return "", ""
		}
		object.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
		key.Name = host.Spec.ConsumerRef.Name
	}
	_ = reader.Get(ctx, key, object)
	for _, owner := range object.OwnerReferences {
		if owner.Kind == string(machineKind) {
			return belongings(ctx, reader, machineKind, client.ObjectKey{Namespace: key.Namespace, Name: owner.Name})
		}
	}
	cluster = object.Labels[clusterv1.ClusterNameLabel]
	if k == machineKind && cluster != "" {
		machine = key.Name
	}
	return cluster, machine
}

// nodeOf returns the node that a pod runs on: in the management cluster or, if cluster is set, in that workload cluster. Then the pod has
// to be NAMESPACE/NAME, because --namespace is that of the Cluster.
func (o *Options) nodeOf(ctx context.Context, pod, namespace, cluster string) (subject, error) {
	in, name, qualified := strings.Cut(pod, "/")
	switch {
	case o.from != "":
		return subject{}, Exit{Misused, errors.New("--from: a record has no pods: name the node, as node/NAME")}
	case !qualified && (cluster != "" || namespace == ""):
		return subject{}, Exit{Misused, fmt.Errorf("pod/%[1]s: name its namespace too, as pod/NAMESPACE/%[1]s", pod)}
	case cluster != "" && namespace == "":
		return subject{}, Exit{Misused, fmt.Errorf("say with -n in which namespace Cluster %s is", cluster)}
	case !qualified:
		in, name = namespace, pod
	}
	management, err := o.client()
	if err != nil {
		return subject{}, err
	}
	reader, where := client.Reader(management), "the management cluster; --cluster reads a workload cluster"
	if cluster != "" {
		where = "Cluster " + cluster
		reader, err = snapshot.WorkloadReader(ctx, management, client.ObjectKey{Namespace: namespace, Name: cluster})
		if err != nil {
			return subject{}, fmt.Errorf("reach Cluster %s: %w", cluster, err)
		}
	}
	found := &corev1.Pod{}
	if err := page.Read(ctx, reader, client.ObjectKey{Namespace: in, Name: name}, found, string(podKind)); err != nil {
		return subject{}, fmt.Errorf("%w of %s", err, where)
	}
	if found.Spec.NodeName == "" {
		return subject{}, fmt.Errorf("the Pod %s/%s is on no node", in, name)
	}
	return subject{kind: nodeKind, name: found.Spec.NodeName}, nil
}
