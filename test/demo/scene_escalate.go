package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

const (
	nodeCheckTemplate = "node-health-check-workers-escalating.yaml"
	nodeCheckName     = clusterName + "-workers"
)

// cooldown is how long the check waits after too few nodes were healthy: long enough for all of them to be seen to be back.
const cooldown = 6 * time.Second

// openingNodes makes the check and the templates of its two steps.
func openingNodes(ctx context.Context, s *environment) error {
	s.narrator.heading("The check: templates/"+nodeCheckTemplate,
		"NodeHealthChecks watch the nodes of the API server that they are in, so this cluster manages itself: its Machines and its Nodes are objects "+
			"of one API server. A worker that is Unknown for "+nodeTimeout.String()+" is unhealthy. Then kubemend requests "+
			"that the agent on the node reboots it, by a SelfNodeRemediation; if that fails, or after a minute, "+
			"that the host of the node's Machine is power-cycled, by a HostRemediation. "+
			"No remediation starts while fewer than 51% of the workers are healthy, and for "+cooldown.String()+" afterwards. "+
			"kubemend (nodes) is the controller of NodeHealthChecks, kubemend (host) that of HostRemediations.")
	s.narrator.countFrom(s.begin())
	reboots, err := builders.Template(rebootTemplate, map[string]string{"CLUSTER_NAME": clusterName, "TIMEOUT_SECONDS": attemptSeconds})
	if err != nil {
		return err
	}
	check, err := builders.Template(nodeCheckTemplate, map[string]string{
		"CLUSTER_NAME": clusterName, "NODE_UNHEALTHY_TIMEOUT": nodeTimeout.String(), "SELF_NODE_REMEDIATION_TIMEOUT": "1m",
		"STORM_COOLDOWN": cooldown.String(),
	})
	if err != nil {
		return err
	}
	if err := builders.Apply(ctx, s.here, reboots, agentTemplate(), check); err != nil {
		return err
	}
	return s.inAnyOrder(ctx,
		expectation{text: "the check finds its templates", fact: checkEnabled},
		allHealthy(),
	)
}

// agentTemplate is the one that Self Node Remediation brings along.
func agentTemplate() *unstructured.Unstructured {
	template := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"remediationStrategy": "Automatic"}}},
	}}
	template.SetGroupVersionKind(selfNodeRemediation.GroupVersion().WithKind(selfNodeRemediation.Kind + "Template"))
	template.SetNamespace(namespace)
	template.SetName("self-node-remediation-automatic-strategy-template")
	return template
}

// escalate: the first step fails, and the next one brings the node back. Then too many nodes fall silent, and nothing new starts.
func escalate(ctx context.Context, s *environment) error {
	s.narrator.heading("Scene escalate: a node hangs so badly that its own agent cannot help",
		"The first step reports that it has failed, so the second one starts at once, without waiting for the first one's timeout of a minute.")
	names, err := s.workerNames(ctx, 3)
	if err != nil {
		return err
	}
	before, err := s.origin(ctx, names[0])
	if err != nil {
		return err
	}
	s.narrator.countFrom(s.begin())
	if err := s.eachKubelet([]string{before.machine}, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("stops the kubelet of Node %s, on BareMetalHost %s; its power stays on",
		before.machine, before.host.Key().Name))
	for _, part := range []func(context.Context, origin) error{
		s.agentTried, s.hostTried, s.poweredOff, s.poweredOn, s.nodeRecovers, s.nothingIsLeft, s.nodeIsFree,
	} {
		if err := part(ctx, before); err != nil {
			return err
		}
	}
	return s.tooManyNodes(ctx, names)
}

// agentTried expects the first step to be requested, under the node's lease, and to fail.
func (s *environment) agentTried(ctx context.Context, of origin) error {
	each := []string{of.machine}
	if err := s.inAnyOrder(ctx,
		expectation{text: "the Node becomes Unknown", fact: nodeUnknown, each: each},
		expectation{text: "the node is pending, and kubemend says until when", fact: pendingFact},
	); err != nil {
		return err
	}
	if err := s.inAnyOrder(ctx,
		expectation{text: "the node's lease is taken", fact: leaseTaken, each: each},
		expectation{text: "the agent's remediation is requested", fact: agentRequest, each: each},
	); err != nil {
		return err
	}
	return s.inOrder(ctx,
		expectation{text: "the agent's remediator is at work", fact: agentWorks, each: each},
		expectation{text: "the agent's remediator fails", fact: agentFailed, each: each},
	)
}

// beforeItsTime is less than the first step's timeout, which is a minute.
const beforeItsTime = 40 * time.Second

