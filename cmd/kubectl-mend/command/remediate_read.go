package command

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// remediationFacts are all that the plan of a remediation by hand is made from.
type remediationFacts struct {
	asked kind
	// machine is nil if the host, or the node, has none.
	machine *clusterv1.Machine
	// before is how the machine, or the node, stands, after how the machine would stand with the mark.
	before, after *page.Explanation
	// alone is why kubemend leaves a machine alone that no check judges: an annotation, or its Cluster; empty if it does not.
	alone string
	// host is the name of the host that the user named; empty if it was another object.
	host string
	// template is the kind of the requests that the check makes which acts first; empty if it asks the owner.
	template string
	// underway are the names of remediations of the machine that have not ended.
	underway []string
	// request is the HostRemediation that would be made, and cyclePage how it would stand; nil if the kind is not installed.
	request   *mendv1.HostRemediation
	cyclePage *page.Explanation
}

// cycles reports whether a power cycle is what is asked for: of a host, or of a machine whose check asks for one.
func (f *remediationFacts) cycles() bool {
	return f.asked == hostKind || f.template == remediation.Own.Kind || f.template == remediation.Metal3.Kind
}

// observeRemediation reads how a machine stands, and how it would with the mark and with the request. It changes the snapshot that a is
// about.
func observeRemediation(ctx context.Context, a *inspect.Asker, k kind, namespace, name, cluster string) (*remediationFacts, error) {
	facts := &remediationFacts{asked: k}
	var err error
	if facts.machine, err = machineNamed(ctx, a, k, namespace, name, cluster); err != nil {
		return nil, err
	}
	if facts.machine == nil {
		if k == nodeKind {
			facts.before, err = page.Node(ctx, a, namespace, cluster, name)
		}
		return facts, err
	}
	if k == hostKind {
		facts.host = name
	}
	facts.machine = facts.machine.DeepCopy()
	key := client.ObjectKeyFromObject(facts.machine)
	if facts.before, err = page.Machine(ctx, a, key); err != nil {
		return nil, err
	}
	marked := facts.machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, clusterv1.RemediateMachineAnnotation, "")
	if err := a.Snapshot.Add(marked); err != nil {
		return nil, err
	}
	if facts.after, err = page.Machine(ctx, a, key); err != nil {
		return nil, err
	}
	if err := a.Snapshot.Add(facts.machine); err != nil {
		return nil, err
	}
	for i := range facts.before.Remediations {
		if rem := &facts.before.Remediations[i]; !powercycle.State(rem.State).Final() {
			facts.underway = append(facts.underway, rem.Reference.String())
		}
	}
	facts.template, facts.alone = templateOf(a, facts.after), aloneBy(a, facts.machine)
	if facts.cycles() {
		err = facts.observeCycle(ctx, a)
	}
	return facts, err
}

// aloneBy is what keeps every controller from a machine, whichever check judges it; empty if nothing does.
func aloneBy(a *inspect.Asker, machine *clusterv1.Machine) string {
	for _, key := range []string{clusterv1.MachineSkipRemediationAnnotation, clusterv1.PausedAnnotation} {
		if _, has := machine.Annotations[key]; has {
			return explain.MachineAnnotated(key)
		}
	}
	cluster := snapshot.One[clusterv1.Cluster](a.Snapshot, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if cluster != nil && ptr.Deref(cluster.Spec.Paused, false) {
		return fmt.Sprintf("Cluster %s is paused (spec.paused)", cluster.Name)
	}
	return ""
}

// templateOf is the kind of requests that the check makes which acts first; empty if it makes none.
func templateOf(a *inspect.Asker, e *page.Explanation) string {
	if len(e.Checks) == 0 || e.Checks[0].Kind != string(machineCheckKind) {
		return ""
	}
	key := client.ObjectKey{Namespace: e.Checks[0].Namespace, Name: e.Checks[0].Name}
	check := snapshot.One[clusterv1.MachineHealthCheck](a.Snapshot, key)
	if check == nil || !check.Spec.Remediation.TemplateRef.IsDefined() {
		return ""
	}
	return remediationrequest.KindOf(remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef)).Kind
}

// observeCycle reads how a new HostRemediation would stand; nothing if the kind is not installed.
func (f *remediationFacts) observeCycle(ctx context.Context, a *inspect.Asker) error {
	kinds, err := remediation.InstalledKinds(a.Snapshot.RESTMapper())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(kinds, func(k remediation.Kind) bool { return k.Kind == remediation.Own.Kind && k.New != nil }) {
		return nil
	}
	list := &mendv1.HostRemediationList{}
	if err := a.Reader().List(ctx, list, client.InNamespace(f.machine.Namespace)); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("list HostRemediations in %s: %w", f.machine.Namespace, err)
	}
	taken := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		taken[list.Items[i].Name] = true
	}
	f.request = requestByHand(f.machine, taken)
	if err := a.Snapshot.Add(f.request); err != nil {
		return err
	}
	f.cyclePage, err = page.Remediation(ctx, a, remediation.Own.Kind, client.ObjectKeyFromObject(f.request))
	return err
}

// requestByHand is the HostRemediation of a machine that a person asks for. Two who ask at once mean the same name, so that one of them
// is refused; those that have ended stay, and the next one has a number.
func requestByHand(machine *clusterv1.Machine, taken map[string]bool) *mendv1.HostRemediation {
	name := machine.Name + "-by-hand"
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-by-hand-%d", machine.Name, n)
	}
	request := &mendv1.HostRemediation{}
	request.Namespace, request.Name = machine.Namespace, name
	request.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: string(machineKind), Name: machine.Name, UID: machine.UID,
	}}
	request.Spec.Strategy = &mendv1.HostRemediationStrategy{
		Type: infrav1.RebootRemediationStrategy, RetryLimit: ptr.To[int32](1), TimeoutSeconds: infrav1.DefaultTimeoutSeconds,
	}
	return request
}
