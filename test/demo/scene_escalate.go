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

// openingNodes makes the check and the templates of its two remedies.
func openingNodes(ctx context.Context, s *stage) error {
	s.narrator.heading("The check: templates/"+nodeCheckTemplate,
		"NodeHealthChecks watch the nodes of the API server that they are in, so this cluster manages itself: its Machines and its Nodes are objects "+
			"of one API server. A worker that is Unknown for "+nodeTimeout.String()+" is unhealthy. Then the agent on the node is asked, by a "+
			"SelfNodeRemediation; if that fails, or after a minute, the host of the node's Machine is power-cycled, by a HostRemediation. "+
			"Nothing begins while fewer than 51% of the workers are healthy, nor within "+cooldown.String()+" after that. "+
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
		expectation{text: "the check finds its templates", within: reactsWithin, fact: checkEnabled},
		allHealthy(reactsWithin),
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

// escalate: what is tried first fails, and the next remedy brings the node back. Then too many nodes fall silent, and nothing new begins.
func escalate(ctx context.Context, s *stage) error {
	s.narrator.heading("Scene escalate: a node hangs so badly that its own agent cannot help",
		"The first remedy says that it has failed, so it is the second one's turn at once, and not only after the minute that the first one has.")
	names, err := s.workerNames(ctx, 3)
	if err != nil {
		return err
	}
	before, err := s.trace(ctx, names[0])
	if err != nil {
		return err
	}
	s.narrator.countFrom(s.begin())
	if err := s.eachKubelet([]string{before.machine}, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("hangs the kubelet of Node %s, on BareMetalHost %s; its power is on", before.machine, before.host.Key().Name))
	for _, part := range []func(context.Context, trace) error{
		s.agentTried, s.hostTried, s.poweredOff, s.poweredOn, s.nodeCured, s.nothingIsLeft, s.nodeIsFree,
	} {
		if err := part(ctx, before); err != nil {
			return err
		}
	}
	return s.tooManyNodes(ctx, names)
}

// agentTried expects the first remedy to be asked for, under the node's lease, and to fail.
func (s *stage) agentTried(ctx context.Context, of trace) error {
	each := []string{of.machine}
	if err := s.inAnyOrder(ctx,
		expectation{text: "the Node becomes Unknown", within: reactsWithin, fact: nodeUnknown, each: each},
		expectation{text: "kubemend suspects the node, and says until when", within: reactsWithin, fact: suspected},
	); err != nil {
		return err
	}
	if err := s.inAnyOrder(ctx,
		expectation{text: "the node's lease is taken", within: reactsWithin, fact: leaseTaken, each: each},
		expectation{text: "the agent is asked", within: reactsWithin, fact: agentRequest, each: each},
	); err != nil {
		return err
	}
	return s.inOrder(ctx,
		expectation{text: "the agent's remediator is at work", within: reactsWithin, fact: agentWorks, each: each},
		expectation{text: "the agent's remediator fails", within: reactsWithin, fact: agentFailed, each: each},
	)
}

// beforeItsTime is well before the first remedy's minute is over.
const beforeItsTime = 20 * time.Second

// hostTried expects the first remedy to be told to stop, and the next one to be asked for and to begin.
func (s *stage) hostTried(ctx context.Context, of trace) error {
	each, back := []string{of.machine}, s.rewind()
	err := s.inAnyOrder(ctx,
		expectation{text: "the first remedy is given up", within: beforeItsTime, fact: agentTold, each: each},
		expectation{
			text: "the check makes a HostRemediation", within: beforeItsTime, fact: requestMade, each: each,
			where: func(seen sighting) bool { return seen.by == kubemendNodes },
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
	s.narrator.line(time.Now(), demo, "has looked: it is named after the Machine, and the Machine owns it together with the NodeHealthCheck")
	return nil
}

// nodeCured expects the node to be Ready, and everything that was done for it to be taken back.
func (s *stage) nodeCured(ctx context.Context, of trace) error {
	each := []string{of.machine}
	return s.inAnyOrder(ctx,
		expectation{text: "the Node is Ready", within: reactsWithin, fact: nodeReady, each: each},
		expectation{text: "the first request is gone", within: reactsWithin, fact: agentFree, each: each},
		expectation{text: "the second request is gone", within: reactsWithin, fact: requestGone, each: each},
		expectation{text: "the node's lease is given back", within: reactsWithin, fact: leaseGone, each: each},
		allHealthy(reactsWithin),
	)
}

// nodeIsFree looks at what a NodeHealthCheck leaves behind.
func (s *stage) nodeIsFree(ctx context.Context, of trace) error {
	asked := &unstructured.UnstructuredList{}
	asked.SetGroupVersionKind(selfNodeRemediation)
	leases := &coordinationv1.LeaseList{}
	check := &nhcv1.NodeHealthCheck{}
	if err := s.here.List(ctx, asked); err != nil {
		return fmt.Errorf("look for requests that are left: %w", err)
	}
	if err := s.here.List(ctx, leases, client.InNamespace(nhcv1.DefaultLeaseNamespace)); err != nil {
		return fmt.Errorf("look for leases that are left: %w", err)
	}
	if err := s.here.Get(ctx, client.ObjectKey{Name: nodeCheckName}, check); err != nil {
		return fmt.Errorf("read NodeHealthCheck %s: %w", nodeCheckName, err)
	}
	if len(asked.Items)+len(leases.Items)+len(check.Status.UnhealthyNodes) > 0 {
		return fmt.Errorf("%d SelfNodeRemediations and %d leases are left of node %s, and the check speaks of %d nodes",
			len(asked.Items), len(leases.Items), of.machine, len(check.Status.UnhealthyNodes))
	}
	s.narrator.line(time.Now(), demo, "has looked: no SelfNodeRemediation and no lease is left, and the check speaks of no node any more")
	return nil
}

// tooManyNodes: three of five fall silent, so the fault must be elsewhere.
func (s *stage) tooManyNodes(ctx context.Context, lost []string) error {
	s.narrator.note("\nNow three nodes fall silent at once, so that fewer than 51%% are healthy. Times count from here.\n")
	s.narrator.countFrom(s.begin())
	from := s.cursor
	if err := s.eachKubelet(lost, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("stops the kubelets of Nodes %s, %s and %s", lost[0], lost[1], lost[2]))
	if err := s.inAnyOrder(ctx,
		expectation{text: "the Nodes become Unknown", within: reactsWithin, fact: nodeUnknown, each: lost},
		expectation{
			text: "the check counts three unhealthy nodes, which are too many", within: reactsWithin, fact: shortCircuited,
			where: func(seen sighting) bool { return strings.Contains(seen.text, "2 healthy, 3 unhealthy") },
		},
		expectation{text: "the event RemediationSkipped", within: reactsWithin, fact: restrictedEvent},
	); err != nil {
		return err
	}
	if err := s.never(ctx, from, watched, agentRequest, requestMade, leaseTaken, offAsked, handedOver, machineDeleting); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, fmt.Sprintf("has watched for %s: nobody was asked for anything, and no lease was taken", watched))
	if err := s.eachKubelet(lost, (*simulator.Kubelet).Start); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo, "starts the three kubelets again")
	if err := s.inAnyOrder(ctx,
		expectation{text: "the Nodes are Ready again", within: reactsWithin, fact: nodeReady, each: lost},
		expectation{
			text: "the check waits for the last ones, although enough nodes are healthy", within: reactsWithin, fact: shortCircuited,
			where: func(seen sighting) bool { return strings.Contains(seen.text, nhcv1.StormReason) },
		},
		expectation{text: "remediation is allowed again", within: reactsWithin, fact: allowedAgain},
		allHealthy(reactsWithin),
	); err != nil {
		return err
	}
	return s.never(ctx, from, 0, agentRequest, requestMade, leaseTaken, offAsked)
}
