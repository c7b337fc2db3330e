package main

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// bareMetalChanged is what there is to say about a change of a BareMetalHost.
func bareMetalChanged(was, is *bmov1alpha1.BareMetalHost) []sighting {
	if was == nil || is == nil {
		return nil
	}
	var seen []sighting
	for _, look := range []func(was, is *bmov1alpha1.BareMetalHost) *sighting{powerChanged, holdChanged, markChanged} {
		if s := look(was, is); s != nil {
			s.about = is.Name
			seen = append(seen, *s)
		}
	}
	return seen
}

func powerChanged(was, is *bmov1alpha1.BareMetalHost) *sighting {
	switch {
	case was.Status.PoweredOn == is.Status.PoweredOn:
		return nil
	case is.Status.PoweredOn:
		return &sighting{by: operator, fact: hostOn, text: fmt.Sprintf("BareMetalHost %s is on", is.Name)}
	default:
		return &sighting{by: operator, fact: hostOff, text: fmt.Sprintf("BareMetalHost %s is off", is.Name)}
	}
}

// holdChanged looks at the annotation by which a host is held off. Nobody but kubemend writes one of this name.
func holdChanged(was, is *bmov1alpha1.BareMetalHost) *sighting {
	before, now := hold(was), hold(is)
	switch {
	case before == "" && now != "":
		return &sighting{
			by: kubemendHost, fact: offAsked,
			text: fmt.Sprintf("asks for BareMetalHost %s to be off, by the annotation %s<UID>", is.Name, infrav1.PowerOffAnnotationPrefix),
		}
	case before != "" && now == "":
		return &sighting{by: kubemendHost, fact: onAsked, text: fmt.Sprintf("takes that annotation away: BareMetalHost %s may be on again", is.Name)}
	}
	return nil
}

// hold is the annotation by which a remediation holds a host off, or empty.
func hold(host *bmov1alpha1.BareMetalHost) string {
	for key := range host.Annotations {
		if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) {
			return key
		}
	}
	return ""
}

func markChanged(was, is *bmov1alpha1.BareMetalHost) *sighting {
	_, before := was.Annotations[infrav1.UnhealthyAnnotation]
	_, now := is.Annotations[infrav1.UnhealthyAnnotation]
	if before || !now {
		return nil
	}
	return &sighting{
		by: kubemendHost, fact: hostMarked,
		text: fmt.Sprintf("marks BareMetalHost %s with %s: no machine is put on it any more", is.Name, infrav1.UnhealthyAnnotation),
	}
}
