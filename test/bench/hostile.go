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
		return hostileScale{size{200, 4}, 5, scale{spread: 40, spreadOver: 10 * time.Second, idle: 5 * time.Second}}
	}
	return hostileScale{size{1000, 50}, 20, scale{spread: 500, spreadOver: 2 * time.Minute, idle: 20 * time.Second}}
}

const hostileMethod = `The whole manager, with %s,
alone and beside %d clusters whose API servers are hostile, with %d checks each:
one %s.
They let themselves be connected to and probed first. Changes come at even intervals. The highest
memory is that of the first minute, when all clusters are connected to at once; the idle one was
read after the last change. The aim is 1.5 times what it is alone.
`

// measureHostile measures the same twice, each time on new control planes.
func measureHostile(ctx context.Context, b bench) (section, error) {
	much, names := hostileScaleOf(b.quick), slices.Sorted(maps.Keys(hostile.Hostilities))
	s := section{title: "Hostile API servers"}
	s.method = fmt.Sprintf(hostileMethod, much.size.title(), len(names), much.checks, strings.Join(names, ", one "))
	alone, err := much.measure(ctx, b)
	if err != nil {
		return s, fmt.Errorf("%s: %w", much.size.title(), err)
	}
	beside, err := much.measure(ctx, b, names...)
	if err != nil {
		return s, fmt.Errorf("%s beside hostile ones: %w", much.size.title(), err)
	}
	s.tables = []table{besideHostile(alone, beside)}
	return s, nil
}

// besideHostile compares what was measured with healthy clusters alone, and with hostile ones beside them.
func besideHostile(alone, beside figures) table {
	t := table{columns: []string{"alone", "beside hostile ones", "times"}}
	for _, r := range []row{
		{spreadMedian, milliseconds1000, 1.5}, {spreadWorst, milliseconds1000, 1.5},
		{residentSteady, mebibytes, 1.5}, {residentHighest, mebibytes, 1.5},
	} {
		times := beside[r.measured] / alone[r.measured]
		t.lines = append(t.lines, line{
			name: string(r.measured), cells: []string{r.show(alone[r.measured]), r.show(beside[r.measured]), fmt.Sprintf("%.2f", times)},
			aim: fmt.Sprintf("≤ %.1f times", r.aim), ok: times <= r.aim,
		})
	}
	return t
}

// measure makes changes at even intervals, and watches the memory from the start to the last change.
func (h hostileScale) measure(ctx context.Context, b bench, hostilities ...string) (_ figures, err error) {
	e, err := setUp(ctx, &environment{size: h.size})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.tearDown()) }()
	for i, name := range hostilities {
		server := hostile.NewServer(hostile.Hostilities[name], "n")
		defer server.Close()                  //nolint:gocritic // as long as the measurement takes
		defer server.CloseClientConnections() //nolint:gocritic // likewise
		if err := e.addHostile(ctx, fmt.Sprintf("hostile-%d", i), server.URL, h.checks); err != nil {
			return nil, fmt.Errorf("make the cluster that %s: %w", name, err)
		}
	}
	t := &trial{environment: e, scale: h.scale, figures: figures{}}
	if err := t.firstPass(ctx, b.kubemend()); err != nil {
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
	t.figures[residentSteady] = last.resident / mebibyte
	t.figures[residentHighest] = t.highest / mebibyte
	return t.figures, err
}

// addHostile makes a cluster whose API server is there, and checks of it, each of a machine whose node that server does not have, so
// that it is asked for.
func (e *environment) addHostile(ctx context.Context, name, server string, checks int) error {
	cluster, status := clusterOf(name)
	if err := e.managementClient.Create(ctx, cluster); err != nil {
		return err
	}
	kubeconfig := rig.KubeconfigSecret(client.ObjectKeyFromObject(cluster), e.workload)
	var err error
	kubeconfig.Data[secret.KubeconfigDataName], err = clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	if err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	if err := e.managementClient.Create(ctx, kubeconfig); err != nil {
		return err
	}
	cluster.Status = status
	if err := e.managementClient.Status().Update(ctx, cluster); err != nil {
		return err
	}
	for i := range checks {
		of := map[string]string{partLabel: fmt.Sprintf("%s-%d", name, i)}
		machine, status := machineOf(size{checks, 1}, i)
		machine.Name, machine.Spec.ClusterName, machine.Labels = of[partLabel], name, of
		machine.Labels[clusterv1.ClusterNameLabel] = name
		if err := e.managementClient.Create(ctx, machine); err != nil {
			return err
		}
		machine.Status = status
		machine.Status.NodeRef.Name = "missing"
		if err := e.managementClient.Status().Update(ctx, machine); err != nil {
			return err
		}
		check := checkOf(cluster)
		check.Name, check.Spec.Selector.MatchLabels = machine.Name, of
		if err := e.managementClient.Create(ctx, check); err != nil {
			return err
		}
	}
	return nil
}
