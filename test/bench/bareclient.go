package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/machinestatus"
)

// The bare client writes as many machines at the same time as kubemend does for one check, within the defaults of --kube-api-qps and
// --kube-api-burst.
const (
	bareWriters = 32
	bareQPS     = 1000
	bareBurst   = 2000
)

// bareClient measures the least time that a first full pass can take: a client that already knows what to write writes it to the same API
// server. The contender has ended. What it wrote to the machines is removed first, so that the patches change them again.
func (t *trial) bareClient(ctx context.Context) error {
	t.end()
	writer, stop, err := t.bareWriter(ctx)
	if err != nil {
		return err
	}
	defer stop()
	list := &clusterv1.MachineList{}
	if err := t.managementClient.List(ctx, list); err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	judged := make([]clusterv1.MachineStatus, len(list.Items))
	for i := range list.Items {
		judged[i] = *list.Items[i].Status.DeepCopy()
		removeHealthCheck(&list.Items[i])
	}
	unjudged := t.machineWatch.all(len(list.Items), "")
	if err := patchConditions(ctx, writer, list.Items); err != nil {
		return err
	}
	if _, err := t.machineWatch.await(ctx, unjudged); err != nil {
		return err
	}
	for i := range list.Items {
		list.Items[i].Status = judged[i]
	}
	before, err := t.serverCPU(ctx)
	if err != nil {
		return err
	}
	done, since := t.machineWatch.all(len(list.Items), succeeded), time.Now()
	if err := patchConditions(ctx, writer, list.Items); err != nil {
		return err
	}
	at, err := t.machineWatch.await(ctx, done)
	if err != nil {
		return err
	}
	after, err := t.serverCPU(ctx)
	if err != nil {
		return err
	}
	t.figures[bareTime] = at.Sub(since).Seconds()
	t.figures[bareServer] = after - before
	t.figures[firstPassRatio] = t.figures[firstFullPass] / t.figures[bareTime]
	return nil
}

// bareWriter is a client with a connection of its own, as a contender has, over which it also watches the machines, as a contender does.
func (t *trial) bareWriter(ctx context.Context) (_ client.Client, stop func(), err error) {
	config := t.management.Config()
	config.QPS, config.Burst = bareQPS, bareBurst
	config.Dial = (&net.Dialer{}).DialContext // clients with the same configuration would share a connection
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make the bare client: %w", err)
	}
	writer, err := client.New(config, client.Options{HTTPClient: http, Scheme: t.managementClient.Scheme()})
	if err != nil {
		return nil, nil, fmt.Errorf("make the bare client: %w", err)
	}
	events, err := watchMachines(ctx, http, config.Host)
	if err != nil {
		return nil, nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, events) }() // until it is closed
	return writer, func() { _ = events.Close() }, nil
}

// patchConditions writes the conditions of all machines.
func patchConditions(ctx context.Context, c client.Client, machines []clusterv1.Machine) error {
	var group errgroup.Group
	group.SetLimit(bareWriters)
	for i := range machines {
		m := &machines[i]
		group.Go(func() error {
			if err := machinestatus.PatchConditions(ctx, c, m); err != nil {
				return fmt.Errorf("write the conditions of machine %s: %w", m.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// removeHealthCheck removes from m the condition that every machine gets in a first full pass.
func removeHealthCheck(m *clusterv1.Machine) {
	m.Status.Conditions = slices.DeleteFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == clusterv1.MachineHealthCheckSucceededCondition
	})
	m.SetV1Beta1Conditions(slices.DeleteFunc(m.GetV1Beta1Conditions(), func(c clusterv1.Condition) bool {
		return c.Type == clusterv1.MachineHealthCheckSucceededV1Beta1Condition
	}))
}
