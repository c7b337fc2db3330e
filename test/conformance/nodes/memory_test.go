package nodes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	inprocess "github.com/kubemend/kubemend/test/faults/nodes"
	"github.com/kubemend/kubemend/test/inmemory"
)

// scenesInMemory is how many there were: series of metrics are named after them.
var environmentsInMemory atomic.Int32

// newSceneInMemory makes an environment whose API server is in memory.
func newEnvironmentInMemory(ctx context.Context, m mode) *environment {
	GinkgoHelper()
	var kinds []inmemory.Kind
	add := func(kind schema.GroupVersionKind, global, later bool) {
		kinds = append(kinds, inmemory.Kind{GroupVersionKind: kind, Global: global, Later: later})
	}
	for _, r := range append([]remediator{metal3, hosts}, remediators...) {
		add(r.kind, r.global, false)
		add(r.templates(), r.global, false)
	}
	add(clusterVersion, true, true)
	add(theirCheck, false, true)
	add(theirMachine, false, true)
	server, err := inprocess.Server(clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), kinds...)
	Expect(err).NotTo(HaveOccurred())
	name := fmt.Sprintf("scene%d", environmentsInMemory.Add(1))
	s := &environment{
		mode: m, name: name, elsewhere: name + "-elsewhere", missing: name + "-missing", leases: name + "-leases",
		kill: func() {}, kinds: map[remediator]bool{}, notes: &notes{},
	}
	s.recorder = &teller{EventRecorder: s.notes}
	s.memory = inprocess.Program(server, inprocess.Options{Leases: s.leases, Recorder: s.recorder, Logger: s.logger()})
	s.here = settled{server.WithWatch, s.memory}
	s.clock = leaping{s.memory}
	Expect(builders.Apply(ctx, server.WithWatch, builders.Namespace(s.name), builders.Namespace(s.elsewhere), builders.Namespace(s.leases),
		builders.Namespace("default"), builders.Namespace(machineAPI))).To(Succeed())
	return s
}

func (s *environment) startInMemory() {
	GinkgoHelper()
	Expect(s.memory.Start()).To(Succeed())
	s.kill = func() {
		GinkgoHelper()
		Expect(s.memory.Kill()).To(Succeed())
	}
}

// leaping is the clock of an environment in memory.
type leaping struct{ program *inmemory.Program }

// Now is the time.
func (l leaping) Now() time.Time { return l.program.Server.Clock.Now() }

// Step lets the clock leap.
func (l leaping) Step(d time.Duration) {
	GinkgoHelper()
	Expect(l.program.Step(d)).To(Succeed())
}

// settled is a client that reads when the controller has done all that it has to do.
type settled struct {
	client.WithWatch
	program *inmemory.Program
}

// Get reads an object.
func (c settled) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.Get(ctx, key, obj, opts...)
}

// List reads objects.
func (c settled) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.program.Settle(); err != nil {
		return err
	}
	return c.WithWatch.List(ctx, list, opts...)
}

// notes are the events that the controller has sent.
type notes struct {
	mu  sync.Mutex
	all []note
}

type note struct{ kind, name, reason, text string }

// Eventf notes an event.
func (n *notes) Eventf(regarding, _ runtime.Object, kind, reason, _, text string, args ...any) {
	obj, err := meta.Accessor(regarding)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, note{regarding.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), reason, kind + " " + fmt.Sprintf(text, args...)})
}

// of are the events of a reason about a check.
func (n *notes) of(s *environment, check, reason string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := []string{}
	for _, e := range n.all {
		if e.name == s.called(check) && e.reason == reason {
			found = append(found, strings.ReplaceAll(e.text, s.name+"-", ""))
		}
	}
	return found
}

// installs makes an environment in memory serve kinds.
func (s *environment) installs(ctx context.Context, crds ...*apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	for _, crd := range crds {
		Expect(s.here.Create(ctx, crd)).To(Succeed())
		s.memory.Server.Install(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind})
	}
}
