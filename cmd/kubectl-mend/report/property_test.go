package report

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// naive is a report counted in the plainest way: one question at a time, over all remediations.
func naive(all []Remediation, q Question, of func(*Remediation) bool) Group {
	g := Group{Outcomes: map[mendv1.RecordOutcome]int{}}
	var detect, begin, repair, back []float64
	for i := range all {
		r := &all[i]
		if !asked(r, q) || !of(r) {
			continue
		}
		if nothing(r) {
			g.NotBegun++
			continue
		}
		g.Remediations++
		if r.Ended.IsZero() {
			g.Open++
		} else {
			g.Outcomes[r.Outcome]++
		}
		counts := r.Decided
		if !r.Due.IsZero() && r.Due.Before(counts) {
			counts = r.Due
		}
		if !r.Begun.IsZero() {
			begin = append(begin, max(0, r.Begun.Sub(counts).Seconds()))
		}
		if !r.UnhealthySince.IsZero() {
			detect = append(detect, max(0, counts.Sub(r.UnhealthySince).Seconds()))
		}
		if !r.CapacityBack.IsZero() {
			if !r.Begun.IsZero() {
				repair = append(repair, max(0, r.CapacityBack.Sub(r.Begun).Seconds()))
			}
			if !r.UnhealthySince.IsZero() {
				back = append(back, max(0, r.CapacityBack.Sub(r.UnhealthySince).Seconds()))
			}
		}
	}
	g.Detect, g.Begin, g.Repair, g.Back = plainly(detect), plainly(begin), plainly(repair), plainly(back)
	if len(g.Outcomes) == 0 {
		g.Outcomes = nil
	}
	return g
}

// asked reports whether a remediation is to be counted, and nothing whether there was none.
func asked(r *Remediation, q Question) bool {
	return r.Mode == "Active" && !r.Decided.Before(q.Since) && (q.Cluster == "" || r.Cluster.Name == q.Cluster)
}

func nothing(r *Remediation) bool {
	return r.Begun.IsZero() && (r.Ended.IsZero() || r.Outcome == "Cancelled")
}

// plainly sums up seconds: the percentile is the first of them that at least 95 of 100 do not exceed.
func plainly(all []float64) Summary {
	if len(all) == 0 {
		return Summary{}
	}
	sum := 0
	for _, s := range all {
		sum += int(s)
	}
	is := Summary{Count: len(all), Mean: time.Duration(sum*1e6/len(all)) * time.Microsecond, Max: time.Duration(slices.Max(all)) * time.Second}
	slices.Sort(all)
	for _, candidate := range all {
		below := 0
		for _, s := range all {
			if s <= candidate {
				below++
			}
		}
		if 100*below >= 95*len(all) {
			is.P95 = time.Duration(candidate) * time.Second
			break
		}
	}
	return is
}

// random is a remediation of which anything may be missing.
func random(rnd *rand.Rand, i int) Remediation {
	since := rnd.IntN(30 * 86400)
	r := one(fmt.Sprintf("m%d", rnd.IntN(40)), func(r *Remediation) {
		r.Record.Name = fmt.Sprintf("r%d", i)
		r.Cluster.Name, r.Cause, r.Host.Name = fmt.Sprintf("c%d", rnd.IntN(3)), []string{"Ready=Unknown", "Ready=False", ""}[rnd.IntN(3)], fmt.Sprintf("h%d", rnd.IntN(15))
		r.UnhealthySince, r.Due = at(since), at(since+rnd.IntN(1000))
		r.Decided = at(since + rnd.IntN(1500))
		r.Begun = r.Decided.Add(time.Duration(rnd.IntN(300)-10) * time.Second)
		r.CapacityBack = r.Begun.Add(time.Duration(rnd.IntN(7200)-10) * time.Second)
		r.Ended = r.CapacityBack
		r.Outcome = []mendv1.RecordOutcome{"Healed", "Replaced"}[rnd.IntN(2)]
	})
	for _, maybe := range []func(*Remediation){open, notBegun, byHand, ended("GivenUp"), ended("Gone"), func(r *Remediation) { r.Begun = time.Time{} }, func(r *Remediation) { r.Mode = "Observed" }} {
		if rnd.IntN(8) == 0 {
			maybe(&r)
		}
	}
	return r
}

func TestAReportIsWhatAPlainCountIs(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 20))
		all := make([]Remediation, rnd.IntN(200))
		for i := range all {
			all[i] = random(rnd, i)
		}
		q := Question{By: []Dimension{ByCluster, ByCause}, AtLeast: 3, Within: 7 * day}
		if rnd.IntN(2) == 0 {
			q.Since = at(rnd.IntN(30 * 86400))
		}
		if rnd.IntN(4) == 0 {
			q.Cluster = "c1"
		}
		got := Of(all, q)
		if diff := cmp.Diff(naive(all, q, func(*Remediation) bool { return true }), got.Total); diff != "" {
			t.Fatalf("seed %d (-plain +got):\n%s", seed, diff)
		}
		sum := 0
		for _, g := range got.Groups {
			want := naive(all, q, func(r *Remediation) bool { return r.Cluster == g.Cluster && r.Cause == g.Cause })
			want.Key = g.Key
			if diff := cmp.Diff(want, g); diff != "" {
				t.Fatalf("seed %d, %+v (-plain +got):\n%s", seed, g.Key, diff)
			}
			sum += g.Remediations
		}
		if sum != got.Total.Remediations {
			t.Fatalf("seed %d: the groups have %d remediations together, all are %d", seed, sum, got.Total.Remediations)
		}
		hosts := map[string]int{}
		for _, r := range got.Repeated {
			if r.Object.Kind == "BareMetalHost" {
				hosts[r.Object.Name] = r.Most
			}
		}
		if diff := cmp.Diff(hostsAgain(all, q), hosts); diff != "" {
			t.Fatalf("seed %d: repeatedly remediated (-plain +got):\n%s", seed, diff)
		}
	}
}

// hostsAgain are the hosts that were remediated often enough, by looking at each window that begins with a remediation.
func hostsAgain(all []Remediation, q Question) map[string]int {
	hosts := map[string]int{}
	for _, first := range all {
		n := 0
		for _, r := range all {
			if !asked(&r, q) || nothing(&r) {
				continue
			}
			begun, begins := r.Begun, first.Begun
			if begun.IsZero() {
				begun = r.Decided
			}
			if begins.IsZero() {
				begins = first.Decided
			}
			if r.Host == first.Host && !begun.Before(begins) && !begun.After(begins.Add(q.Within)) {
				n++
			}
		}
		if n >= q.AtLeast {
			hosts[first.Host.Name] = max(hosts[first.Host.Name], n)
		}
	}
	return hosts
}
