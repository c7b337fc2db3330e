package kubemend_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/inmemory/kubemend"
)

// another creates a second Cluster in the same management cluster. Its machines have Ready nodes. Each machine has its own check, and one
// check selects all.
func (e *environment) another(ctx context.Context, name string, machines int) *environment {
	a := &environment{management: e.management, here: e.here, workload: kubemend.WorkloadCluster(name),
		cluster: builders.Cluster("ns", name)}
	a.there = kubemend.Client(a.workload)
	Expect(a.there.Create(ctx, builders.Namespace(metav1.NamespaceSystem))).To(Succeed())
	a.stands(ctx, name)
	for i := range machines {
		machine := fmt.Sprint(name, "-", i)
		a.more(ctx, machine)
		labelled := a.machine(ctx, machine)
		labelled.Labels["machine"] = machine
		Expect(a.here.Update(ctx, labelled)).To(Succeed())
		Expect(a.here.Create(ctx, builders.MachineHealthCheck(a.cluster, machine, func(check *clusterv1.MachineHealthCheck) {
			check.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"machine": machine}}
		}))).To(Succeed())
	}
	Expect(a.here.Create(ctx, builders.MachineHealthCheck(a.cluster, name))).To(Succeed())
	return a
}

// nodesGo deletes all nodes. Each check then asks the workload cluster for them, because a cache alone does not prove a deletion.
func (e *environment) nodesGo(ctx context.Context) {
	list := &corev1.NodeList{}
	Expect(e.there.List(ctx, list)).To(Succeed())
	for i := range list.Items {
		Expect(e.there.Delete(ctx, &list.Items[i])).To(Succeed())
	}
}

// trickle is a response body that sends one byte per second until its request ends.
type trickle struct{ over <-chan struct{} }

func (b trickle) Read(p []byte) (int, error) {
	select {
	case <-b.over:
		return 0, context.DeadlineExceeded
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	}
}

// endless is a response body without an end; it counts the bytes that were read.
type endless struct{ read *atomic.Int64 }

func (b endless) Read(p []byte) (int, error) {
	b.read.Add(int64(len(p)))
	return copy(p, bytes.Repeat([]byte(" "), len(p))), nil
}

func inJSON(body io.Reader) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body),
	}
}

// asksNodes reports whether a request is a get or list of nodes, which a reconcile or a cache waits for.
func asksNodes(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/api/v1/nodes") && r.Method == http.MethodGet && !r.URL.Query().Has("watch")
}

func TestHostileWorkloadClustersDelayNoVerdictOfAnotherOne(t *testing.T) {
	var taken, requests atomic.Int64
	hostile := map[string]func(r *http.Request) *http.Response{
		"dead": nil,
		"silent": func(r *http.Request) *http.Response {
			<-r.Context().Done()
			return inJSON(http.NoBody)
		},
		"slow": func(r *http.Request) *http.Response { return inJSON(trickle{r.Context().Done()}) },
		"endless": func(*http.Request) *http.Response {
			requests.Add(1)
			return inJSON(endless{&taken})
		},
		"huge": func(*http.Request) *http.Response {
			return inJSON(strings.NewReader(`{"kind":"NodeList","apiVersion":"v1","items":[{}` + strings.Repeat(",{}", 1<<20) + `]}`))
		},
	}
	world(t, func(ctx context.Context, e *environment) {
		defer e.start(t, "--unclaimed-machine-health-checks=act", "--machinehealthcheck-concurrency=10").Kill()
		e.furnish(ctx)
		var healthy, bad []*environment
		for i := range 3 {
			healthy = append(healthy, e.another(ctx, fmt.Sprint("healthy-", i), 1))
		}
		for _, name := range slices.Sorted(maps.Keys(hostile)) {
			bad = append(bad, e.another(ctx, name, 12))
		}
		all := slices.Concat(healthy, bad)
		defer func() {
			for _, c := range all {
				c.workload.Close()
			}
		}()
		for _, c := range all {
			Eventually(e.health(ctx, c.cluster.Name+"-0")).Should(Equal(metav1.ConditionTrue))
		}
		for _, c := range bad {
			answer := hostile[c.cluster.Name]
			c.workload.Answer(func(r *http.Request) *http.Response {
				if answer == nil || !asksNodes(r) {
					return nil // it answers probes, so the manager keeps the connection
				}
				return answer(r)
			})
			c.nodesGo(ctx)
			if c.cluster.Name == "dead" {
				c.workload.Silence(true) // this ends its watches
				c.workload.Close()
			}
		}
		for round := range 10 {
			for _, c := range healthy {
				c.nodesGo(ctx)
			}
			began := time.Now()
			for _, c := range healthy {
				Eventually(e.health(ctx, c.cluster.Name+"-0")).WithPolling(100 * time.Millisecond).Should(Equal(metav1.ConditionFalse))
			}
			Expect(time.Since(began)).To(BeNumerically("<=", 5*time.Second), "round %d", round)
			for _, c := range healthy {
				c.node(ctx, c.cluster.Name+"-0")
			}
			time.Sleep(time.Duration(round+1) * 7 * time.Second)
			for _, c := range bad { // like resyncs and changes of their machines
				for i := range 12 {
					annotated := c.machine(ctx, fmt.Sprint(c.cluster.Name, "-", i))
					annotated.Annotations = map[string]string{"round": strconv.Itoa(round)}
					Expect(c.here.Update(ctx, annotated)).To(Succeed())
				}
			}
			for _, c := range healthy {
				Eventually(e.health(ctx, c.cluster.Name+"-0")).Should(Equal(metav1.ConditionTrue))
			}
		}
		Expect(requests.Load()).NotTo(BeZero())
		Expect(taken.Load()).
			To(BeNumerically("<=", requests.Load()*(17<<20)), "of an answer no more is read than 16 MiB")
	})
}
