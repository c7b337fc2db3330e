package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

func (o *Options) claim() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "claim"}
	return b.complete(o, &cobra.Command{
		Short: "Claim a MachineHealthCheck for kubemend, in place of Cluster API core",
		Long: "Claim a MachineHealthCheck by the annotation " + clusterv1.PausedAnnotation + ": " + mendv1.Claim + ", with which core " +
			"does not act on it. What core has started goes on. It is only claimed if a manager of kubemend runs that acts on it.\n\n" +
			"To have all checks of a Cluster claimed, also new ones, select it in a RemediationPolicy with mode Act.",
		Example: fmt.Sprintf("  %[1]s claim mhc/workers\n  %[1]s claim mhc workers -n metal --dry-run=server", o.Name),
	}, b.claimNamed, machineCheckKind)
}

func (o *Options) release() *cobra.Command {
	b := &byHand{IOStreams: o.IOStreams, verb: "release"}
	return b.complete(o, &cobra.Command{
		Short: "Release a MachineHealthCheck from kubemend to Cluster API core",
		Long: "Release a MachineHealthCheck by removing the annotation " + clusterv1.PausedAnnotation + ". What kubemend has started " +
			"goes on. It is only released if Cluster API core runs, and if no manager of kubemend would go on to act on it.",
		Example: fmt.Sprintf("  %[1]s release mhc/workers\n  %[1]s release mhc workers -n metal --yes", o.Name),
	}, b.claimNamed, machineCheckKind)
}

func (b *byHand) claimNamed(ctx context.Context, named subject) error {
	check := &clusterv1.MachineHealthCheck{}
	if err := page.Read(ctx, b.client, named.key(), check, string(machineCheckKind)); err != nil {
		return err
	}
	facts, key := &claimFacts{check: check}, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}
	cluster := &clusterv1.Cluster{}
	switch err := b.client.Get(ctx, key, cluster); {
	case err == nil:
		facts.cluster = cluster
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read Cluster %s: %w", key, err)
	}
	facts.managers, facts.unlisted = managerlease.Of(ctx, b.client, b.now)
	facts.withoutCore = b.withoutCore(ctx)
	decided := planClaim(facts, b.verb == "release")
	decided.done = strings.TrimSuffix(b.verb, "e") + "ed"
	decided.write = func(ctx context.Context) error {
		value := map[string]any{"claim": mendv1.Claim, "release": nil}[b.verb]
		return b.annotate(ctx, machineCheckKind, check, map[string]any{clusterv1.PausedAnnotation: value})
	}
	return b.carryOut(ctx, named, decided)
}

// The leader-election lease of Cluster API core (Cluster API, core/main.go), in the namespace where clusterctl installs core.
const (
	coreLeaseName = "controller-leader-election-capi"
	coreNamespace = "capi-system"
)

// claimFacts are what planClaim decides on.
type claimFacts struct {
	check *clusterv1.MachineHealthCheck
	// cluster is nil if the Cluster of the check does not exist.
	cluster  *clusterv1.Cluster
	managers []managerlease.Manager
	// unlisted is the error that may hide other managers of kubemend; nil if managers has all.
	unlisted error
	// withoutCore is why a check is not released to Cluster API core; empty while core runs.
	withoutCore string
}

// withoutCore returns why a check is not released to Cluster API core; empty while core runs. It reads the lease of core only in the
// namespace where clusterctl installs core, because a tenant can create a lease of that name in its own namespace.
func (b *byHand) withoutCore(ctx context.Context) string {
	lease, key := &coordinationv1.Lease{}, client.ObjectKey{Namespace: coreNamespace, Name: coreLeaseName}
	if err := b.client.Get(ctx, key, lease); err != nil {
		return unseen("Cluster API core runs", fmt.Sprintf("read the lease %s: %s", key, err))
	}
	ends := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	if ptr.Deref(lease.Spec.HolderIdentity, "") != "" { // not released
		ends = ends.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	}
	if b.now.Before(ends) {
		return ""
	}
	return "Cluster API core has not run since " + ends.UTC().Format(time.RFC3339) + ", so no controller would act on it"
}

// planClaim decides whether to claim or release a check. It refuses if it cannot see which controllers would act on the check afterwards.
func planClaim(facts *claimFacts, release bool) plan {
	value, paused := facts.check.Annotations[clusterv1.PausedAnnotation]
	claimed := paused && value == mendv1.Claim
	switch {
	case !facts.check.DeletionTimestamp.IsZero():
		return refuse("it is being deleted", "")
	case paused && !claimed:
		return refuse(fmt.Sprintf("it is paused: %s is %q, so neither Cluster API core nor kubemend acts on it. "+
			"Who paused it has to remove the annotation first", clusterv1.PausedAnnotation, value), "")
	case release && !claimed:
		return plan{outcome: staysSo, text: "is not claimed"}
	case !release && claimed:
		return plan{outcome: staysSo, text: "is claimed already"}
	}
	acting, offs, doubt := facts.whoActs()
	says, refused := "kubemend will act on it in place of Cluster API core", ""
	switch {
	case release:
		says, refused = "Cluster API core will act on it in place of kubemend", refuseRelease(facts, acting, doubt)
	case len(acting) > 0:
	case doubt != "":
		refused = unseen("a manager of kubemend acts on it", doubt)
	default:
		refused, _ = explain.NoManagerActs(facts.managers, offs)
	}
	if refused != "" {
		return refuse(explain.Clause(refused), "")
	}
	if appliers := explain.AppliersOf(facts.check); len(appliers) > 0 {
		says += fmt.Sprintf("; %s applies the check: see docs/gitops.md", strings.Join(appliers, " and "))
	}
	return plan{text: says}
}

// unseen returns why a change is refused if it cannot be read whether the clause what is true; why is the cause, such as an error.
func unseen(what, why string) string {
	return fmt.Sprintf("it is not known whether %s: %s. Run the command as a user who may read that, or set the annotation %s by hand",
		what, why, clusterv1.PausedAnnotation)
}

// whoActs returns the managers that act on the check, the Off of every manager, and why it is not known whether one more acts.
func (f *claimFacts) whoActs() (acting []managerlease.Manager, offs []managerlease.Off, doubt string) {
	for _, manager := range f.managers {
		off := manager.StandsOff(f.check, f.cluster)
		switch {
		case off.Reason == "":
			acting = append(acting, manager)
		case off.Unknown():
			doubt = off.Because
		}
		offs = append(offs, off)
	}
	if f.unlisted != nil && len(acting) == 0 { // a manager that could not be listed may act on the check
		doubt = f.unlisted.Error()
	}
	return acting, offs, doubt
}

// refuseRelease returns why the check is not released: two controllers would act on it afterwards, or none, or the manager would claim it
// again. It returns "" to allow the release.
func refuseRelease(facts *claimFacts, acting []managerlease.Manager, doubt string) string {
	if facts.check.Annotations[mendv1.ClaimedByAnnotation] != "" {
		return "a RemediationPolicy with mode Act claims it. Change or delete the policy, also in Git: kubemend then releases the check"
	}
	for _, manager := range acting {
		if manager.Announcement.Unclaimed == "act" {
			return fmt.Sprintf("kubemend's manager in %s acts on checks that are not claimed as well "+
				"(--unclaimed-machine-health-checks=act): both it and Cluster API core would act on this one", manager.Namespace)
		}
	}
	if facts.withoutCore == "" && doubt != "" {
		return unseen("a manager of kubemend acts on checks that are not claimed as well", doubt)
	}
	return facts.withoutCore
}
