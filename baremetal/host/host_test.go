package host

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/spare"
)

const holdOff = infrav1.PowerOffAnnotationPrefix

func aHost(changes ...func(*bmov1alpha1.BareMetalHost)) *bmov1alpha1.BareMetalHost {
	h := &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host-1", UID: "host-uid", Annotations: map[string]string{}},
		Spec: bmov1alpha1.BareMetalHostSpec{
			Online:      true,
			ConsumerRef: &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3Machine", Namespace: "ns", Name: "m3m-1"},
		},
	}
	h.Status.PoweredOn = true
	h.Status.Provisioning.State = bmov1alpha1.StateProvisioned
	for _, change := range changes {
		if change != nil {
			change(h)
		}
	}
	return h
}

func annotated(pairs ...string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) {
		for pair := range slices.Chunk(pairs, 2) {
			h.Annotations[pair[0]] = pair[1]
		}
	}
}

func aMachine(changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m-1", UID: "machine-uid"}}
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "m3m-1"}
	for _, change := range changes {
		change(m)
	}
	return m
}

func aMetal3Machine(host string) *unstructured.Unstructured {
	m := &unstructured.Unstructured{}
	m.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
	m.SetNamespace("ns")
	m.SetName("m3m-1")
	if host != "" {
		m.SetAnnotations(map[string]string{infrav1.HostAnnotation: host})
	}
	return m
}

func hosts(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Hosts {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Do(t, errors.Join(bmov1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	scheme.AddKnownTypeWithName(infrav1.GroupVersion.WithKind("Metal3MachineList"), &unstructured.UnstructuredList{})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{infrav1.GroupVersion, bmov1alpha1.GroupVersion})
	for _, kind := range []schema.GroupVersionKind{infrav1.GroupVersion.WithKind("Metal3Machine"), bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), bmov1alpha1.GroupVersion.WithKind("HostClaim")} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return &Hosts{Client: c, Live: c}
}

func TestPowerOf(t *testing.T) {
	cases := map[string]struct {
		change func(*bmov1alpha1.BareMetalHost)
		deaf   string
		say    string
	}{
		"a provisioned host is managed": {func(*bmov1alpha1.BareMetalHost) {}, "", ""},
		"an externally provisioned one too": {func(h *bmov1alpha1.BareMetalHost) {
			h.Status.Provisioning.State = bmov1alpha1.StateExternallyProvisioned
		}, "", ""},
		"W25: one that is deprovisioned is not":    {func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning }, `the host is "deprovisioning", and its power is managed only when it is "provisioned" or "externally provisioned"`, ""},
		"nor is an available one":                  {func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateAvailable }, `the host is "available", and its power is managed only when it is "provisioned" or "externally provisioned"`, ""},
		"nor a paused one":                         {annotated(bmov1alpha1.PausedAnnotation, "metal3.io/capm3"), `the host is paused (annotation baremetalhost.metal3.io/paused: "metal3.io/capm3")`, ""},
		"nor a detached one":                       {annotated(bmov1alpha1.DetachedAnnotation, ""), "the host is detached", ""},
		"nor one that has not noticed it any more": {func(h *bmov1alpha1.BareMetalHost) { h.Status.OperationalStatus = bmov1alpha1.OperationalStatusDetached }, "the host is detached", ""},
		"an error of the host is reported": {func(h *bmov1alpha1.BareMetalHost) {
			h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no route"
		}, "", "power management error: no route"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := PowerOf(aHost(tc.change))
			setAside := strings.Contains(tc.deaf, "paused") || strings.Contains(tc.deaf, "detached")
			if got.Unmanaged != tc.deaf || got.SetAside != setAside || got.Trouble != tc.say {
				t.Errorf("PowerOf() = %+v, want deaf %q, trouble %q", got, tc.deaf, tc.say)
			}
		})
	}
}

