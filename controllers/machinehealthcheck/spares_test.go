package machinehealthcheck

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

const (
	waitsOfMachine = "False/NoSpareHost: No spare host fits its replacement: no host is free. " +
		"Its remediation waits until 2026-01-01T12:10:00Z at most (kubemend.io/wait-for-spare)"
	waitsOfCheck = "False/NoSpareHost: Wait for a spare host, at most: a until 2026-01-01T12:10:00Z. Free hosts: 0"
)

func TestAMachineWaitsForASpareHostAndSaysSo(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	if next := r.pass(0, "c1"); next != 10*time.Minute || r.asked() != "" {
		t.Errorf("asked: %q, it is looked at again in %s, want it at its deadline", r.asked(), next)
	}
	if got := r.says(r.get("a")); got != waitsOfMachine {
		t.Errorf("the machine says %q, want %q", got, waitsOfMachine)
	}
	if got := r.says(r.check("c1")); got != waitsOfCheck {
		t.Errorf("the check says %q, want %q", got, waitsOfCheck)
	}
	was := r.get("a").ResourceVersion
	r.pass(time.Minute, "c1")
	if is := r.get("a").ResourceVersion; is != was {
		t.Errorf("the machine is written although nothing has changed: %s, then %s", was, is)
	}
	spare := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	if got := r.checksOfHost(t.Context(), spare); len(got) != 1 || got[0].Name != "c1" {
		t.Errorf("a host that becomes free enqueues %v", got)
	}
	r.host("spare", "", "")
	r.pass(2*time.Minute, "c1")
	if r.asked() != "a" || r.says(r.get("a")) != "" || r.says(r.check("c1")) != "" {
		t.Errorf("with a host: asked %q; says %q, %q", r.asked(), r.says(r.get("a")), r.says(r.check("c1")))
	}
	if got := r.checksOfHost(t.Context(), spare); len(got) > 0 {
		t.Errorf("when none waits, a host enqueues %v", got)
	}
}

