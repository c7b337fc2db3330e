package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// eventLog is what has happened. The controllers record their events in it.
type eventLog struct {
	clock clock.PassiveClock
	begin time.Time

	mu      sync.Mutex
	entries []Entry
	// logged is what was recorded at which moment about which object: an event that several objects have is one entry. A failure is recorded once.
	logged map[string]bool
}

// after is how long after the beginning it is, such as 5m0s.
func (l *eventLog) after() string { return l.clock.Since(l.begin).String() }

// Eventf implements events.EventRecorder.
func (l *eventLog) Eventf(regarding, related runtime.Object, kind, reason, _, note string, args ...any) {
	obj, ok := regarding.(client.Object)
	if !ok {
		return
	}
	about := refOf(obj.GetObjectKind().GroupVersionKind().Kind, obj)
	key := about.String()
	if other, is := related.(client.Object); is {
		key = other.GetNamespace() + "/" + other.GetName()
	}
	l.write(key, Entry{
		Object: about, Reason: reason, Text: strings.TrimPrefix(fmt.Sprintf(note, args...), nhcv1.EventPrefix), Warning: kind == corev1.EventTypeWarning,
	})
}

// assumed records what others do.
func (l *eventLog) assumed(about explain.Ref, reason, text string) {
	l.write(about.String(), Entry{Object: about, Reason: reason, Text: text, Assumed: true})
}

// failure records why a reconcile failed, once.
func (l *eventLog) failure(about explain.Ref, err error) {
	if l.first(about.String() + "\x00" + err.Error()) {
		l.write(about.String(), Entry{Object: about, Reason: "ReconcileFailed", Text: err.Error(), Warning: true})
	}
}

// write adds e, unless the same was recorded at this moment by the same key.
func (l *eventLog) write(key string, e Entry) {
	e.At, e.After = l.clock.Now(), l.after()
	if l.first(key + "\x00" + e.After + "\x00" + e.Reason + "\x00" + e.Text) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = append(l.entries, e)
	}
}

// first reports whether it is called for the first time with this key.
func (l *eventLog) first(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.logged[key]
	l.logged[key] = true
	return !was
}

// errorLog is a logr.LogSink that records in the event log what a controller logs as an error, and drops what else it logs.
type errorLog struct {
	*eventLog

	about explain.Ref
}

func (errorLog) Init(logr.RuntimeInfo) {}

func (errorLog) Enabled(int) bool { return false }

func (errorLog) Info(int, string, ...any) {}

func (l errorLog) Error(err error, message string, _ ...any) {
	l.failure(l.about, cmp.Or(err, errors.New(message)))
}

func (l errorLog) WithValues(...any) logr.LogSink { return l }

func (l errorLog) WithName(string) logr.LogSink { return l }