func TestMarksOf(t *testing.T) {
	us := Remediation{UID: "new", Before: "old"}
	cases := map[string]struct {
		change  func(*bmov1alpha1.BareMetalHost)
		attempt int
		want    powercycle.Marks
	}{
		"none":                              {annotated(), 1, powercycle.Marks{}},
		"held off":                          {annotated(holdOff+"new", "x"), 1, powercycle.Marks{KeptOff: true, HasPowerAnnotations: true}},
		"W22: held off before it was moved": {annotated(holdOff+"old", "x"), 1, powercycle.Marks{KeptOff: true, HasPowerAnnotations: true}},
		"C12: held off by others":           {annotated(holdOff+"other", "x", "reboot.metal3.io/me", ""), 1, powercycle.Marks{}},
		"to be rebooted":                    {annotated(infrav1.RebootAnnotation, rebootValue, mendv1.RebootedForAnnotation, "new/2"), 2, powercycle.Marks{RebootAsked: true, RebootPending: true, HasPowerAnnotations: true}},
		"rebooted":                          {annotated(mendv1.RebootedForAnnotation, "new/2"), 2, powercycle.Marks{RebootAsked: true, HasPowerAnnotations: true}},
		"rebooted in another attempt":       {annotated(mendv1.RebootedForAnnotation, "new/1"), 2, powercycle.Marks{HasPowerAnnotations: true}},
		"rebooted for others":               {annotated(infrav1.RebootAnnotation, rebootValue, mendv1.RebootedForAnnotation, "other/2"), 2, powercycle.Marks{}},
		"a receipt is asked for":            {annotated(infrav1.RebootAnnotation, rebootValue, mendv1.ReceiptForAnnotation, "new/2026-01-01T12:00:00Z"), 1, powercycle.Marks{ReceiptAsked: true, HasPowerAnnotations: true}},
		"it is given":                       {annotated(mendv1.ReceiptForAnnotation, "new/2026-01-01T12:00:00Z"), 1, powercycle.Marks{ReceiptAsked: true, ReceiptGiven: true, HasPowerAnnotations: true}},
		"for what was asked before":         {annotated(mendv1.ReceiptForAnnotation, "new/2026-01-01T11:00:00Z"), 1, powercycle.Marks{HasPowerAnnotations: true}},
		"a receipt for others":              {annotated(mendv1.ReceiptForAnnotation, "other/2026-01-01T12:00:00Z"), 1, powercycle.Marks{}},
		"unhealthy for CAPM3 1.13 alone":    {annotated(infrav1.UnhealthyAnnotation, "x"), 1, powercycle.Marks{}},
		"unhealthy for all":                 {annotated(infrav1.UnhealthyAnnotation, "x", infrav1.LegacyUnhealthyAnnotation, "x"), 1, powercycle.Marks{HostMarked: true}},
	}
	asked := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, MarksOf(aHost(tc.change), us, tc.attempt, asked), "MarksOf() =")
		})
	}
}