// The metric has the first blocker of each machine, and nothing of one that is over.
func TestBlockedMachinesAreCountedByTheirBlocker(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	r.bad("c1", "b")
	counted := func() map[string]float64 {
		series := make(chan prometheus.Metric, 100)
		blockedMachines.Collect(series)
		close(series)
		all := map[string]float64{}
		for s := range series {
			var is dto.Metric
			if err := s.Write(&is); err != nil {
				t.Fatal(err)
			}
			labels := map[string]string{}
			for _, l := range is.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["namespace"] == "ns" && labels["name"] == "c1" {
				all[labels["reason"]] = is.GetGauge().GetValue()
			}
		}
		return all
	}
	for _, step := range []struct {
		name string
		do   func()
		want map[string]float64
	}{
		{"both wait", func() {}, map[string]float64{"NoSpareHost": 2}},
		{"one has a host", func() { r.host("spare", "", "") }, map[string]float64{"NoSpareHost": 1}},
		{"hosts cannot be read", func() { r.hosts.err = errors.New("you may not") }, map[string]float64{"SpareHostsUnread": 1}},
		{"both have one", func() { r.hosts.err = nil; r.host("another", "", "") }, map[string]float64{}},
	} {
		step.do()
		r.pass(time.Minute, "c1")
		if diff := cmp.Diff(step.want, counted()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestAfterItsDeadlineARemediationBeginsWithoutAHostAndSaysSo(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	r.pass(0, "c1")
	for _, at := range []time.Duration{5 * time.Minute, 10*time.Minute - time.Second} {
		r.pass(at, "c1")
		if r.asked() != "" {
			t.Fatalf("after %s the owner is asked", at)
		}
	}
	r.pass(10*time.Minute, "c1")
	const want = "Asked the owner to remediate a. No spare host fits its replacement, and the wait for one ended at 2026-01-01T12:10:00Z"
	var all []string
	for len(r.told.Events) > 0 {
		all = append(all, <-r.told.Events)
	}
	if r.asked() != "a" || !strings.Contains(strings.Join(all, "\n"), want) {
		t.Errorf("asked: %q; events %q, want %q", r.asked(), all, want)
	}
}

func TestOneHostIsNotCountedOnByTwoChecks(t *testing.T) {
	for name, second := range map[string]func(*pool){
		"one after the other":         func(r *pool) { r.pass(0, "c1"); r.pass(0, "c2") },
		"at the same moment":          func(r *pool) { r.then = func() { r.pass(0, "c2") }; r.pass(0, "c1") },
		"after a restart in between":  func(r *pool) { r.pass(0, "c1"); r.start(); r.pass(0, "c2") },
		"before a cache shows it":     func(r *pool) { r.behind("a", func() { r.pass(0, "c1"); r.pass(time.Second, "c2") }) },
		"while a replacement is made": func(r *pool) { r.pass(0, "c1"); r.replaced("c1", "a"); r.pass(time.Minute, "c2") },
		"while it waits for its host": func(r *pool) {
			r.pass(0, "c1")
			r.replaced("c1", "a")
			r.machine("c1", "a2", "", false)
			r.pass(time.Minute, "c2")
		},
		"after a restart while it waits": func(r *pool) {
			r.pass(0, "c1")
			r.replaced("c1", "a")
			r.machine("c1", "a2", "", false)
			r.start()
			r.pass(time.Minute, "c2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPool(t)
			r.bad("c1", "a")
			r.bad("c2", "b")
			r.host("spare", "", "")
			second(r)
			if got, first := r.asked(), name != "at the same moment"; got == "a b" || first == (OwnerOf(r.get("b")) != NotAsked) {
				t.Errorf("asked: %q, want one of them: the one that was first", got)
			}
			if waits := r.says(r.get("b")); waits == "" && OwnerOf(r.get("b")) == NotAsked {
				t.Error("the one that waits does not say so")
			}
			r.host("another", "", "")
			r.start()
			r.pass(2*time.Minute, "c2")
			if got := r.asked(); !strings.Contains(got, "b") {
				t.Errorf("with a second host: asked %q, want b among them", got)
			}
		})
	}
}

func TestAHostOfAnotherPoolIsNoSpare(t *testing.T) {
	r := newPool(t)
	r.machine("c1", "a", "workers", true, clusterv1.RemediateMachineAnnotation)
	r.host("spare", "storage", "")
	r.pass(0, "c1")
	if r.asked() != "" || !strings.Contains(r.says(r.get("a")), "of 1 free none has the labels") {
		t.Errorf("asked: %q; says %q", r.asked(), r.says(r.get("a")))
	}
	r.host("spare-2", "workers", "")
	r.pass(time.Minute, "c1")
	if r.asked() != "a" {
		t.Error("with a host of the pool the owner is not asked")
	}
}

// Which hosts there are may be unknown: that is no host, and no reason to wait longer.
func TestHostsThatCannotBeReadAreNotCountedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*pool)
		says   string
	}{
		"without rights":          {func(r *pool) { r.hosts.err = errors.New("you may not") }, "Whether a spare host fits its replacement is not known: you may not"},
		"without a watch":         {func(r *pool) { r.Hosts = nil }, "not known: this reader does not read hosts"},
		"without a Metal3Machine": {func(r *pool) { r.noBetween("a") }, "not known: read Metal3Machine ns/a: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPool(t)
			r.bad("c1", "a")
			r.host("spare", "", "")
			tc.change(r)
			if next := r.pass(0, "c1"); next != unreadAgain || r.asked() != "" {
				t.Errorf("asked: %q, tried again in %s", r.asked(), next)
			}
			if got := r.says(r.get("a")); !strings.HasPrefix(got, "False/SpareHostsUnread") || !strings.Contains(got, tc.says) {
				t.Errorf("the machine says %q", got)
			}
			r.pass(10*time.Minute, "c1")
			if r.asked() != "a" {
				t.Error("after the deadline the owner is not asked")
			}
		})
	}
}

