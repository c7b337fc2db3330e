package hostremediation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// inVersion is the remediation of that UID as it was read in that version.
func inVersion(uid types.UID, version string) remediation.OfKind {
	rem := aRemediation(uid, "")
	rem.SetResourceVersion(version)
	return remediation.OfKind{Object: rem, Kind: remediation.Own}
}

func TestAQueueIsClaimedUntilOthersCanReadWhatCameOfIt(t *testing.T) {
	a, b := inVersion("a", "1"), inVersion("b", "1")
	refused := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("it was modified"))
	for name, tc := range map[string]struct {
		happens func(*Claims)
		seen    string // the version of a that b has read; empty if it has not read it
		ahead   string
	}{
		"W27: what is under way is waited for": {func(*Claims) {}, "1", "a"},
		"what cannot be read yet as well":      {func(c *Claims) { c.Written(a, "7", nil) }, "1", "a"},
		"what was read decides itself":         {func(c *Claims) { c.Written(a, "7", nil) }, "7", ""},
		"so does what came after it":           {func(c *Claims) { c.Written(a, "7", nil) }, "8", ""},
		"what was never read is waited for":    {func(c *Claims) { c.Written(a, "7", nil) }, "", "a"},
		"what was refused has not begun":       {func(c *Claims) { c.Written(a, "", refused) }, "1", ""},
		"a write without an answer is unknown": {func(c *Claims) { c.Written(a, "", errors.New("EOF")) }, "1", "a"},
		"nor if it is refused after that":      {func(c *Claims) { c.Written(a, "", errors.New("EOF")); c.Written(a, "", refused) }, "1", "a"},
		"until it is known":                    {func(c *Claims) { c.Written(a, "", errors.New("EOF")); c.Written(a, "7", nil) }, "7", ""},
		"a write that was refused later changes nothing": {
			func(c *Claims) {
				c.Written(a, "7", nil)
				c.Begin("queue", a, nil)
				c.Written(a, "", refused)
			}, "1", "a",
		},
		"what is over is not waited for":               {func(c *Claims) { c.End(remediation.Own.Kind, client.ObjectKeyFromObject(a)) }, "1", ""},
		"what is over of another kind decides nothing": {func(c *Claims) { c.End(remediation.Metal3.Kind, client.ObjectKeyFromObject(a)) }, "1", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var claims Claims
			if got := claims.Begin("queue", a, nil); got != "" {
				t.Fatalf("the first waits for %q", got)
			}
			tc.happens(&claims)
			if got := claims.Begin("another queue", inVersion("c", "1"), nil); got != "" {
				t.Errorf("in another queue %q is ahead", got)
			}
			var seen []remediation.OfKind
			if tc.seen != "" {
				seen = append(seen, inVersion("a", tc.seen))
			}
			if got := claims.Begin("queue", b, seen); got != tc.ahead {
				t.Errorf("%q is ahead, want %q", got, tc.ahead)
			}
			if again := claims.Begin("queue", a, []remediation.OfKind{b}); (again == "") != (tc.ahead == "a") {
				t.Errorf("the first waits for %q after that", again)
			}
		})
	}
}

// interleaved are the reconciles of the remediations of one queue, cut into what other reconciles can come between: to read, to claim, to write.
type interleaved struct {
	claims Claims
	// stored and cached are the versions and states of each remediation in the API server and in the cache.
	stored, cached map[types.UID]version
	// decided is what the reconcile under way has read, by its remediation; nil if it does not want to begin.
	decided map[types.UID][]remediation.OfKind
	claimed map[types.UID]bool
}

type version struct {
	number int
	begun  bool
}

