package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// hands is how many objects are written at the same time.
const clients = 24

// stage is one world on control planes of its own.
type environment struct {
	size             size
	rig              *rig.Rig
	management       *rig.ControlPlane
	workload         *rig.ControlPlane
	proxies          []*nodeProxy
	managementClient client.Client  // the management cluster
	nodesAPI         rest.Interface // the API server with all nodes
	machineWatch     *machineWatch
	crds             []string // of more kinds than those of Cluster API
	// parts is how many checks share the machines of a cluster; one if it is 0.
	parts int
	// secure has workload clusters asked over TLS also where a window shows the nodes of each.
	secure bool
	// fresh is the first machine that was never flipped: a second time is less work, since its owner was asked before.
	nextUnused int
}

// raise starts the control planes and fills them.
func raise(ctx context.Context, w size) (*environment, error) {
	return setUp(ctx, &environment{size: w})
}

// raised starts and fills a stage of which no more is set than what it is to be like.
func setUp(ctx context.Context, s *environment) (*environment, error) {
	w := s.size
	if err := s.startControlPlanes(ctx); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	since := time.Now()
	if err := s.fill(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make the objects: %w", err), s.tearDown())
	}
	var err error
	if s.machineWatch, err = watchStatuses(ctx, unlimited(s.management.Config())); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	if _, err = s.machineWatch.await(ctx, s.machineWatch.all(w.machines, "")); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	progress("%s: %d machines and nodes made in %.1fs", w, w.machines, time.Since(since).Seconds())
	return s, nil
}

func (s *environment) startControlPlanes(ctx context.Context) (err error) {
	if s.rig, err = rig.Start(ctx, rig.Options{}); err != nil {
		return err
	}
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		s.management, err = s.rig.Management(starting, rig.ManagementOptions{CRDs: s.crds})
		return err
	})
	group.Go(func() (err error) {
		s.workload, err = s.rig.Workload(starting, "workload", rig.WorkloadOptions{Bare: true})
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	err = errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme), bmov1alpha1.AddToScheme(scheme), mendv1.AddToScheme(scheme))
	if err != nil {
		return fmt.Errorf("register kinds: %w", err)
	}
	if s.managementClient, err = client.New(unlimited(s.management.Config()), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	nodesAPI, err := kubernetes.NewForConfig(unlimited(s.workload.Config()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	s.nodesAPI = nodesAPI.CoreV1().RESTClient()
	return nil
}

// unlimited takes away the limit that clients put on themselves.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

// strike ends all of it.
func (s *environment) tearDown() error {
	if s.machineWatch != nil {
		s.machineWatch.close()
	}
	for _, w := range s.proxies {
		w.close()
	}
	if s.rig == nil {
		return nil
	}
	return s.rig.Stop()
}

// fill makes all objects. No contender runs yet, so their order does not matter.
func (s *environment) fill(ctx context.Context) error {
	if err := s.managementClient.Create(ctx, builders.Namespace(namespace)); err != nil {
		return err
	}
	for i := range s.size.clusters {
		if err := s.fillCluster(ctx, s.size.cluster(i)); err != nil {
			return err
		}
	}
	return s.each(ctx, s.machines(0, s.size.machines), s.fillMachine)
}

func (s *environment) fillCluster(ctx context.Context, name string) error {
	cluster, status := clusterOf(name)
	if err := s.managementClient.Create(ctx, cluster); err != nil {
		return err
	}
	kubeconfig := rig.KubeconfigSecret(client.ObjectKeyFromObject(cluster), s.workload)
	if s.size.clusters > 1 {
		w, err := startNodeProxy(s.workload.Config(), clusterLabel+"="+name, s.secure)
		if err != nil {
			return err
		}
		s.proxies = append(s.proxies, w)
		for key := range kubeconfig.Data {
			if kubeconfig.Data[key], err = w.kubeconfig(); err != nil {
				return err
			}
		}
	}
	if err := s.managementClient.Create(ctx, kubeconfig); err != nil {
		return err
	}
	cluster.Status = status
	if err := s.managementClient.Status().Update(ctx, cluster); err != nil {
		return err
	}
	return s.fillChecks(ctx, cluster)
}

func (s *environment) fillChecks(ctx context.Context, cluster *clusterv1.Cluster) error {
	if s.parts < 2 {
		return s.managementClient.Create(ctx, checkOf(cluster))
	}
	for part := range s.parts {
		check := checkOf(cluster)
		check.Name += "-" + strconv.Itoa(part)
		check.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{partLabel: strconv.Itoa(part)}}
		if err := s.managementClient.Create(ctx, check); err != nil {
			return err
		}
	}
	return nil
}

func (s *environment) fillMachine(ctx context.Context, i int) error {
	machine, status := machineOf(s.size, i)
	if s.parts > 1 {
		machine.Labels[partLabel] = strconv.Itoa(i / s.size.clusters % s.parts)
	}
	if err := s.managementClient.Create(ctx, machine); err != nil {
		return err
	}
	machine.Status = status
	if err := s.managementClient.Status().Update(ctx, machine); err != nil {
		return err
	}
	return s.nodesAPI.Post().Resource("nodes").Body(nodeOf(s.size, i)).Do(ctx).Error()
}

// machines are the indexes of n machines from first on.
func (s *environment) machines(first, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = first + i
	}
	return all
}

// unflipped takes n machines that were never flipped.
func (s *environment) takeUnused(n int) ([]int, error) {
	if s.nextUnused+n > s.size.machines {
		return nil, fmt.Errorf("take %d machines that were never flipped: %d of %d are left", n, s.size.machines-s.nextUnused, s.size.machines)
	}
	taken := s.machines(s.nextUnused, n)
	s.nextUnused += n
	return taken, nil
}

// each does something for every machine, many at the same time.
func (s *environment) each(ctx context.Context, machines []int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for _, i := range machines {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// patchNode writes the status of a machine's node.
func (s *environment) patchNode(ctx context.Context, i int, patch []byte) error {
	err := s.nodesAPI.Patch(types.StrategicMergePatchType).Resource("nodes").Name(s.size.machine(i)).
		SubResource("status").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write the status of node %s: %w", s.size.machine(i), err)
	}
	return nil
}

// touch changes a machine in a way that means nothing, but after which every contender looks at its check again.
func (s *environment) touch(ctx context.Context, i int, value string) error {
	machine := &clusterv1.Machine{}
	machine.Namespace, machine.Name = namespace, s.size.machine(i)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, touchAnnotation, value)
	if err := s.managementClient.Patch(ctx, machine, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("touch machine %s: %w", machine.Name, err)
	}
	return nil
}

// serverCPU is the processor time that the API server of the management cluster has used.
func (s *environment) serverCPU(ctx context.Context) (float64, error) {
	server, err := kubernetes.NewForConfig(unlimited(s.management.Config()))
	if err != nil {
		return 0, fmt.Errorf("make a client: %w", err)
	}
	page, err := server.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the metrics of the API server: %w", err)
	}
	for line := range strings.Lines(string(page)) {
		if value, found := strings.CutPrefix(line, cpuMetric+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("read the metrics of the API server: there is no %s", cpuMetric)
}