// hostTried expects the first step to be stopped, and the next one to be requested and to start.
func (s *environment) hostTried(ctx context.Context, of origin) error {
	each, back := []string{of.machine}, s.rewind()
	err := s.inAnyOrder(ctx,
		expectation{text: "the first step is stopped", within: beforeItsTime, fact: agentStopped, each: each},
		expectation{
			text: "the check makes a HostRemediation", within: beforeItsTime, fact: requestMade, each: each,
			where: func(seen observation) bool { return seen.by == kubemendNodes },
		},
		s.attempt(1, beforeItsTime, of.machine),
	)
	if err != nil {
		return err
	}
	back() // the host is asked to be off before the remediation says that its attempt has begun
	asked := &mendv1.HostRemediation{}
	if err := s.here.Get(ctx, client.ObjectKey{Namespace: namespace, Name: of.machine}, asked); err != nil {
		return fmt.Errorf("read HostRemediation %s: %w", of.machine, err)
	}
	for _, kind := range []string{"Machine", "NodeHealthCheck"} {
		if !slices.ContainsFunc(asked.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == kind }) {
			return fmt.Errorf("HostRemediation %s is not owned by a %s", asked.Name, kind)
		}
	}
	s.narrator.line(time.Now(), demo, "verified: the HostRemediation is named after the Machine, and Machine and NodeHealthCheck own it")
	return nil
}

// nodeRecovers expects the node to be Ready, and everything that was done for it to be removed.
func (s *environment) nodeRecovers(ctx context.Context, of origin) error {
	each := []string{of.machine}
	return s.inAnyOrder(ctx,
		expectation{text: "the Node is Ready", fact: nodeReady, each: each},
		expectation{text: "the first request is gone", fact: agentRequestGone, each: each},
		expectation{text: "the second request is gone", fact: requestGone, each: each},
		expectation{text: "the node's lease is deleted", fact: leaseGone, each: each},
		allHealthy(),
	)
}

// nodeIsFree checks that a NodeHealthCheck orphans nothing.
func (s *environment) nodeIsFree(ctx context.Context, of origin) error {
	asked := &unstructured.UnstructuredList{}
	asked.SetGroupVersionKind(selfNodeRemediation)
	leases := &coordinationv1.LeaseList{}
	check := &nhcv1.NodeHealthCheck{}
	if err := s.here.List(ctx, asked); err != nil {
		return fmt.Errorf("list SelfNodeRemediations: %w", err)
	}
	if err := s.here.List(ctx, leases, client.InNamespace(nhcv1.DefaultLeaseNamespace)); err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	if err := s.here.Get(ctx, client.ObjectKey{Name: nodeCheckName}, check); err != nil {
		return fmt.Errorf("read NodeHealthCheck %s: %w", nodeCheckName, err)
	}
	if len(asked.Items)+len(leases.Items)+len(check.Status.UnhealthyNodes) > 0 {
		return fmt.Errorf("%d SelfNodeRemediations and %d leases are left of node %s, and the check lists %d unhealthy nodes",
			len(asked.Items), len(leases.Items), of.machine, len(check.Status.UnhealthyNodes))
	}
	s.narrator.line(time.Now(), demo, "verified: no SelfNodeRemediation and no lease is left, and the check lists no unhealthy node")
	return nil
}

// tooManyNodes: three of five fall silent, so the fault must be elsewhere.
func (s *environment) tooManyNodes(ctx context.Context, lost []string) error {
	s.narrator.note("\nNow three nodes fall silent at once, so that fewer than 51%% are healthy. Times count from here.\n")
	s.narrator.countFrom(s.begin())
	from := s.cursor
	if err := s.eachKubelet(lost, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("stops the kubelets of Nodes %s, %s and %s", lost[0], lost[1], lost[2]))
	if err := s.inAnyOrder(ctx,
		expectation{text: "the Nodes become Unknown", fact: nodeUnknown, each: lost},
		expectation{
			text: "the check counts three unhealthy nodes, which are too many", fact: shortCircuited,
			where: func(seen observation) bool { return strings.Contains(seen.text, "2 healthy, 3 unhealthy") },
		},
		expectation{text: "the event RemediationSkipped", fact: restrictedEvent},
	); err != nil {
		return err
	}
	if err := s.never(ctx, from, watched, agentRequest, requestMade, leaseTaken, offAsked, ownerRequested, machineDeleting); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("verified for %s: no remediation was requested, and no lease was taken", watched))
	if err := s.eachKubelet(lost, (*simulator.Kubelet).Start); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "starts the three kubelets again")
	if err := s.inAnyOrder(ctx,
		expectation{text: "the Nodes are Ready again", fact: nodeReady, each: lost},
		expectation{
			text: "the check waits for the last ones, although enough nodes are healthy", fact: shortCircuited,
			where: func(seen observation) bool { return strings.Contains(seen.text, nhcv1.StormReason) },
		},
		expectation{text: "remediation is allowed again", fact: allowedAgain},
		allHealthy(),
	); err != nil {
		return err
	}
	return s.never(ctx, from, 0, agentRequest, requestMade, leaseTaken, offAsked)
}
