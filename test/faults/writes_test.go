package faults

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestTheChosenWriteFails(t *testing.T) {
	labelled := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	cases := map[string]struct {
		nth    int
		fate   Fate
		errs   []func(error) bool // of three writes
		done   []string
		struck bool
		reads  bool
	}{
		"without a choice all pass": {
			errs: []func(error) bool{none, none, none}, done: []string{"create Node/n", "patch Node/n", "delete Node/n"}, reads: true,
		},
		"one that is refused changes nothing": {
			nth: 2, fate: Refused, errs: []func(error) bool{none, apierrors.IsInternalError, none}, done: []string{"create Node/n", "delete Node/n"},
			struck: true, reads: true,
		},
		"one whose answer is lost is carried out": {
			nth: 2, fate: Lost, errs: []func(error) bool{none, lost, none}, done: []string{"create Node/n", "patch Node/n", "delete Node/n"},
			struck: true, reads: true,
		},
		"the last one before a crash is carried out, and nothing after it": {
			nth: 2, fate: Crash, errs: []func(error) bool{none, crashed, crashed}, done: []string{"create Node/n", "patch Node/n"}, struck: true,
		},
		"one that never comes does not strike": {
			nth: 4, fate: Crash, errs: []func(error) bool{none, none, none}, done: []string{"create Node/n", "patch Node/n", "delete Node/n"}, reads: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var w Writes
			w.Choose(tc.nth, tc.fate)
			then := 0
			w.Then = func(n int) { then = n }
			c := w.Client(fake.NewClientBuilder().WithObjects(node("other")).Build())
			for i, write := range []func(context.Context) error{
				func(ctx context.Context) error { return c.Create(ctx, node("n")) },
				func(ctx context.Context) error { return c.Patch(ctx, node("n"), labelled) },
				func(ctx context.Context) error { return c.Delete(ctx, node("n")) },
			} {
				if err := write(t.Context()); !tc.errs[i](err) {
					t.Errorf("write %d: %v", i+1, err)
				}
			}
			writes, struck := w.Done()
			var done []string
			for _, write := range writes {
				done = append(done, write.String())
			}
			if !slices.Equal(done, tc.done) || struck != tc.struck || then != len(done) {
				t.Errorf("carried out %q, struck %t, told of %d; want %q, %t", done, struck, then, tc.done, tc.struck)
			}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "other"}, node("")); (err == nil) != tc.reads || w.Crashed() == tc.reads {
				t.Errorf("a read afterwards: %v, crashed %t", err, w.Crashed())
			}
			w.Restart()
			if err := c.Get(t.Context(), client.ObjectKey{Name: "other"}, node("")); err != nil {
				t.Errorf("a read after the restart: %v", err)
			}
		})
	}
}

func none(err error) bool    { return err == nil }
func lost(err error) bool    { return errors.Is(err, errLost) }
func crashed(err error) bool { return errors.Is(err, ErrCrashed) }

func TestARefusedRequestIsNoWrite(t *testing.T) {
	var w Writes
	w.Ignore = []string{"Namespace"}
	w.Choose(1, Lost)
	c := w.Client(fake.NewClientBuilder().WithObjects(node("n")).Build())
	if err := c.Create(t.Context(), node("n")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("%v, want that it exists already", err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}); err != nil {
		t.Errorf("a write of a kind without a fault: %v", err)
	}
	if err := c.Delete(t.Context(), node("n")); !lost(err) {
		t.Errorf("%v, want that the answer is lost", err)
	}
}

func TestASectionIsReplaced(t *testing.T) {
	text := "# Title\n<!-- begin a -->\nold\n<!-- end a -->\n<!-- begin b -->\n<!-- end b -->\n"
	want := "# Title\n<!-- begin a -->\n\nnew\n\n<!-- end a -->\n<!-- begin b -->\n<!-- end b -->\n"
	if got, found := replace(text, "a", "new\n"); got != want || !found {
		t.Errorf("got %q, %t", got, found)
	}
	if got, found := replace(want, "a", "new"); got != want || !found {
		t.Errorf("once more: got %q, %t", got, found)
	}
	if _, found := replace(text, "c", "new"); found {
		t.Error("a section that is not there was found")
	}
}
