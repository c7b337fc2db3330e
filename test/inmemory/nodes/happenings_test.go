package nodes

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// first lets w1 fail and waits for its request, to which the remediator adds a finalizer.
func (e *environment) first() *unstructured.Unstructured {
	e.Helper()
	e.fails("w1")
	e.awaits("the request", func() bool { return len(e.requests()) == 1 })
	req := e.requests()[0]
	e.holds(req, true)
	return req
}

// stays: the second step cannot begin, because its request would have the name of the first one.
func stays(e *environment) {
	req := e.first()
	e.inTime(req, 0)
	e.elapse(20 * time.Minute)
	e.recovers("w1")
	e.ends()
}

// failing: the first remediator reports a failure, and the second step begins at once.
func failing(e *environment) {
	req := e.first()
	e.says(req, nhcv1.ProcessingCondition, metav1.ConditionTrue)
	e.says(req, nhcv1.SucceededCondition, metav1.ConditionFalse)
	e.awaits("the second step", func() bool { return len(e.requests()) == 2 })
	if !e.now().Before(req.GetCreationTimestamp().Add(step)) {
		e.Fatalf("it began only when the time of the first one was over\n%s", e.state())
	}
	e.holds(e.requests()[1], true)
	e.recovers("w1")
	e.ends()
}

// deleting: a deleted request is created again a minute later.
func deleting(e *environment) {
	req := e.first()
	e.elapse(10 * time.Second)
	e.deletes(req.DeepCopy())
	e.elapse(10 * time.Second)
	e.holds(req, false)
	e.elapse(10 * time.Second)
	if len(e.requests()) > 0 || e.holder("w1") == "" {
		e.Fatalf("the request is made again at once, or the lease is released before that\n%s", e.state())
	}
	e.awaits("another one", func() bool { return len(e.requests()) == 1 && e.requests()[0].GetUID() != req.GetUID() })
	e.recovers("w1")
	e.ends()
}

// inTurn: two nodes fail, and the second one is remediated when the remediation of the first one has ended.
func inTurn(first, second string) func(*environment) {
	return func(e *environment) {
		e.fails(first)
		e.awaits("the request", func() bool { return len(e.requests()) == 1 })
		req := e.requests()[0]
		e.holds(req, true)
		e.fails(second) // this takes longer than a step
		e.elapse(2 * time.Minute)
		e.recovers(first)
		e.awaits("its end", func() bool { return e.again(req).GetDeletionTimestamp() != nil })
		e.elapse(time.Minute)
		e.holds(req, false)
		e.awaits("the other one", func() bool { return len(e.requests()) == 1 && about(e.requests()[0]) == second })
		e.recovers(second)
		e.ends()
	}
}

// losing: a user deletes the node, and its remediation ends.
func losing(e *environment) {
	e.first()
	e.loses("w1")
	e.ends()
}

// replacing: the remediator deletes the node, as it has announced, and continues until it has succeeded.
func replacing(e *environment) {
	req := e.first()
	e.says(req, nhcv1.NodeDeletionExpectedCondition, metav1.ConditionTrue)
	e.loses("w1")
	e.elapse(time.Minute)
	if e.again(req).GetDeletionTimestamp() != nil {
		e.Fatalf("the request is deleted before its remediator has done\n%s", e.state())
	}
	e.says(req, nhcv1.SucceededCondition, metav1.ConditionTrue)
	e.ends()
}

// unchecking: a user deletes the check during its second step, and the whole remediation ends.
func unchecking(e *environment) {
	req := e.first()
	e.inTime(req, 0)
	e.awaits("the second step", func() bool { return len(e.requests()) == 2 })
	e.holds(e.requests()[1], true)
	e.deleteCheck("check")
	e.ends()
}

// rechecking: a new check of the same name does not continue the remediation, but ends it and begins another.
func rechecking(e *environment) {
	req := e.first()
	e.deleteCheck("check")
	e.check("check", e.by(soft.ref(e)))
	e.awaits("the end of what has started", func() bool { return e.again(req).GetDeletionTimestamp() != nil })
	e.holds(req, false)
	e.awaits("the new request", func() bool { return len(e.requests()) == 1 && e.requests()[0].GetUID() != req.GetUID() })
	e.recovers("w1")
	e.ends()
}

// storming: two of three nodes fail at once. No remediation begins before the cooldown after the storm has passed.
func storming(e *environment) {
	for _, name := range []string{"w1", "w2"} {
		e.reports(name, "Ready", "Unknown")
		e.leaps(4 * time.Minute)
	}
	e.elapse(2 * time.Minute)
	e.recovers("w2")
	e.elapse(2 * time.Minute)
	if len(e.requests()) > 0 {
		e.Fatalf("a remediation began before the cooldown was over\n%s", e.state())
	}
	e.awaits("the request", func() bool { return len(e.requests()) == 1 })
	e.recovers("w1")
	e.ends()
}

// flapping: the node fails again during the healthy delay, which then begins again.
func flapping(e *environment) {
	req := e.first()
	e.recovers("w1")
	e.elapse(2 * time.Minute)
	e.reports("w1", "Ready", "False")
	e.elapse(time.Minute)
	e.recovers("w1")
	e.elapse(2 * time.Minute)
	if e.again(req).GetDeletionTimestamp() != nil {
		e.Fatalf("the healthy delay did not begin anew\n%s", e.state())
	}
	e.ends()
}

// confirming: only a user can end the remediation, and the check removes the user's annotation.
func confirming(e *environment) {
	req := e.first()
	e.recovers("w1")
	e.elapse(time.Hour)
	if e.again(req).GetDeletionTimestamp() != nil {
		e.Fatalf("no user has confirmed that the node is healthy\n%s", e.state())
	}
	n := e.getNode("w1")
	n.Annotations = map[string]string{nhcv1.ConfirmedHealthyAnnotation: "by me", "example.org/other": "stays"}
	e.must(e.server.Update(e.Context(), n))
	e.ends()
	e.awaits("that the annotation is removed", func() bool {
		return maps.Equal(e.getNode("w1").Annotations, map[string]string{"example.org/other": "stays"})
	})
}

// lasting: the request is marked as old.
func lasting(e *environment) {
	req := e.first()
	e.elapse(time.Second)
	e.leaps(48 * time.Hour) // in one step, because Walk would renew the lease hundreds of times
	e.awaits("the mark", func() bool { return e.again(req).GetAnnotations()[nhcv1.OldRequestAnnotation] != "" })
	e.recovers("w1")
	e.ends()
}

// exchanging: the check names another template. The request of the first one ends with the remediation.
func exchanging(e *environment) {
	req := e.first()
	e.elapse(time.Second)
	ref := hard.make(e)
	e.safety.exchanged = true
	e.says(req, nhcv1.SucceededCondition, metav1.ConditionTrue)
	e.change("check", e.by(ref))
	e.awaits("the other request", func() bool { return len(e.requests()) == 2 })
	e.recovers("w1")
	e.ends()
}
