package hostremediation

import (
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// said reports whether an event with that reason was sent.
func (s *scene) said(reason string) bool {
	for {
		select {
		case e := <-s.events.Events:
			if strings.Contains(e, reason) {
				return true
			}
		default:
			return false
		}
	}
}

// ready makes the node ready under that boot ID.
func (s *scene) ready(boot string) {
	s.t.Helper()
	n := s.node()
	n.Status.NodeInfo.BootID = boot
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.there.Status().Update(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
}

// F4: kubemend takes over from CAPM3 while a host is held off and its node is fenced, without a signature.
func TestWhatCAPM3HasUnderWayIsTakenOver(t *testing.T) {
	rem := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "victim", UID: "r", Finalizers: []string{infrav1.RemediationFinalizer}, OwnerReferences: ofMachine("victim", "machine-uid"),
		CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute)),
	}}
	rem.Spec.Strategy = strategy
	held := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{holdOff + "r": infrav1.PowerOffAnnotationValue}}}
	held.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
	held.Status.Conditions = []metav1.Condition{{Type: bmov1alpha1.ManageableCondition, Status: metav1.ConditionTrue, Reason: "Manageable"}}
	s := sceneOf(t, remediation.Metal3, held, outOfServiceNode(""), rem)
	safe := func() {
		_, keptOff := s.host().Annotations[holdOff+"r"]
		if h := s.host(); !keptOff && !h.Status.PoweredOn && fence.OutOfService(s.node()) && s.node().Annotations[fence.FencedByAnnotation] == "" {
			t.Error("the host is let on while its node is fenced and the workload has not moved")
		}
	}
	s.reconcile("victim", 6, safe) // asks, and waits until it is sure that the host stays off
	if _, keptOff := s.host().Annotations[holdOff+"r"]; !keptOff {
		t.Fatal("the host was let on")
	}
	s.clock.SetTime(noon.Add(2 * time.Minute))
	s.reconcile("victim", 6, safe) // asks for the receipt
	s.receipt()
	s.reconcile("victim", 6, safe)
	s.clock.SetTime(noon.Add(3 * time.Minute))
	s.reconcile("victim", 6, safe)
	s.power(true)
	s.ready("after")
	s.reconcile("victim", 12, safe)
	if n := s.node(); len(n.Spec.Taints) > 0 || n.Annotations[fence.FencedByAnnotation] != "" {
		t.Errorf("the fence stays for ever: %v %v", n.Spec.Taints, n.Annotations)
	}
	if marks := s.host().Annotations; len(marks) > 0 {
		t.Errorf("marks are left on the host: %v", marks)
	}
	got := &infrav1.Metal3Remediation{}
	if err := s.here.Get(t.Context(), client.ObjectKeyFromObject(rem), got); err != nil {
		t.Fatal(err)
	}
	if memory := remediation.Remembered(got); memory.Attempt != 1 || memory.State != "Succeeded" {
		t.Errorf("state %s after %d attempts; want that it succeeded in the first: %v", memory.State, memory.Attempt, got.Status.Conditions)
	}
}