// A remediation that removes all its annotations leaves the host as it was, and never changes those of others.
func TestMarksComeAndGo(t *testing.T) {
	us := Remediation{UID: "new", Before: "old"}
	foreign := annotated(holdOff+"other", "x", "reboot.metal3.io/me", "", "note", "keep")
	type change func(*Hosts, *Host) error
	keepOff := func(h *Hosts, host *Host) error { return h.KeepOff(t.Context(), host, us) }
	reboot := func(h *Hosts, host *Host) error { return h.Reboot(t.Context(), host, us, 2) }
	mark := func(h *Hosts, host *Host) error { return h.MarkUnhealthy(t.Context(), host, "machine-uid") }
	unmark := func(h *Hosts, host *Host) error { return h.MarkHealthy(t.Context(), host, "machine-uid") }
	release := func(h *Hosts, host *Host) error { return h.Release(t.Context(), host, us) }
	disproved := func(at time.Time) change {
		return func(h *Hosts, host *Host) error { return h.Disprove(t.Context(), host, at) }
	}
	asked := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		before func(*bmov1alpha1.BareMetalHost)
		do     []change
		want   map[string]string
	}{
		"a host is held off":                    {do: []change{keepOff}, want: map[string]string{holdOff + "new": `{"mode":"hard","force":false}`}},
		"and released":                          {do: []change{keepOff, release}},
		"what was asked before a move goes too": {before: annotated(holdOff+"old", "x"), do: []change{release}},
		"a reboot is asked for, and noted": {do: []change{reboot}, want: map[string]string{
			infrav1.RebootAnnotation: `{"mode":"hard"}`, mendv1.RebootedForAnnotation: "new/2",
		}},
		"C12: a reboot that somebody else has asked for is left as it is": {
			before: annotated(infrav1.RebootAnnotation, ""), do: []change{reboot},
			want: map[string]string{infrav1.RebootAnnotation: "", mendv1.RebootedForAnnotation: "new/2"},
		},
		"and withdrawn": {do: []change{reboot, release}},
		"a host is marked for every CAPM3": {do: []change{mark}, want: map[string]string{
			infrav1.UnhealthyAnnotation: "capm3/UnhealthyNode", infrav1.LegacyUnhealthyAnnotation: "capm3/UnhealthyNode", mendv1.MarkedForAnnotation: "machine-uid",
		}},
		"W28: and the mark is removed": {do: []change{mark, unmark}},
		"when its power-off was first disproved is noted": {
			do:   []change{disproved(asked), disproved(asked.Add(time.Hour))},
			want: map[string]string{mendv1.PowerOffDisprovedAnnotation: "2026-01-01T12:00:00Z"},
		},
		"a mark that a person made stays": {
			before: annotated(infrav1.UnhealthyAnnotation, "by hand"), do: []change{mark, unmark},
			want: map[string]string{infrav1.UnhealthyAnnotation: "by hand", infrav1.LegacyUnhealthyAnnotation: "capm3/UnhealthyNode"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.before == nil {
				tc.before = annotated()
			}
			before := aHost(foreign, tc.before)
			h := hosts(t, interceptor.Funcs{}, before)
			for _, do := range tc.do {
				now, err := h.Named(t.Context(), client.ObjectKey{Namespace: "ns", Name: "host-1"})
				must.Do(t, err)
				must.Do(t, do(h, now))
			}
			now, err := h.Named(t.Context(), client.ObjectKey{Namespace: "ns", Name: "host-1"})
			must.Do(t, err)
			want := aHost(foreign).Annotations
			maps.Copy(want, tc.want)
			if !maps.Equal(now.Annotations, want) {
				t.Errorf("annotations %v, want %v", now.Annotations, want)
			}
		})
	}
}

// Another client may have given the host to another machine since it was read.
func TestWhatActsOnPowerIsWrittenOnlyToTheHostThatWasRead(t *testing.T) {
	us := Remediation{UID: "new"}
	for name, act := range map[string]func(*Hosts, *Host) error{
		"KeepOff": func(h *Hosts, read *Host) error { return h.KeepOff(t.Context(), read, us) },
		"AskReceipt": func(h *Hosts, read *Host) error {
			return h.AskReceipt(t.Context(), read, us, time.Time{})
		},
		"Reboot": func(h *Hosts, read *Host) error { return h.Reboot(t.Context(), read, us, 1) },
		"RemoveOrphans": func(h *Hosts, read *Host) error {
			return h.RemoveOrphans(t.Context(), read, map[string]types.UID{holdOff + "old": "old"})
		},
	} {
		h := hosts(t, interceptor.Funcs{}, aHost(annotated(holdOff+"old", "x")))
		read, err := h.Named(t.Context(), client.ObjectKey{Namespace: "ns", Name: "host-1"})
		must.Do(t, err)
		now := aHost()
		now.ResourceVersion, now.Annotations, now.Spec.ConsumerRef.Name = read.ResourceVersion, read.Annotations, "m3m-2"
		must.Do(t, h.Client.Update(t.Context(), now))
		if err := act(h, read); !apierrors.IsConflict(err) {
			t.Errorf("%s on a host that has changed: %v, want a conflict", name, err)
		}
	}
}

