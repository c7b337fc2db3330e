package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
)

// fact is the kind of an observation. Scenes wait for facts.
type fact string

// The facts. No scene waits for shown; such an observation is only printed.
const (
	shown           fact = ""
	nodeReady       fact = "a node is Ready"
	nodeUnknown     fact = "a node is Unknown"
	machineCreated  fact = "a machine is made"
	machineRunning  fact = "a machine runs"
	machineHealthy  fact = "a machine is healthy"
	machineFailed   fact = "a machine is unhealthy"
	ownerRequested  fact = "owner remediation of a machine is requested"
	ownerActs       fact = "the owner starts to remediate a machine"
	machineDeleting fact = "a machine is being deleted"
	machineGone     fact = "a machine is gone"
	coreSkips       fact = "Cluster API core skips a check"
	pendingFact     fact = "a machine is pending"
	counted         fact = "a check counts its machines"
	shortCircuited  fact = "a check is short-circuited"
	allowedAgain    fact = "a check is no longer short-circuited"
	restrictedEvent fact = "an event reports that nothing is remediated"

	templateUsed   fact = "a check uses a template"
	requestMade    fact = "a remediation is made"
	attemptBegun   fact = "an attempt begins"
	bootAwaited    fact = "a machine is to become healthy after a power cycle"
	workloadMoved  fact = "the workload has moved"
	requestGone    fact = "a remediation is gone"
	offAsked       fact = "a host is requested to be off"
	onAsked        fact = "a host is released"
	hostOff        fact = "a host is off"
	hostOn         fact = "a host is on"
	nodeFenced     fact = "a node has the out-of-service taint"
	nodeUnfenced   fact = "a node has no out-of-service taint any more"
	podRuns        fact = "a pod runs"
	podEvicted     fact = "a pod is evicted"
	podGone        fact = "a pod is gone"
	volumeAttached fact = "a volume is attached"
	volumeToDetach fact = "the detachment of a volume is requested"
	volumeDetached fact = "a volume is detached"
)

// observation is one change of an object, or an event.
type observation struct {
	at    time.Time
	by    string // the actor
	fact  fact
	about string // the name of the object
	text  string // the text of the commentary
	// number and of are a count such as 4 of 5, for the facts that count.
	number, of int
}

// record has all observations in their order.
type record struct {
	narrator *narrator

	mu      sync.Mutex
	seen    []observation
	changed chan struct{} // closed when an observation is added
	cursor  int           // the position after the observations that expectations have consumed
}

func newRecord(n *narrator) *record { return &record{narrator: n, changed: make(chan struct{})} }

func (r *record) add(observations ...observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range observations {
		s.at = time.Now()
		r.seen = append(r.seen, s)
		r.narrator.line(s.at, s.by, s.text)
	}
	if len(observations) > 0 {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// from returns the observations from a position on, and a channel that is closed when more arrive.
func (r *record) from(position int) ([]observation, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen[position:]), r.changed
}

// begin starts a scene: expectations ignore all earlier observations.
func (r *record) begin() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursor = len(r.seen)
	return time.Now()
}

// patience is the deadline of an expectation, more than ten times what any step takes on an idle computer. It is this long because kubemend
// believes no node for two minutes after an API server did not answer for a while.
const patience = 4 * time.Minute

// expectation is an observation that has to come.
type expectation struct {
	fact fact
	// each are the names of the objects that the fact must be observed for. If empty, any one object is enough.
	each []string
	// where is a further condition, or nil.
	where func(observation) bool
}

func (e expectation) matches(s observation) bool {
	return e.fact == s.fact && (e.where == nil || e.where(s))
}

// rewind returns a function that resets the cursor to where it is now.
func (r *record) rewind() func() {
	from := r.cursor
	return func() { r.cursor = from }
}

