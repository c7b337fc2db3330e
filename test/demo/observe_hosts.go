package main

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// bareMetalChanged describes a change of a BareMetalHost.
func bareMetalChanged(was, is *bmov1alpha1.BareMetalHost) []observation {
	if was == nil || is == nil {
		return nil
	}
	var seen []observation
	for _, describe := range []func(was, is *bmov1alpha1.BareMetalHost) *observation{powerChanged, holdChanged, markChanged} {
		if s := describe(was, is); s != nil {
			s.about = is.Name
			seen = append(seen, *s)
		}
	}
	return seen
}

func powerChanged(was, is *bmov1alpha1.BareMetalHost) *observation {
	switch {
	case was.Status.PoweredOn == is.Status.PoweredOn:
		return nil
	case is.Status.PoweredOn:
		return &observation{by: operator, fact: hostOn, text: fmt.Sprintf("BareMetalHost %s is on", is.Name)}
	default:
		return &observation{by: operator, fact: hostOff, text: fmt.Sprintf("BareMetalHost %s is off", is.Name)}
	}
}

// holdChanged describes a change of the annotation that keeps a host powered off. Only kubemend writes one of this name.
func holdChanged(was, is *bmov1alpha1.BareMetalHost) *observation {
	before, now := hold(was), hold(is)
	switch {
	case before == "" && now != "":
		return &observation{
			by: kubemendHost, fact: offAsked,
			text: fmt.Sprintf("requests BareMetalHost %s to be off, by the annotation %s<UID>", is.Name, infrav1.PowerOffAnnotationPrefix),
		}
	case before != "" && now == "":
		return &observation{by: kubemendHost, fact: onAsked, text: fmt.Sprintf("releases BareMetalHost %s: removes that annotation", is.Name)}
	}
	return nil
}

// hold is the annotation by which a remediation keeps a host powered off, or empty.
func hold(host *bmov1alpha1.BareMetalHost) string {
	for key := range host.Annotations {
		if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) {
			return key
		}
	}
	return ""
}

func markChanged(was, is *bmov1alpha1.BareMetalHost) *observation {
	_, before := was.Annotations[infrav1.UnhealthyAnnotation]
	_, now := is.Annotations[infrav1.UnhealthyAnnotation]
	if before || !now {
		return nil
	}
	return &observation{
		by: kubemendHost, fact: hostMarked,
		text: fmt.Sprintf("marks BareMetalHost %s with %s: no machine will use it", is.Name, infrav1.UnhealthyAnnotation),
	}
}
