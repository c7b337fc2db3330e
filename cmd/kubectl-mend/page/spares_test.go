package page

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// waitsForSpare puts all workers on hosts, has the check wait for spare hosts, and adds so many that are free.
func waitsForSpare(free int) func(*scene) {
	return func(s *scene) {
		s.check.Annotations[mendv1.WaitForSpareAnnotation] = "true"
		for _, m := range s.machines {
			s.onHost(m)
		}
		for i := range free {
			name := "spare-" + string(rune('1'+i))
			h := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
			h.Status.Provisioning.State = bmov1alpha1.StateAvailable
			s.others = append(s.others, h)
		}
	}
}

// hostless takes the host of a worker away.
func hostless(name string) func(*scene) {
	return func(s *scene) {
		for _, obj := range s.others {
			if h, is := obj.(*bmov1alpha1.BareMetalHost); is && h.Name == "rack-"+name {
				h.Spec.ConsumerRef, h.Status.ErrorMessage = nil, "it has burnt"
			}
		}
	}
}

// toldToWait gives a worker the condition with which the manager says that it waits.
func toldToWait(name string) func(*scene) {
	return func(s *scene) {
		s.said(name, "HealthCheckSucceeded", metav1.ConditionFalse, "UnhealthyNode", "", time.Minute)
		s.said(name, mendv1.SpareHostAvailable, metav1.ConditionFalse, mendv1.NoSpareHostReason,
			"No spare host fits its replacement: no host is free. "+
				"Its remediation waits until 2026-01-01T12:59:00Z at most (kubemend.io/wait-for-spare)", time.Minute)
	}
}

func hostsBarred(s *scene) {
	s.barred = append(s.barred, bmov1alpha1.GroupVersion.WithKind("BareMetalHost"))
}

func badWait(s *scene) { s.check.Annotations[mendv1.WaitForSpareTimeoutAnnotation] = "a while" }
