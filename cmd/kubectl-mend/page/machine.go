package page

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
)

// Machine explains a machine.
func Machine(ctx context.Context, a *inspect.Asker, key client.ObjectKey) (*Explanation, error) {
	m := &clusterv1.Machine{}
	if err := a.Reader().Get(ctx, key, m); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Machine %s in namespace %s", key.Name, key.Namespace)
	} else if err != nil {
		return nil, fmt.Errorf("read Machine %s: %w", key, err)
	}
	e := &Explanation{Subject: explain.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, At: a.Now}
	e.Is = factsOf(m)
	selected := func(c *clusterv1.MachineHealthCheck) bool {
		if c.Namespace != m.Namespace {
			return false
		}
		why := machinehealthcheck.Unselected(c, m)
		if why != "" && c.Spec.ClusterName == m.Spec.ClusterName {
			e.NotSelectedBy = append(e.NotSelectedBy, Unselected{explain.Ref{Kind: "MachineHealthCheck", Namespace: c.Namespace, Name: c.Name}, why})
		}
		return why == ""
	}
	checks, err := a.MachineChecks(ctx, selected)
	if err := e.without("MachineHealthChecks", err); err != nil {
		return nil, err
	}
	for _, c := range checks {
		e.Checks = append(e.Checks, About(c, func(t explain.Target) bool { return t.Name == m.Name }))
	}
	if node := ofMachine(ctx, a, m); node != nil {
		if err := nodeChecks(ctx, a, node, e); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(e.NotSelectedBy, func(a, b Unselected) int { return strings.Compare(a.String(), b.String()) })
	if e.Remediations, err = a.RemediationsOf(ctx, m); err != nil {
		return nil, err
	}
	e.Notes = append(notes(a), unseen(a, m, e.Checks)...)
	e.Conclude()
	return e, nil
}

// factsOf are what a machine belongs to.
func factsOf(m *clusterv1.Machine) []Fact {
	facts := []Fact{{"cluster", m.Spec.ClusterName}}
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, Fact{name, value})
		}
	}
	add("node", m.Status.NodeRef.Name)
	if owner := metav1.GetControllerOf(m); owner != nil {
		add("owner", owner.Kind+" "+owner.Name)
	}
	add("infrastructure", strings.TrimSpace(m.Spec.InfrastructureRef.Kind+" "+m.Spec.InfrastructureRef.Name))
	if !m.DeletionTimestamp.IsZero() {
		add("being deleted", "since "+m.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
	return facts
}

// unseen says where the answer may differ from the manager's, which has other rights than the user: the user cannot read the nodes.
func unseen(a *inspect.Asker, m *clusterv1.Machine, checks []Check) []string {
	why, _, is := a.World.Unseen(client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName})
	if !is || !slices.ContainsFunc(checks, func(c Check) bool { return len(c.Targets) > 0 }) {
		return nil // nobody would have looked at them
	}
	note := fmt.Sprintf("The nodes of cluster %s could not be read with your rights: %s. The answer is without them", m.Spec.ClusterName, why)
	if said := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition); said != nil {
		note += fmt.Sprintf("; the last word on the Machine is HealthCheckSucceeded=%s %s", said.Status, said.Reason)
		if said.Message != "" {
			note += ": " + strings.Join(strings.Fields(said.Message), " ")
		}
	}
	return []string{note}
}

// notes are what to know of every answer about a's world.
func notes(a *inspect.Asker) []string {
	var all []string
	if doubt := a.Managers.Doubt(); doubt != "" {
		all = append(all, doubt)
	}
	for _, missing := range a.World.Missing() {
		all = append(all, "Could not be read: "+missing.String())
	}
	return all
}