func TestASlimHostIsTheSameToUs(t *testing.T) {
	full := aHost(annotated("kubectl.kubernetes.io/last-applied-configuration", "long", holdOff+"new", "x"), func(h *bmov1alpha1.BareMetalHost) {
		h.Labels = map[string]string{"a": "b"}
		h.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{
			Hostname: "x", SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "ACME", ProductName: "R600", SerialNumber: "1"},
		}
		h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no route"
	})
	obj, err := SlimHost(full.DeepCopy())
	must.Do(t, err)
	slim := obj.(*bmov1alpha1.BareMetalHost)
	if PowerOf(slim) != PowerOf(full) || !sameConsumer(slim.Spec.ConsumerRef, full.Spec.ConsumerRef) || MarksOf(slim, Remediation{UID: "new"}, 1, time.Time{}) != MarksOf(full, Remediation{UID: "new"}, 1, time.Time{}) {
		t.Errorf("the slim host is another one: %+v", slim)
	}
	if slim.Labels["a"] != "b" {
		t.Errorf("the slim host lacks the labels that a hostSelector selects by: %+v", slim)
	}
	if !spare.FitsTheSame(slim, full) {
		t.Errorf("the slim host fits other machines: %+v", slim)
	}
	must.Is(t, "ACME R600", From(slim).Model, "the slim host is of model")
	if kept := slim.Status.HardwareDetails; len(slim.Annotations) != 1 || kept.Hostname != "" || kept.SystemVendor.SerialNumber != "" {
		t.Errorf("the slim host keeps what is not read: %+v", slim)
	}
}

func TestWhoKeepsAHostOff(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*bmov1alpha1.BareMetalHost)
		heldBy string
		others types.UID
	}{
		"no one remediation":     {change: func(*bmov1alpha1.BareMetalHost) {}},
		"its owner":              {change: func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = false }},
		"somebody, by hand":      {change: annotated("reboot.metal3.io/poweroff", ""), heldBy: "reboot.metal3.io/poweroff"},
		"we do, and want it on":  {change: annotated(holdOff+"new", "x")},
		"also as we were before": {change: annotated(holdOff+"old", "x")},
		"another remediation":    {change: annotated(holdOff+"new", "x", holdOff+"them", "x"), others: "them"},
		"none, by a mere reboot": {change: annotated(infrav1.RebootAnnotation, "")},
	} {
		h := aHost(tc.change)
		p, others := PowerOf(h), KeptOffByOthers(From(h), Remediation{UID: "new", Before: "old"})
		if p.KeptOffBy != tc.heldBy || others != tc.others {
			t.Errorf("%s: held by %q and %q; want %q, %q", name, p.KeptOffBy, others, tc.heldBy, tc.others)
		}
	}
}

func TestTheModelOfAHost(t *testing.T) {
	inspected := func(manufacturer, product string) *bmov1alpha1.BareMetalHost {
		return aHost(func(h *bmov1alpha1.BareMetalHost) {
			h.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: manufacturer, ProductName: product}}
		})
	}
	for name, tc := range map[string]struct {
		host *bmov1alpha1.BareMetalHost
		want string
	}{
		"one that was not inspected":       {aHost(), ""},
		"one of a manufacturer":            {inspected("Dell Inc.", " PowerEdge R640 (SKU=NotProvided)"), "Dell Inc. PowerEdge R640 (SKU=NotProvided)"},
		"one that says no manufacturer":    {inspected("", "KVM"), "KVM"},
		"one that does not say what it is": {inspected("", ""), ""},
	} {
		must.Is(t, tc.want, From(tc.host).Model, "%s:", name)
	}
}