func (i *interleaved) do(t *rapid.T, uid types.UID) {
	self := inVersion(uid, strconv.Itoa(i.cached[uid].number))
	switch what := rapid.SampledFrom([]string{"read", "claim", "write", "show", "end", "restart"}).Draw(t, "what"); {
	case what == "read" && !i.claimed[uid] && i.cached[uid] == i.stored[uid]: // it reads its own writes
		delete(i.decided, uid)
		if i.cached[uid].begun {
			return
		}
		var seen []remediation.OfKind
		for other, is := range i.cached {
			if other != uid && is.begun {
				i.claims.End(self.Kind.Kind, client.ObjectKeyFromObject(self)) // it waits, and needs no claim
				return
			}
			seen = append(seen, inVersion(other, strconv.Itoa(is.number)))
		}
		i.decided[uid] = seen
	case what == "claim" && i.decided[uid] != nil && !i.claimed[uid]:
		if i.claims.Begin("queue", self, i.decided[uid]) != "" {
			delete(i.decided, uid)
			return
		}
		i.claimed[uid] = true
	case what == "write" && i.claimed[uid]:
		i.write(t, uid, self)
	case what == "show":
		i.cached[uid] = i.stored[uid]
	case what == "end" && i.stored[uid].begun && !i.claimed[uid]:
		i.stored[uid] = version{i.stored[uid].number + 1, false}
	case what == "restart" && len(i.claimed) == 0: // a new process reads all that is stored first
		i.claims.by, i.decided = nil, map[types.UID][]remediation.OfKind{}
		for other, is := range i.stored {
			i.cached[other] = is
		}
	}
}

// write writes that a remediation has begun. The answer may be lost, and so may the write; the next reconcile finds out which.
func (i *interleaved) write(t *rapid.T, uid types.UID, self remediation.OfKind) {
	fate := rapid.SampledFrom([]string{"made", "made", "refused", "lost", "not made"}).Draw(t, "fate")
	next := version{i.stored[uid].number + 1, true}
	switch fate {
	case "made":
		i.stored[uid] = next
		i.claims.Written(self, strconv.Itoa(next.number), nil)
	case "refused":
		i.claims.Written(self, "", apierrors.NewForbidden(schema.GroupResource{}, "x", nil))
	default:
		if fate == "lost" {
			i.stored[uid] = next
		}
		i.claims.Written(self, "", errors.New("EOF"))
		if i.claims.Lost(self) { // unclaim reads it past the cache
			i.claims.Written(self, strconv.Itoa(i.stored[uid].number), nil)
		}
	}
	delete(i.claimed, uid)
	delete(i.decided, uid)
}

// Design, "What must hold, always", 4: whatever comes between the steps of reconciles that run at once, and however far the cache is behind, no two
// of a queue have begun.
func TestNoTwoRemediationsOfAQueueBeginHoweverTheirReconcilesInterleave(t *testing.T) {
	began := 0
	rapid.Check(t, func(t *rapid.T) {
		i := &interleaved{
			stored: map[types.UID]version{}, cached: map[types.UID]version{}, decided: map[types.UID][]remediation.OfKind{}, claimed: map[types.UID]bool{},
		}
		var all []types.UID
		for n := range rapid.IntRange(2, 4).Draw(t, "remediations") {
			uid := types.UID(fmt.Sprintf("r%d", n))
			all = append(all, uid)
			i.stored[uid] = version{number: n + 1}
			i.cached[uid] = i.stored[uid]
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i.do(t, rapid.SampledFrom(all).Draw(t, "of"))
			var begun []types.UID
			for _, uid := range all {
				if i.stored[uid].begun {
					begun = append(begun, uid)
				}
			}
			if len(begun) > 1 {
				t.Fatalf("%v have begun", begun)
			}
			began += len(begun)
		}
	})
	if began == 0 {
		t.Error("none ever began")
	}
}

