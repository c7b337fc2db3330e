package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/simulator"
)

const (
	workload       = "database" // a Deployment of one pod with a volume that only one node at a time can attach
	rebootTemplate = "host-remediation-template.yaml"
	rebootingCheck = "machine-health-check-workers-host-remediation.yaml"
	attemptSeconds = "100" // the shortest that the API allows
	claimNamespace = "default"
)

// reboot: a kubelet hangs, and kubemend power-cycles its host instead of replacing the machine.
func reboot(ctx context.Context, s *environment) error {
	s.narrator.heading("Scene reboot: a kubelet hangs, and its host is power-cycled",
		"The same check, now with a template: templates/"+rebootingCheck+" and templates/"+rebootTemplate+". An unhealthy machine is not "+
			"replaced, but its host is power-cycled, and its workload moves to another node meanwhile. kubemend (check) is the "+
			"controller of MachineHealthChecks, kubemend (host) that of HostRemediations.")
	s.narrator.countFrom(s.begin())
	lost, err := s.startWorkload(ctx)
	if err != nil {
		return err
	}
	if err := s.checkReboots(ctx); err != nil {
		return err
	}
	before, err := s.origin(ctx, lost)
	if err != nil {
		return err
	}
	s.narrator.note("\nNow the failure. Times count from here.\n")
	s.narrator.countFrom(s.begin())
	if err := s.eachKubelet([]string{lost}, (*simulator.Kubelet).Stop); err != nil {
		return err
	}
	s.narrator.line(time.Now(), demo,
		fmt.Sprintf("stops the kubelet of Machine %s, on BareMetalHost %s; its power stays on", lost, before.host.Key().Name))
	for _, part := range []func(context.Context, origin) error{s.requested, s.poweredOff, s.moved, s.nothingIsLeft} {
		if err := part(ctx, before); err != nil {
			return err
		}
	}
	return nil
}

// origin is the state of a machine before the scene, for comparison afterwards.
type origin struct {
	machine string
	uid     types.UID
	host    *simulator.Host
	at      time.Time
}

func (s *environment) origin(ctx context.Context, machine string) (origin, error) {
	object, err := s.machine(ctx, machine)
	if err != nil {
		return origin{}, err
	}
	host, err := s.host(machine)
	return origin{machine: machine, uid: object.UID, host: host, at: time.Now()}, err
}

// startWorkload starts one pod with a volume, and returns its node.
func (s *environment) startWorkload(ctx context.Context) (string, error) {
	objects := append(builders.Volume(claimNamespace, workload),
		builders.Deployment(claimNamespace, workload, 1, builders.WithVolume(workload)))
	if err := builders.Apply(ctx, s.here, objects...); err != nil {
		return "", err
	}
	s.narrator.line(time.Now(), demo,
		fmt.Sprintf("applies Deployment %s: one Pod with a volume that only one Node at a time can attach", workload))
	var node string
	err := s.inAnyOrder(ctx,
		expectation{fact: volumeAttached},
		expectation{fact: podRuns, where: func(seen observation) bool {
			node = seen.about
			return true
		}},
	)
	return node, err
}

// checkReboots gives the check a template, and waits until the check uses it.
func (s *environment) checkReboots(ctx context.Context) error {
	template, err := builders.Template(rebootTemplate, map[string]string{
		"CLUSTER_NAME": clusterName, "TIMEOUT_SECONDS": attemptSeconds, "BOOT_TIMEOUT_SECONDS": attemptSeconds,
	})
	if err != nil {
		return err
	}
	check, err := builders.Template(rebootingCheck,
		map[string]string{"CLUSTER_NAME": clusterName, "NODE_UNHEALTHY_TIMEOUT": nodeTimeout.String()})
	if err != nil {
		return err
	}
	if err := builders.Apply(ctx, s.here, template, check); err != nil {
		return err
	}
	return s.inOrder(ctx, expectation{fact: templateUsed})
}

// requested expects the machine to be unhealthy, and a remediation with a first attempt.
func (s *environment) requested(ctx context.Context, lost origin) error {
	each := []string{lost.machine}
	if err := s.inAnyOrder(ctx, // two watches observe these, and either may be late
		expectation{fact: nodeUnknown, each: each},
		expectation{fact: pendingFact, each: each},
	); err != nil {
		return err
	}
	defer s.rewind()() // the host is asked to be off before the status of the remediation says that the attempt has begun
	return s.inAnyOrder(ctx,
		expectation{fact: machineFailed, each: each, where: func(seen observation) bool { return seen.by == kubemend }},
		expectation{fact: requestMade, each: each, where: func(seen observation) bool { return seen.by == kubemend }},
		expectation{fact: attemptBegun, each: each},
	)
}

