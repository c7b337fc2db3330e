package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// The lease by which the replicas of Cluster API core agree who acts (Cluster API, core/main.go), where clusterctl puts core.
const (
	coreLeaseName = "controller-leader-election-capi"
	coreNamespace = "capi-system"
)

// refusal is why a check stays as it is; empty if it does not. An unsure one is due to what the user may not see.
type refusal struct {
	text   string
	unsure bool
}

// controllers are what is known of those that could act on a check.
type controllers struct {
	managers []managerlease.Manager
	// unlisted is why there may be other managers of kubemend; nil if there are none.
	unlisted error
	// core is why Cluster API core would not act on a check that is released; empty while it runs.
	core refusal
}

// claimFacts are what the rules see of one check.
type claimFacts struct {
	controllers

	check *clusterv1.MachineHealthCheck
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	// labelled is the object whose label claims the check, such as "Cluster prod"; empty if there is none.
	labelled string
}

// controllers reads who runs, by the leases. Core's counts only in the namespace where clusterctl installs it: a tenant can create one
// anywhere else.
func (h *claimCommand) controllers(ctx context.Context) controllers {
	var found controllers
	if found.managers, found.unlisted = managerlease.Of(ctx, h.client, h.now); found.unlisted != nil {
		if one, err := managerlease.In(ctx, h.client, managerlease.UsualNamespace, h.now); err == nil && one != nil {
			found.managers = []managerlease.Manager{*one}
		}
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: coreNamespace, Name: coreLeaseName}
	if err := h.client.Get(ctx, key, lease); err != nil {
		found.core = refusal{fmt.Sprintf("it cannot be seen whether Cluster API core runs: read the lease %s: %s", key, err), true}
		return found
	}
	ends := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	if ptr.Deref(lease.Spec.HolderIdentity, "") != "" { // not given back
		ends = ends.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	}
	if !h.now.Before(ends) {
		found.core.text = "Cluster API core has not run since " + ends.UTC().Format(time.RFC3339) + ", so no controller would act on it"
	}
	return found
}

// factsOf reads what the rules need to know of a check. A Namespace that may not be read counts as one without the label: if it has one,
// the manager claims the check again.
func (h *claimCommand) factsOf(ctx context.Context, check *clusterv1.MachineHealthCheck, found controllers) (*claimFacts, error) {
	facts := &claimFacts{controllers: found, check: check, cluster: &clusterv1.Cluster{}}
	key := client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}
	if err := h.client.Get(ctx, key, facts.cluster); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Cluster %s: %w", key, err)
	} else if err != nil {
		facts.cluster = nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	_ = h.client.Get(ctx, client.ObjectKey{Name: check.Namespace}, namespace)
	switch {
	case facts.cluster != nil && facts.cluster.Labels[mendv1.ClaimLabel] == mendv1.ClaimLabelAct:
		facts.labelled = "Cluster " + key.Name
	case namespace.Labels[mendv1.ClaimLabel] == mendv1.ClaimLabelAct:
		facts.labelled = "Namespace " + check.Namespace
	}
	return facts, nil
}

// plan is what becomes of a check. --force overrides a refusal that is for what could not be seen.
func (h *claimCommand) plan(facts *claimFacts) plan {
	value, paused := facts.check.Annotations[clusterv1.PausedAnnotation]
	claimed := paused && value == mendv1.Claim
	switch {
	case !facts.check.DeletionTimestamp.IsZero():
		return plan{refuses, "it is being deleted"}
	case paused && !claimed:
		return plan{refuses, fmt.Sprintf("it is paused: %s is %q, so neither Cluster API core nor kubemend acts on it. "+
			"Who paused it has to remove the annotation first", clusterv1.PausedAnnotation, value)}
	case h.release && !claimed:
		return plan{staysSo, "is not claimed"}
	case !h.release && claimed:
		return plan{staysSo, "is claimed already"}
	}
	says, refused := "kubemend will act on it in place of Cluster API core", refuseClaim(facts)
	if h.release {
		says, refused = "Cluster API core will act on it in place of kubemend", refuseRelease(facts)
	}
	switch {
	case refused.text == "":
	case !refused.unsure:
		return plan{refuses, refused.text}
	case !h.force:
		return plan{refuses, refused.text + "; --force goes on all the same"}
	default:
		says += "; " + refused.text
	}
	parts := []string{says}
	for _, applier := range explain.AppliersOf(facts.check) {
		parts = append(parts, fmt.Sprintf("%s applies the check: see docs/gitops.md", applier))
	}
	return plan{changes, strings.Join(parts, "; ")}
}

// refuseClaim refuses to claim a check on which no controller would act then.
func refuseClaim(facts *claimFacts) refusal {
	unsure := len(facts.managers) == 0 // a manager outside of the cluster may be unable to write a lease
	offs := make([]managerlease.Off, 0, len(facts.managers))
	for _, manager := range facts.managers {
		off := manager.StandsOff(facts.check, facts.cluster)
		if off.Reason == "" {
			return refusal{}
		}
		offs = append(offs, off)
		unsure = unsure || off.Unknown()
	}
	if facts.unlisted != nil {
		return refusal{"it cannot be seen whether a manager of kubemend would act on it: " + facts.unlisted.Error(), true}
	}
	because, _ := explain.NoManagerActs(facts.managers, offs)
	return refusal{explain.Clause(because), unsure}
}

// refuseRelease refuses to release a check that two controllers would act on then, or none, or that the manager would claim again.
func refuseRelease(facts *claimFacts) refusal {
	if facts.labelled != "" {
		return refusal{text: fmt.Sprintf("%s has the label %s: %s, so kubemend would claim it again at once: remove the label, in Git too",
			facts.labelled, mendv1.ClaimLabel, mendv1.ClaimLabelAct)}
	}
	var unseen []string
	acts := false
	for _, manager := range facts.managers {
		off := manager.StandsOff(facts.check, facts.cluster)
		switch {
		case off.Reason == "" && manager.Announcement.Unclaimed == "act":
			return refusal{text: fmt.Sprintf("kubemend's manager in %s acts on checks that are not claimed as well "+
				"(--unclaimed-machine-health-checks=act): both it and Cluster API core would act on this one", manager.Namespace)}
		case off.Reason == "":
			acts = true
		case off.Unknown():
			because, _ := explain.NoManagerActs(nil, []managerlease.Off{off})
			unseen = append(unseen, explain.Clause(because))
		}
	}
	if facts.unlisted != nil && !acts { // the one that acts may be among those that are not seen
		unseen = append(unseen, facts.unlisted.Error())
	}
	if facts.core.text != "" || len(unseen) == 0 {
		return facts.core
	}
	const says = "it cannot be seen whether a manager of kubemend acts on checks that are not claimed as well: "
	return refusal{says + strings.Join(unseen, "; "), true}
}