// inOrder waits until all expectations are met, one after another.
func (r *record) inOrder(ctx context.Context, expectations ...expectation) error {
	for _, e := range expectations {
		if err := r.inAnyOrder(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// inAnyOrder waits until all expectations are met, in any order.
func (r *record) inAnyOrder(ctx context.Context, expectations ...expectation) error {
	last := r.cursor
	for _, e := range expectations {
		end, err := r.await(ctx, e)
		if err != nil {
			return err
		}
		last = max(last, end)
	}
	r.cursor = last
	return nil
}

// await waits until observations from the cursor on meet e, and returns the position after them.
func (r *record) await(ctx context.Context, e expectation) (int, error) {
	position, missing := r.cursor, slices.Clone(e.each)
	deadline, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		observations, changed := r.from(position)
		for _, s := range observations {
			position++
			if !e.matches(s) {
				continue
			}
			missing = slices.DeleteFunc(missing, func(name string) bool { return name == s.about })
			if len(missing) == 0 && (len(e.each) == 0 || slices.Contains(e.each, s.about)) {
				return position, nil
			}
		}
		select {
		case <-changed:
		case <-deadline.Done():
			if ctx.Err() != nil {
				return position, ctx.Err()
			}
			return position, fmt.Errorf("not observed within %s: %s %q", patience, e.fact, missing)
		}
	}
}

// never watches for some time, and fails if it sees one of the facts among the observations from since on.
func (r *record) never(ctx context.Context, since int, watched time.Duration, facts ...fact) error {
	over := time.NewTimer(watched)
	defer over.Stop()
	for {
		observations, changed := r.from(since)
		for _, s := range observations {
			if slices.Contains(facts, s.fact) {
				return fmt.Errorf("must not happen, but did: %s: %s", s.by, s.text)
			}
		}
		select {
		case <-changed:
		case <-over.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch records changes from now on until the context ends.
func (s *environment) watch(background context.Context) error {
	hosts := builders.Metal3Machine(&clusterv1.Machine{})
	here, err := s.observe(background, map[client.Object]toolscache.ResourceEventHandler{
		hosts:                           changes(s.record, hostChanged),
		&clusterv1.Machine{}:            changes(s.record, machineChanged),
		&clusterv1.MachineHealthCheck{}: changes(s.record, checkChanged),
		&eventsv1.Event{}:               changes(s.record, eventChanged),
		&bmov1alpha1.BareMetalHost{}:    changes(s.record, bareMetalChanged),
		&mendv1.HostRemediation{}:       changes(s.record, remediationChanged(s.narrator.at)),
		&corev1.Node{}:                  changes(s.record, nodeChanged),
		&corev1.Pod{}:                   changes(s.record, podChanged),
		&storagev1.VolumeAttachment{}:   changes(s.record, volumeChanged),
	})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(background, patience)
	defer cancel()
	if !here.WaitForCacheSync(ready) {
		return fmt.Errorf("watch the cluster: the first lists took longer than %s", patience)
	}
	return nil
}

func (s *environment) observe(background context.Context, handlers map[client.Object]toolscache.ResourceEventHandler) (cache.Cache, error) {
	c, err := cache.New(s.plane.Config(), cache.Options{Scheme: s.scheme})
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	for object, handler := range handlers {
		informer, err := c.GetInformer(background, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	s.background.Go(func() {
		// If the cache ends early, no more changes are observed, and a scene fails.
		_ = c.Start(background)
	})
	return c, nil
}

// changes returns a handler that calls changed for every change of an object. old is nil for a new object, updated for a deleted one. It
// ignores objects that already exist at the start.
func changes[T client.Object](r *record, changed func(old, updated T) []observation) toolscache.ResourceEventHandler {
	var none T
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if updated, ok := obj.(T); ok && !initial {
				r.add(changed(none, updated)...)
			}
		},
		UpdateFunc: func(before, after any) {
			old, known := before.(T)
			updated, ok := after.(T)
			if known && ok {
				r.add(changed(old, updated)...)
			}
		},
		DeleteFunc: func(obj any) {
			if last, missed := obj.(toolscache.DeletedFinalStateUnknown); missed {
				obj = last.Obj
			}
			if old, ok := obj.(T); ok {
				r.add(changed(old, none)...)
			}
		},
	}
}
