package simulate

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// clock is the virtual one.
type clock struct {
	mu  sync.RWMutex
	now time.Time
}

// Now implements clock.PassiveClock.
func (c *clock) Now() time.Time {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.now
}

// Since implements clock.PassiveClock.
func (c *clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *clock) set(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = to
}

// eventLog is what has happened. The controllers write their events into it.
type eventLog struct {
	clock *clock
	begin time.Time

	mu      sync.Mutex
	entries []Entry
	// logged is what was written at which moment about which object: an event that several objects have is one entry. A failure is written once.
	logged map[string]bool
}

// Eventf implements events.EventRecorder.
func (l *eventLog) Eventf(regarding, related runtime.Object, kind, reason, _, note string, args ...any) {
	obj, ok := regarding.(client.Object)
	if !ok {
		return
	}
	about := explain.Ref{Kind: obj.GetObjectKind().GroupVersionKind().Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	key := about.String()
	if other, is := related.(client.Object); is {
		key = other.GetNamespace() + "/" + other.GetName()
	}
	l.write(key, Entry{
		Object: about, Reason: reason, Text: strings.TrimPrefix(fmt.Sprintf(note, args...), nhcv1.EventPrefix), Warning: kind == corev1.EventTypeWarning,
	})
}

// assumed logs what somebody else does.
func (l *eventLog) assumed(about explain.Ref, reason, text string, args ...any) {
	l.write(about.String(), Entry{Object: about, Reason: reason, Text: fmt.Sprintf(text, args...), Assumed: true})
}

// failure logs why a reconcile failed, once.
func (l *eventLog) failure(about explain.Ref, err error) {
	l.mu.Lock()
	key := about.String() + "\x00" + err.Error()
	is := l.logged[key]
	l.logged[key] = true
	l.mu.Unlock()
	if !is {
		l.write(about.String(), Entry{Object: about, Reason: "ReconcileFailed", Text: err.Error(), Warning: true})
	}
}

// write writes e down, unless the same was written at this moment by the same key.
func (l *eventLog) write(key string, e Entry) {
	e.At = l.clock.Now()
	e.After = e.At.Sub(l.begin).String()
	l.mu.Lock()
	defer l.mu.Unlock()
	key += "\x00" + e.After + "\x00" + e.Reason + "\x00" + e.Text
	if !l.logged[key] {
		l.logged[key] = true
		l.entries = append(l.entries, e)
	}
}

// errorLog writes into the event log what a controller could not do, and leaves out what else it logs.
type errorLog struct {
	*eventLog

	about explain.Ref
}

// Init implements logr.LogSink.
func (errorLog) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (errorLog) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (errorLog) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (l errorLog) Error(err error, message string, _ ...any) {
	if err == nil {
		err = fmt.Errorf("%s", message)
	}
	l.failure(l.about, err)
}

// WithValues implements logr.LogSink.
func (l errorLog) WithValues(...any) logr.LogSink { return l }

// WithName implements logr.LogSink.
func (l errorLog) WithName(string) logr.LogSink { return l }