func TestARemediationThatCannotBeginKeepsNoOtherWaiting(t *testing.T) {
	for is, begins := range map[powercycle.Host]bool{powercycle.HostOurs: true, powercycle.HostForeign: false} {
		k := fixtureOf(t)
		k.obeys()
		k.found = &host.Found{Host: host.From(k.host), Is: is}
		k.pass()
		rem := k.remediation()
		seen := []remediation.OfKind{{Object: remediation.Wrap(rem), Kind: remediation.Own}}
		if ahead := k.r.Claims.Begin("machine machine-uid", inVersion("other", "1"), seen); ahead != "" {
			t.Errorf("host %d: %q keeps another one waiting that reads what it is", is, ahead)
		}
		if got := remediation.Remembered(rem).UnderWay(); got != begins {
			t.Errorf("host %d: it is under way: %t", is, got)
		}
	}
}

// The API server has answered nothing to the write with which a remediation was to begin, and it was not made.
func TestARemediationThatAsksForNothingAnyMoreKeepsNoOtherWaiting(t *testing.T) {
	for name, change := range map[string]func(*mendv1.HostRemediation){
		"it has no strategy any more":  func(rem *mendv1.HostRemediation) { rem.Spec.Strategy = nil },
		"it names no machine any more": func(rem *mendv1.HostRemediation) { rem.OwnerReferences = nil },
		"it is another manager's":      func(rem *mendv1.HostRemediation) { rem.Labels = map[string]string{clusterv1.WatchLabel: "other"} },
	} {
		t.Run(name, func(t *testing.T) {
			k := fixtureOf(t, func(rem *mendv1.HostRemediation) { rem.Labels = map[string]string{clusterv1.WatchLabel: "ours"} })
			k.r.WatchFilterValue = "ours"
			here := k.r.Client
			k.r.Client = interceptor.NewClient(here.(client.WithWatch), interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return errors.New("EOF")
				},
			})
			if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k.key}); err == nil {
				t.Fatal("want the error of the write")
			}
			seen := []remediation.OfKind{{Object: remediation.Wrap(k.remediation()), Kind: remediation.Own}}
			if ahead := k.r.Claims.Begin("machine machine-uid", inVersion("other", "1"), seen); ahead != "m" {
				t.Fatalf("%q is ahead while it is unknown what came of the write, want m", ahead)
			}
			k.r.Client = here
			k.edit(change)
			k.pass()
			seen = []remediation.OfKind{{Object: remediation.Wrap(k.remediation()), Kind: remediation.Own}}
			if ahead := k.r.Claims.Begin("machine machine-uid", inVersion("other", "1"), seen); ahead != "" {
				t.Errorf("%q keeps another one waiting for ever", ahead)
			}
		})
	}
}

// Design, "What must hold, always", 4: of two members that decide by the same caches, which show neither beginning yet, one begins.
func TestOneOfTwoMembersBeginsWhileTheCachesShowNeither(t *testing.T) {
	p := planeOf(t, "b", "c")
	another := remembering("another", "another-uid", ofMachine("b", "b-uid"), "")
	if err := p.client.Create(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	cached := &mendv1.HostRemediationList{}
	if err := p.client.List(t.Context(), cached); err != nil {
		t.Fatal(err)
	}
	p.r.Client = interceptor.NewClient(p.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			for i := range cached.Items {
				if rem, is := into.(*mendv1.HostRemediation); is && cached.Items[i].Name == key.Name {
					cached.Items[i].DeepCopyInto(rem)
					return nil
				}
			}
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			if list, is := into.(*mendv1.HostRemediationList); is {
				cached.DeepCopyInto(list)
				return nil
			}
			return c.List(ctx, into, opts...)
		},
	})
	for range 3 {
		for _, rem := range cached.Items {
			if _, err := p.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&rem)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	begun := &mendv1.HostRemediationList{}
	if err := p.client.List(t.Context(), begun); err != nil {
		t.Fatal(err)
	}
	underWay := 0
	for i := range begun.Items {
		if remediation.Remembered(&begun.Items[i]).UnderWay() {
			underWay++
		}
	}
	if underWay != 1 {
		t.Errorf("%d have begun, want 1", underWay)
	}
}
