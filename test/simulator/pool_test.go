package simulator

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubemend/kubemend/test/builders"
)

// aMachine is a Metal3Machine that selects hosts in this way, if it does.
func aMachine(selector any) *unstructured.Unstructured {
	m := empty(metal3Machine)
	m.SetNamespace("ns")
	m.SetName("m")
	m.Object["spec"] = map[string]any{}
	if selector != nil {
		m.Object["spec"] = map[string]any{"hostSelector": selector}
	}
	return m
}

// available is a free host with these edits.
func available(name string, edits ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	h := builders.BareMetalHost("ns", name)
	h.Status.Provisioning.State = bmov1alpha1.StateAvailable
	for _, edit := range edits {
		edit(h)
	}
	return h
}

func in(state bmov1alpha1.ProvisioningState) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = state }
}

func TestAMachineGetsAHostThatItSelects(t *testing.T) {
	inZone := func(zones ...any) map[string]any {
		return map[string]any{"matchExpressions": []any{map[string]any{"key": "zone", "operator": "In", "values": zones}}}
	}
	zone := func(zone string) func(*bmov1alpha1.BareMetalHost) {
		return func(h *bmov1alpha1.BareMetalHost) { h.Labels = map[string]string{"zone": zone} }
	}
	for name, tc := range map[string]struct {
		selector any
		want     string
		fails    bool
	}{
		"any, without a selector":          {nil, "a", false},
		"by a label":                       {map[string]any{"matchLabels": map[string]any{"zone": "2"}}, "b", false},
		"by an expression":                 {inZone("2", "3"), "b", false},
		"none that fits":                   {inZone("3"), "", false},
		"none by a selector that is wrong": {"zone=2", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			host, err := choose([]bmov1alpha1.BareMetalHost{*available("b", zone("2")), *available("a", zone("1"))}, aMachine(tc.selector))
			if host != nil {
				got = host.Name
			}
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("it gets %q (%v), want %q", got, err, tc.want)
			}
		})
	}
}

func TestWhichHostsAMachineMayTake(t *testing.T) {
	annotated := builders.Annotated[*bmov1alpha1.BareMetalHost]
	for name, tc := range map[string]struct {
		edit func(*bmov1alpha1.BareMetalHost)
		may  bool
	}{
		"one that is free":                         {func(*bmov1alpha1.BareMetalHost) {}, true},
		"its own":                                  {builders.ConsumedBy("m"), true},
		"not that of another":                      {builders.ConsumedBy("another"), false},
		"not one that is marked by CAPM3":          {annotated("capm3.metal3.io/unhealthy", ""), false},
		"not one that was marked by an older one":  {annotated("capi.metal3.io/unhealthy", ""), false},
		"not one that is paused":                   {annotated(bmov1alpha1.PausedAnnotation, ""), false},
		"not one that is detached":                 {annotated(bmov1alpha1.DetachedAnnotation, ""), false},
		"not one with an error":                    {func(h *bmov1alpha1.BareMetalHost) { h.Status.ErrorMessage = "fire" }, false},
		"not one that is deleted":                  {func(h *bmov1alpha1.BareMetalHost) { h.DeletionTimestamp = ptr.To(metav1.Now()) }, false},
		"not one that is provisioned for somebody": {in(bmov1alpha1.StateProvisioned), false},
	} {
		host, err := choose([]bmov1alpha1.BareMetalHost{*available("h", tc.edit)}, aMachine(nil))
		if (host != nil) != tc.may || err != nil {
			t.Errorf("%s: it gets %v (%v)", name, host, err)
		}
	}
}

// changing changes the host of a pool, if it is to be changed, and returns it.
type changing func(change func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost

// lodged has a Metal3Machine on the only host of a pool.
func lodged(t *testing.T, edits ...func(*bmov1alpha1.BareMetalHost)) (*pool, *unstructured.Unstructured, changing) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := bmov1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	m := aMachine(nil)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(available("h", edits...), m).Build()
	p := &pool{client: c}
	if host, err := p.place(t.Context(), m); err != nil || host == nil {
		t.Fatalf("it gets %v: %v", host, err)
	}
	return p, m, func(edit func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
		t.Helper()
		h := &bmov1alpha1.BareMetalHost{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "h"}, h); err != nil {
			t.Fatal(err)
		}
		if edit != nil {
			edit(h)
			if err := c.Update(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		return h
	}
}

func TestAHostIsReleasedOnceItIsDeprovisioned(t *testing.T) {
	for name, neverOff := range map[string]bool{"and off": false, "and on, if it must not be off": true} {
		t.Run(name, func(t *testing.T) {
			p, m, host := lodged(t, func(h *bmov1alpha1.BareMetalHost) { h.Spec.DisablePowerOff = neverOff })
			h := host(in(bmov1alpha1.StateProvisioned))
			if h.Spec.Image == nil || !h.Spec.Online || !consumedBy(h, m) || m.GetAnnotations()[hostAnnotation] != "ns/h" {
				t.Fatalf("it is taken so: %+v, by %v", h.Spec, m.GetAnnotations())
			}
			for _, state := range []bmov1alpha1.ProvisioningState{bmov1alpha1.StateProvisioned, bmov1alpha1.StateDeprovisioning} {
				host(in(state))
				if done, err := p.vacate(t.Context(), m); done || err != nil {
					t.Errorf("while it is %s it is released (%v)", state, err)
				}
			}
			if h := host(in(bmov1alpha1.StateAvailable)); h.Spec.Image != nil || h.Spec.Online != neverOff || !consumedBy(h, m) {
				t.Errorf("it is deprovisioned so: %+v", h.Spec)
			}
			if done, err := p.vacate(t.Context(), m); !done || err != nil || host(nil).Spec.ConsumerRef != nil {
				t.Errorf("it is not released (%v)", err)
			}
		})
	}
}

func TestAHostIsPausedWithItsClusterAndNoLonger(t *testing.T) {
	p, m, host := lodged(t)
	host(func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn = true })
	for _, paused := range []bool{true, false} {
		if err := p.pause(t.Context(), m, paused); err != nil {
			t.Fatal(err)
		}
		if _, is := host(nil).Annotations[bmov1alpha1.PausedAnnotation]; is != paused {
			t.Errorf("it is paused: %t, want %t", is, paused)
		}
	}
	if err := p.pause(t.Context(), m, true); err != nil {
		t.Fatal(err)
	}
	host(func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.PausedAnnotation] = "by a person" })
	if err := p.pause(t.Context(), m, false); err != nil || host(nil).Annotations[bmov1alpha1.PausedAnnotation] != "by a person" {
		t.Errorf("the pause of a person is ended (%v)", err)
	}
}
