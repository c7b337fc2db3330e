package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/simulator"
)

func recordOf(observations ...observation) *record {
	r := newRecord(&narrator{out: io.Discard})
	r.add(observations...)
	return r
}

func TestOrderedExpectationsNeedTheOrder(t *testing.T) {
	unknown := expectation{text: "Unknown", within: time.Millisecond, fact: nodeUnknown}
	failed := expectation{text: "unhealthy", within: time.Millisecond, fact: machineFailed}
	r := recordOf(observation{fact: machineFailed, about: "a"}, observation{fact: nodeUnknown, about: "a"})

	if err := r.inAnyOrder(t.Context(), unknown, failed); err != nil {
		t.Errorf("in any order: %v", err)
	}
	r.cursor = 0
	var unseen *unseenError
	if err := r.inOrder(t.Context(), unknown, failed); !errors.As(err, &unseen) || unseen.text != "unhealthy" {
		t.Errorf("in order: %v", err)
	}
}

// The host is requested to be off before the status reports the attempt, and released before it reports that the workload has moved.
func TestAPowerCycleIsFollowedStepByStep(t *testing.T) {
	about := func(f fact) observation { return observation{fact: f, about: "m", number: 1, by: kubemend} }
	s := &environment{record: recordOf(about(nodeUnknown), about(pendingFact), about(requestMade), observation{fact: offAsked}, about(machineFailed), about(attemptBegun),
		observation{fact: hostOff}, about(nodeFenced), observation{fact: onAsked}, about(workloadMoved), observation{fact: hostOn}, about(nodeUnfenced), about(bootAwaited))}
	of := origin{machine: "m", host: &simulator.Host{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, part := range []func(context.Context, origin) error{s.requested, s.poweredOff, s.poweredOn} {
		if err := part(ctx, of); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnUnmetExpectationNamesTheMissingObjects(t *testing.T) {
	r := recordOf(observation{fact: nodeUnknown, about: "a"}, observation{fact: nodeUnknown, about: "a"}, observation{fact: nodeUnknown, about: "c"})
	var unseen *unseenError
	err := r.inOrder(t.Context(), expectation{within: time.Millisecond, fact: nodeUnknown, each: []string{"a", "b", "c"}})
	if !errors.As(err, &unseen) || !cmp.Equal(unseen.missing, []string{"b"}) {
		t.Errorf("the error is %v", err)
	}
}

func TestObservationsBeforeASceneDoNotCount(t *testing.T) {
	r := recordOf(observation{fact: nodeUnknown})
	r.begin()
	if err := r.inOrder(t.Context(), expectation{within: time.Millisecond, fact: nodeUnknown}); err == nil {
		t.Error("it counts")
	}
}

func TestAForbiddenObservationFailsAtOnce(t *testing.T) {
	r := recordOf(observation{fact: nodeUnknown}, observation{fact: ownerRequested, text: "requested"})
	if err := r.never(t.Context(), 0, time.Hour, machineGone, ownerRequested); err == nil {
		t.Error("it is not noticed")
	}
	if err := r.never(t.Context(), 2, time.Millisecond, machineGone, ownerRequested); err != nil {
		t.Errorf("what was seen earlier counts: %v", err)
	}
}

func TestTheArithmeticLeavesOutZeros(t *testing.T) {
	for message, want := range map[string]string{
		"Remediation is not allowed, too many (total: 5). 3 of 5 targets are not healthy: 0 unhealthy, 3 pending, 0 starting, 0 being deleted; 40% of 5 allows 2": "3 of 5 targets are not healthy: 3 pending; 40% of 5 allows 2",
		"10 of 30 targets are not healthy: 10 unhealthy, 0 unknown; 20% of 30 allows 6":                                                                           "10 of 30 targets are not healthy: 10 unhealthy; 20% of 30 allows 6",
		"Remediation is not allowed, spec: a limit is impossible":                                                                                                 "Remediation is not allowed, spec: a limit is impossible",
	} {
		if got := sumOf(message); got != want {
			t.Errorf("%q\nbecomes %q", message, got)
		}
	}
}

func TestPendingTargetsAreReadFromTheMetricsOfTheCheck(t *testing.T) {
	got, err := machinesOfCheck.pendingIn(`# TYPE kubemend_machinehealthcheck_targets gauge
kubemend_machinehealthcheck_targets{cluster="demo",name="demo-node-unhealthy-5m",namespace="default",state="healthy"} 4
kubemend_machinehealthcheck_targets{cluster="demo",name="demo-node-unhealthy-5m",namespace="default",state="pending"} 1
kubemend_machinehealthcheck_targets{cluster="demo",name="another",namespace="default",state="pending"} 7
# TYPE kubemend_machinehealthcheck_next_deadline_timestamp_seconds gauge
kubemend_machinehealthcheck_next_deadline_timestamp_seconds{cluster="demo",name="demo-node-unhealthy-5m",namespace="default"} 1.79517946e+09
`)
	want := pendingTargets{pending: 1, total: 5, until: time.Unix(1795179460, 0)}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pendingTargets{})); err != nil || diff != "" {
		t.Errorf("error %v, difference %s", err, diff)
	}
	got, err = nodesOfCheck.pendingIn(`# TYPE kubemend_nodehealthcheck_targets gauge
kubemend_nodehealthcheck_targets{name="demo-workers",state="healthy"} 3
kubemend_nodehealthcheck_targets{name="demo-workers",state="pending"} 2
`)
	if diff := cmp.Diff(pendingTargets{pending: 2, total: 5}, got, cmp.AllowUnexported(pendingTargets{})); err != nil || diff != "" {
		t.Errorf("of nodes: error %v, difference %s", err, diff)
	}
}

func TestChangesOfAnAgentsRequestAreShown(t *testing.T) {
	request := func(annotation, processing, succeeded string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetName("n")
		if annotation != "" {
			object.SetAnnotations(map[string]string{annotation: "2026-01-01T12:00:00Z"})
		}
		if processing != "" {
			object.Object["status"] = map[string]any{"conditions": []any{
				map[string]any{"type": "Processing", "status": processing}, map[string]any{"type": "Succeeded", "status": succeeded},
			}}
		}
		return object
	}
	for name, tc := range map[string]struct {
		was, is *unstructured.Unstructured
		want    []fact
	}{
		"made":                          {nil, request("", "", ""), []fact{agentRequest}},
		"begun":                         {request("", "", ""), request("", "True", "Unknown"), []fact{agentWorks}},
		"failed":                        {request("", "True", "Unknown"), request("", "False", "False"), []fact{agentFailed}},
		"stopped":                       {request("", "False", "False"), request(nhcv1.TimedOutAnnotation, "False", "False"), []fact{agentStopped}},
		"annotated with something else": {request("", "False", "False"), request("a", "False", "False"), nil},
		"deleted":                       {request("", "False", "False"), nil, []fact{agentRequestGone}},
		"stopped and failed at once":    {request("", "True", "Unknown"), request(nhcv1.TimedOutAnnotation, "False", "False"), []fact{agentStopped, agentFailed}},
	} {
		var got []fact
		for _, s := range agentAsked(tc.was, tc.is) {
			got = append(got, s.fact)
			if s.about != "n" {
				t.Errorf("%s: it is about %q", name, s.about)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOnlyLeasesThatKeepChecksApartAreShown(t *testing.T) {
	lease := func(namespace string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "node-n"}}
	}
	taken, given := leaseChanged(nil, lease("medik8s-leases")), leaseChanged(lease("medik8s-leases"), nil)
	if len(taken) != 1 || taken[0].fact != leaseTaken || len(given) != 1 || given[0].fact != leaseGone || given[0].about != "n" {
		t.Errorf("%+v, %+v", taken, given)
	}
	if told := leaseChanged(nil, lease(corev1.NamespaceNodeLease)); told != nil {
		t.Errorf("of a kubelet's own: %+v", told)
	}
}

func TestEverySceneIsNamedWhereReadersLook(t *testing.T) {
	for file, named := range map[string]func(string) string{
		"Makefile":            func(name string) string { return "[=|]" + name + "[|,]" },
		"docs/development.md": func(name string) string { return "(?m)^\\| `" + name + "` " },
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scenes() {
			if !regexp.MustCompile(named(s.name)).Match(text) {
				t.Errorf("%s does not name the scene %s", file, s.name)
			}
		}
	}
}

func TestLongLinesAreBrokenAtSpaces(t *testing.T) {
	got := wrap("one two three\nfour incomprehensibilities", 9)
	if diff := cmp.Diff([]string{"one two", "three", "four", "incomprehensibilities"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLongScenesAreNamedAndNotPlayedByDefault(t *testing.T) {
	names := func(chosen []scene) (names []string) {
		for _, s := range chosen {
			names = append(names, s.name)
		}
		return names
	}
	for asked, want := range map[string]struct {
		names []string
		hint  bool
	}{
		"":          {[]string{"replace", "short-circuit", "reboot"}, true},
		"all":       {[]string{"replace", "short-circuit", "reboot"}, true},
		"replace":   {[]string{"replace"}, false},
		"dead-host": {[]string{"dead-host"}, false},
		"escalate":  {[]string{"escalate"}, false},
	} {
		chosen, err := choose(asked)
		if diff := cmp.Diff(want.names, names(chosen)); err != nil || diff != "" {
			t.Errorf("SCENE=%s: error %v, difference %s", asked, err, diff)
		}
		if hint := strings.Contains(leftOut(chosen), "make demo SCENE=dead-host"); hint != want.hint {
			t.Errorf("SCENE=%s: is the scene that was left out named? %t", asked, hint)
		}
	}
	if _, err := choose("no such scene"); err == nil || !strings.Contains(err.Error(), "dead-host") {
		t.Errorf("the error does not name the scenes: %v", err)
	}
}

func TestAPodThatItsKubeletDidNotEndWasRemovedByKubernetes(t *testing.T) {
	pod := func(phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": workload}},
			Spec:       corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase},
		}
	}
	for phase, by := range map[corev1.PodPhase]string{corev1.PodFailed: controllerManager, corev1.PodRunning: kubelet} {
		if seen := podChanged(pod(phase), nil); len(seen) != 1 || seen[0].fact != podGone || seen[0].by != by || seen[0].about != "n" {
			t.Errorf("%s: %+v", phase, seen)
		}
	}
}

func TestOnlyKubemendsAnnotationCountsAsAPowerHold(t *testing.T) {
	host := func(annotations ...string) *bmov1alpha1.BareMetalHost {
		h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "h", Annotations: map[string]string{}}}
		for _, key := range annotations {
			h.Annotations[key] = ""
		}
		return h
	}
	ours := infrav1.PowerOffAnnotationPrefix + "1"
	for name, tc := range map[string]struct {
		was, is *bmov1alpha1.BareMetalHost
		want    []fact
	}{
		"requested to be off":        {host(), host(ours), []fact{offAsked}},
		"released":                   {host(ours), host(), []fact{onAsked}},
		"released and marked":        {host(ours), host(infrav1.UnhealthyAnnotation), []fact{onAsked, hostMarked}},
		"kept off by another client": {host(), host("reboot.metal3.io/somebody"), nil},
		"still held":                 {host(ours), host(ours, "reboot.metal3.io"), nil},
	} {
		var got []fact
		for _, s := range bareMetalChanged(tc.was, tc.is) {
			got = append(got, s.fact)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