// H-11: CAPM3 takes over from kubemend, and goes on with host and taint.
func TestWhatSaysSomethingToKubemendAloneDoesNotStayWithCAPM3(t *testing.T) {
	rem := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "victim", UID: "r", Finalizers: []string{infrav1.RemediationFinalizer}, OwnerReferences: ofMachine("victim", "machine-uid"),
		Annotations: map[string]string{
			mendv1.PowerCycleAnnotation:      `{"state":"MovingWorkload","attempt":1,"fencing":true,"uid":"r","machine":"victim","host":"h","node":"victim-node"}`,
			clusterctlv1.BlockMoveAnnotation: "kubemend",
		},
	}}
	rem.Spec.Strategy = strategy
	held := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{holdOff + "r": infrav1.PowerOffAnnotationValue}}}
	s := sceneOf(t, remediation.Metal3, held, outOfServiceNode("r"), rem)
	s.r.Serve(false)
	s.reconcile("victim", 2, nil)
	got := &infrav1.Metal3Remediation{}
	if err := s.here.Get(t.Context(), client.ObjectKeyFromObject(rem), got); err != nil {
		t.Fatal(err)
	}
	if by, blocked := got.Annotations[clusterctlv1.BlockMoveAnnotation]; blocked {
		t.Errorf("%s blocks every move", by)
	}
	if mark, marked := s.node().Annotations[fence.FencedByAnnotation]; marked {
		t.Errorf("the node is marked by %s", mark)
	}
	if _, stays := s.host().Annotations[holdOff+"r"]; !stays || !fence.OutOfService(s.node()) {
		t.Error("the hold or the taint is gone, with which CAPM3 goes on")
	}
	version := got.ResourceVersion
	s.reconcile("victim", 2, nil)
	if err := s.here.Get(t.Context(), client.ObjectKeyFromObject(rem), got); err != nil || got.ResourceVersion != version {
		t.Errorf("it is written again and again (%v)", err)
	}
}

// F5: with the gate closed, or the kind switched off, nothing else would ever power the host on.
func TestASwitchedOffKindReleasesItsHosts(t *testing.T) {
	memory := `{"state":"PoweringOff","since":"` + noon.Format(time.RFC3339) + `","attempt":1,"began":"` + noon.Format(time.RFC3339) +
		`","asked":"` + noon.Format(time.RFC3339) + `","touched":true,"uid":"r","machine":"victim","host":"h","node":"victim-node"}`
	for name, row := range map[string]struct {
		memory string
		held   bool
	}{
		"what remembers to have been begun here": {memory, false},
		"what CAPM3 has begun is left as it is":  {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			rem := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "victim", UID: "r", Finalizers: []string{infrav1.RemediationFinalizer}, OwnerReferences: ofMachine("victim", "machine-uid"),
			}}
			rem.Spec.Strategy = strategy
			if row.memory != "" {
				rem.Annotations = map[string]string{mendv1.PowerCycleAnnotation: row.memory}
			}
			held := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{holdOff + "r": infrav1.PowerOffAnnotationValue}}}
			s := sceneOf(t, remediation.Metal3, held, &corev1.Node{}, rem)
			s.r.Teardown, s.r.Off = true, true
			s.reconcile("victim", 8, nil)
			if _, is := s.host().Annotations[holdOff+"r"]; is != row.held {
				t.Errorf("held off: %t, want %t", is, row.held)
			}
			got := &infrav1.Metal3Remediation{}
			if err := s.here.Get(t.Context(), client.ObjectKeyFromObject(rem), got); err != nil {
				t.Fatal(err)
			}
			if kept := len(got.Finalizers) > 0; kept != row.held {
				t.Errorf("it has finalizers: %t, want %t", kept, row.held)
			}
		})
	}
}

// H-A3: a remediation whose finalizer was taken away by hand has left a taint with its UID.
func TestTheFenceOfARemediationThatIsGoneGoesWithTheNext(t *testing.T) {
	for name, row := range map[string]struct {
		living []client.Object
		gone   bool
	}{
		"of one that is gone":                  {nil, true},
		"not of one of the machine that lives": {[]client.Object{remembering("predecessor", "gone", ofMachine("victim", "machine-uid"), "")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rem := remembering("victim", "r", ofMachine("victim", "machine-uid"), "")
			s := sceneOf(t, remediation.Own, &bmov1alpha1.BareMetalHost{}, outOfServiceNode("gone"), append(row.living, rem)...)
			s.power(true)
			s.reconcile("victim", 5, nil)
			s.power(false)
			s.reconcile("victim", 6, nil)
			s.power(true)
			s.ready("after")
			s.reconcile("victim", 8, nil)
			if gone := !fence.OutOfService(s.node()); gone != row.gone {
				t.Errorf("the taint is gone: %t, want %t; %v", gone, row.gone, s.node().Annotations)
			}
		})
	}
}