// poweredOff expects the host to be off and its node to be fenced. It cannot check the order, because two watches observe these changes,
// and either may be late.
func (s *environment) poweredOff(ctx context.Context, lost origin) error {
	host := []string{lost.host.Key().Name}
	if err := s.inOrder(ctx, expectation{fact: offAsked, each: host}); err != nil {
		return err
	}
	return s.inAnyOrder(ctx,
		expectation{fact: hostOff, each: host},
		expectation{fact: nodeFenced, each: []string{lost.machine}},
	)
}

// moved expects the pod to end. After that, in any order, the host comes back and a new pod runs on another node.
func (s *environment) moved(ctx context.Context, lost origin) error {
	each := []string{lost.machine}
	theirs := func(seen observation) bool { return seen.by == controllerManager }
	if err := s.inAnyOrder(ctx,
		expectation{fact: podEvicted, each: each, where: theirs},
		expectation{fact: podGone, each: each, where: theirs},
		expectation{fact: volumeToDetach, each: each, where: theirs},
		expectation{fact: volumeDetached, each: each},
	); err != nil {
		return err
	}
	back := s.rewind()
	if err := s.poweredOn(ctx, lost); err != nil {
		return err
	}
	if err := s.recovers(ctx, lost.machine); err != nil {
		return err
	}
	back()
	other := func(seen observation) bool { return seen.about != lost.machine }
	return s.inAnyOrder(ctx,
		expectation{fact: workloadMoved, each: each},
		expectation{fact: volumeAttached, where: other},
		expectation{fact: podRuns, where: other},
	)
}

// poweredOn expects the host to be released and on, and the taint to be removed.
func (s *environment) poweredOn(ctx context.Context, lost origin) error {
	host, each := []string{lost.host.Key().Name}, []string{lost.machine}
	if err := s.inOrder(ctx, expectation{fact: onAsked, each: host}); err != nil {
		return err
	}
	defer s.rewind()() // the kubelet may start before the taint is removed
	// The taint is removed after the host is on, but two watches observe these changes, and either may be late.
	return s.inAnyOrder(ctx,
		expectation{fact: hostOn, each: host},
		expectation{fact: nodeUnfenced, each: each},
		expectation{fact: bootAwaited, each: each},
	)
}

// recovers expects the node to be Ready, the machine to be healthy, and the HostRemediation to be deleted.
func (s *environment) recovers(ctx context.Context, lost string) error {
	each := []string{lost}
	return s.inAnyOrder(ctx,
		expectation{fact: nodeReady, each: each},
		expectation{fact: machineHealthy, each: each},
		expectation{fact: requestGone, each: each},
		allHealthy(),
	)
}

// nothingIsLeft expects the same Machine, one power cycle, and no trace of it on the objects.
func (s *environment) nothingIsLeft(ctx context.Context, before origin) error {
	machine, err := s.machine(ctx, before.machine)
	if err != nil {
		return err
	}
	if machine.UID != before.uid {
		return fmt.Errorf("machine %s was replaced, although its host was power-cycled", before.machine)
	}
	if changes := before.host.History().Since(before.at); len(changes) != 2 {
		return fmt.Errorf("the power of host %s changed %d times, and not off and on", before.host.Key().Name, len(changes))
	}
	host := &bmov1alpha1.BareMetalHost{}
	if err := s.here.Get(ctx, before.host.Key(), host); err != nil {
		return fmt.Errorf("read host %s: %w", before.host.Key().Name, err)
	}
	for left := range host.Annotations {
		for _, prefix := range []string{"kubemend.io/", infrav1.RebootAnnotation, infrav1.UnhealthyAnnotation,
			infrav1.LegacyUnhealthyAnnotation} {
			if strings.HasPrefix(left, prefix) {
				return fmt.Errorf("host %s still has the annotation %s", host.Name, left)
			}
		}
	}
	requests := &mendv1.HostRemediationList{}
	if err := s.here.List(ctx, requests); err != nil {
		return fmt.Errorf("list HostRemediations: %w", err)
	}
	if len(requests.Items) > 0 {
		return fmt.Errorf("%d HostRemediations are left", len(requests.Items))
	}
	node := &corev1.Node{}
	if err := s.here.Get(ctx, client.ObjectKey{Name: before.machine}, node); err != nil {
		return fmt.Errorf("read node %s: %w", before.machine, err)
	}
	if _, signed := node.Annotations[fence.FencedByAnnotation]; signed || outOfService(node) {
		return fmt.Errorf("node %s is still fenced", before.machine)
	}
	s.narrator.line(time.Now(), demo,
		"verified: the same Machine is on the same host, which was powered off and on once; no annotation, taint or request is left")
	return nil
}
