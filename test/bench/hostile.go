package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/hostile"
	"github.com/kubemend/kubemend/test/rig"
)

// hostileScale is how much is measured beside hostile API servers.
type hostileScale struct {
	size   size
	checks int // of each hostile cluster
	scale  scale
}

func hostileScaleOf(quick bool) hostileScale {
	if quick {
		return hostileScale{size{200, 4}, 5, scale{spread: 20, spreadOver: 10 * time.Second, idle: 5 * time.Second}}
	}
	return hostileScale{size{1000, 50}, 20, scale{spread: 500, spreadOver: 2 * time.Minute, idle: 20 * time.Second}}
}

// hostileResults are what was measured with healthy clusters alone, and with hostile ones beside them.
type hostileResults struct {
	hostileScale
	alone, beside figures
}

// measureHostile measures the same twice, each time on new control planes.
func (r *report) measureHostile(ctx context.Context, binaries map[string]string) error {
	r.hostile.hostileScale = hostileScaleOf(r.settings.quick)
	var err error
	if r.hostile.alone, err = r.hostile.measure(ctx, r.settings, binaries); err != nil {
		return fmt.Errorf("measure %s: %w", r.hostile.size.title(), err)
	}
	names := slices.Sorted(maps.Keys(hostile.Hostilities))
	if r.hostile.beside, err = r.hostile.measure(ctx, r.settings, binaries, names...); err != nil {
		return fmt.Errorf("measure %s beside hostile ones: %w", r.hostile.size.title(), err)
	}
	return nil
}

// measure makes changes at even intervals, and watches the memory from the start to the last change.
func (h hostileScale) measure(ctx context.Context, s settings, binaries map[string]string, hostilities ...string) (_ figures, err error) {
	e, err := setUp(ctx, &environment{size: h.size, secure: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	var servers []*hostile.Server
	defer func() {
		for _, server := range servers {
			server.CloseClientConnections()
			server.Close()
		}
	}()
	for i, name := range hostilities {
		server := hostile.NewServer(hostile.Hostilities[name], "n")
		servers = append(servers, server)
		if err := e.addHostile(ctx, fmt.Sprintf("hostile-%d", i), server.URL, h.checks); err != nil {
			return nil, fmt.Errorf("make the cluster that %s: %w", name, err)
		}
	}
	c := s.kubemend()
	t := &trial{environment: e, scale: h.scale, figures: figures{}}
	if err := t.firstPass(ctx, c, binaries[c.source]); err != nil {
		return nil, err
	}
	defer t.end()
	defer t.watchMemory(ctx)()
	if err := letTimePass(ctx, t.scale.idle); err != nil {
		return nil, err
	}
	if err := t.spread(ctx); err != nil {
		return nil, err
	}
	last, err := t.quiet(ctx, quietFor)
	if err != nil {
		return nil, err
	}
	t.figures[residentSteady] = last.resident / mebibyte
	t.figures[residentHighest] = t.highest / mebibyte
	t.progress("beside %d hostile clusters: p99 %.0f ms, %.0f MiB", len(hostilities), t.figures[spreadWorst]*1000, t.figures[residentHighest])
	return t.figures, nil
}

// addHostile makes a cluster whose API server is there, and checks of it, each of a machine whose node that server does not have, so that it is asked for.
func (s *environment) addHostile(ctx context.Context, name, server string, checks int) error {
	cluster, status := clusterOf(name)
	if err := s.managementClient.Create(ctx, cluster); err != nil {
		return err
	}
	kubeconfig := rig.KubeconfigSecret(client.ObjectKeyFromObject(cluster), s.workload)
	var err error
	kubeconfig.Data[secret.KubeconfigDataName], err = clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	if err := s.managementClient.Create(ctx, kubeconfig); err != nil {
		return err
	}
	cluster.Status = status
	if err := s.managementClient.Status().Update(ctx, cluster); err != nil {
		return err
	}
	for i := range checks {
		of := map[string]string{partLabel: fmt.Sprintf("%s-%d", name, i)}
		machine, status := machineOf(size{checks, 1}, i)
		machine.Name, machine.Spec.ClusterName, machine.Labels = of[partLabel], name, of
		machine.Labels[clusterv1.ClusterNameLabel] = name
		if err := s.managementClient.Create(ctx, machine); err != nil {
			return err
		}
		machine.Status = status
		machine.Status.NodeRef.Name = "missing"
		if err := s.managementClient.Status().Update(ctx, machine); err != nil {
			return err
		}
		check := checkOf(cluster)
		check.Name, check.Spec.Selector.MatchLabels = machine.Name, of
		if err := s.managementClient.Create(ctx, check); err != nil {
			return err
		}
	}
	return nil
}

// hostileSection is the part of the report about hostile API servers.
func (r *report) hostileSection() string {
	h := r.hostile
	if len(h.beside) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(r.heading(hostilePart, "Hostile API servers", fmt.Sprintf(hostileMethod,
		h.size.title(), len(hostile.Hostilities), h.checks, strings.Join(slices.Sorted(maps.Keys(hostile.Hostilities)), ", one "))))
	b.WriteString("| measured | alone | beside hostile ones | | aim |\n|---|---:|---:|---:|---|\n")
	const aim = 1.5
	for _, row := range []row{
		{spreadMedian, milliseconds1000, nil}, {spreadWorst, milliseconds1000, nil}, {spreadSamples, whole, nil},
		{residentSteady, mebibytes, nil}, {residentHighest, mebibytes, nil},
	} {
		alone, beside := h.alone[row.measured], h.beside[row.measured]
		times, verdict := "", ""
		if row.measured != spreadSamples {
			times = fmt.Sprintf("%.2f times", beside/alone)
			verdict = fmt.Sprintf("≤ %.1f times: met", aim)
			if beside > aim*alone {
				verdict = fmt.Sprintf("≤ %.1f times: **missed**", aim)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.measured, row.show(alone), row.show(beside), times, verdict)
	}
	return b.String()
}

// hostileMethod says how the figures beside hostile API servers are taken.
const hostileMethod = `The whole manager, with %s, alone and beside %d clusters whose API servers are hostile, with %d checks each: one %s.
They accept connections and answer probes first. Changes come at even intervals. The highest memory is that of the first minute,
when all clusters are connected to at once; the idle one was read after the last change.
`