// A process that has counted on a host before knows that the hosts change. If they cannot be read any more, it decides without them.
func TestADeadlineEndsAlsoIfHostsCannotBeReadAfterOneWasTaken(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	r.host("spare", "", "")
	r.pass(0, "c1")
	r.bad("c2", "b")
	r.hosts.err = errors.New("you may not any more")
	r.pass(0, "c2")
	if r.asked() != "a" {
		t.Fatalf("before the deadline: asked %q", r.asked())
	}
	r.pass(10*time.Minute, "c2")
	if r.asked() != "a b" {
		t.Errorf("after the deadline: asked %q", r.asked())
	}
}

// When another check's machine needs no host any more, the one that waits hears of it.
func TestAMachineOfAnotherCheckEnqueuesTheOneThatWaits(t *testing.T) {
	r := newPool(t)
	r.bad("c1", "a")
	other := r.machine("c2", "b", "", false)
	if got := r.checksOfMachineOrSpare(t.Context(), other); len(got) != 1 {
		t.Errorf("before one waits, a machine enqueues %v", got)
	}
	r.pass(0, "c1")
	if got := r.checksOfMachineOrSpare(t.Context(), other); len(got) != 2 {
		t.Errorf("a machine of another cluster enqueues %v", got)
	}
	if got := r.checksOfMachineOrSpare(t.Context(), r.get("a")); len(got) != 1 {
		t.Errorf("one of its own enqueues %v, want each once", got)
	}
	virtual := r.get("b")
	virtual.Spec.InfrastructureRef.Kind = "DockerMachine"
	if got := r.checksOfMachineOrSpare(t.Context(), virtual); len(got) != 1 {
		t.Errorf("one that is on no host enqueues %v", got)
	}
}

func TestForHowLongACheckWaitsForASpareHost(t *testing.T) {
	wait, timeout := mendv1.WaitForSpareAnnotation, mendv1.WaitForSpareTimeoutAnnotation
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        time.Duration // zero for none
		why         string
	}{
		"an hour by default":          {map[string]string{wait: "true"}, time.Hour, ""},
		"the longest time":            {map[string]string{wait: "true", timeout: "24h"}, 24 * time.Hour, ""},
		"not without the annotation":  {nil, 0, ""},
		"not with false":              {map[string]string{wait: "false"}, 0, ""},
		"not with a time alone":       {map[string]string{timeout: "1m"}, 0, ""},
		"a value that is no boolean":  {map[string]string{wait: "yes"}, 0, `metadata.annotations[kubemend.io/wait-for-spare]: "yes" is neither true nor false`},
		"an empty one":                {map[string]string{wait: ""}, 0, `metadata.annotations[kubemend.io/wait-for-spare]: "" is neither true nor false`},
		"a time that is no duration":  {map[string]string{timeout: "ten"}, 0, `[kubemend.io/wait-for-spare-timeout]: "ten" is no duration of more than zero and at most 24h`},
		"no time":                     {map[string]string{timeout: "0s"}, 0, `"0s" is no duration of more than zero`},
		"a time that is below zero":   {map[string]string{timeout: "-5m"}, 0, `"-5m" is no duration of more than zero`},
		"a time that is for too long": {map[string]string{timeout: "24h1s"}, 0, `"24h1s" is no duration of more than zero and at most 24h`},
	} {
		w := aCheck(a("m", health.Unhealthy))
		w.Check.Annotations = tc.annotations
		d, invalid := SpareWaitOf(w.Check)
		if ptr.Deref(d, 0) != tc.want && invalid == nil || (invalid == nil) != (tc.why == "") {
			t.Errorf("%s: it waits %v (%v)", name, d, invalid)
		}
		p := decide(w)
		if c := p.Allowed; tc.why != "" && (starts(p) > 0 || c.Reason != mendv1.InvalidLimitReason || !strings.Contains(c.Message, tc.why)) {
			t.Errorf("%s: %d begin; RemediationAllowed is %s: %s", name, starts(p), c.Reason, c.Message)
		}
	}
}
