package command

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// exhausted adds the annotations by which kubemend marks w1's host unhealthy for a machine.
func exhausted(machine string) func(*place) {
	return func(p *place) {
		p.hosts["w1"].Annotations = map[string]string{
			infrav1.UnhealthyAnnotation: infrav1.UnhealthyAnnotationValue, infrav1.LegacyUnhealthyAnnotation: infrav1.UnhealthyAnnotationValue,
			mendv1.MarkedForAnnotation: machine, "theirs": "stays",
		}
	}
}

// keptOff adds the annotations by which a remediation keeps w1's host powered off and asks for a receipt.
func keptOff(uid string) func(*place) {
	return func(p *place) {
		metav1.SetMetaDataAnnotation(&p.hosts["w1"].ObjectMeta, infrav1.PowerOffAnnotationPrefix+uid, infrav1.PowerOffAnnotationValue)
		metav1.SetMetaDataAnnotation(&p.hosts["w1"].ObjectMeta, mendv1.ReceiptForAnnotation, uid+"/2026-01-01T11:59:00Z")
		metav1.SetMetaDataAnnotation(&p.hosts["w1"].ObjectMeta, infrav1.RebootAnnotation, `{"mode":"hard"}`)
	}
}

// remediated adds a HostRemediation of w1 in a state. A remediation that has not ended has a finalizer.
func remediated(state string, finalizers ...string) func(*place) {
	return func(p *place) {
		rem := byHandOf(p.t, p.machines["w1"])
		rem.UID, rem.Finalizers = "rem", finalizers
		rem.Annotations = map[string]string{mendv1.PowerCycleAnnotation: `{"state":"` + state + `"}`}
		p.objects = append(p.objects, rem)
	}
}

// host reads the host of w1.
func (p *place) host() *bmov1alpha1.BareMetalHost {
	p.t.Helper()
	h := &bmov1alpha1.BareMetalHost{}
	must.Do(p.t, p.client.Get(p.t.Context(), client.ObjectKey{Namespace: "metal", Name: "host-w1"}, h))
	return h
}

func TestTheMarksOfARepairedHostAreRemoved(t *testing.T) {
	for name, tc := range map[string]struct {
		edits []func(*place)
		says  []string
	}{
		"that kubemend marked for a machine that is gone": {[]func(*place){exhausted("gone")}, []string{
			"3 annotations are removed", "capi.metal3.io/unhealthy",
		}},
		"that an orphaned annotation keeps powered off": {[]func(*place){exhausted("gone"), keptOff("nothing")}, []string{
			"6 annotations are removed", "reboot.metal3.io/metal3-remediation-nothing", "kubemend.io/receipt-for",
		}},
		"whose remediation has ended": {[]func(*place){exhausted("gone"), remediated("OwnerRequested")}, []string{"no remediation of it is in progress"}},
		"for which a remediation waits, as its power-off was disproved": {[]func(*place){exhausted("gone"), remediated("Pending"), func(p *place) {
			p.hosts["w1"].Annotations[mendv1.PowerOffDisprovedAnnotation] = "2026-01-01T11:00:00Z"
		}}, []string{"4 annotations are removed", "power-off-disproved"}},
		"that somebody marked by hand": {[]func(*place){exhausted("gone"), func(p *place) { delete(p.hosts["w1"].Annotations, mendv1.MarkedForAnnotation) }}, []string{
			"2 annotations are removed", "kubemend did not mark the host unhealthy",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			p.typed = "y\n"
			got, code := p.does("reset", "host/host-w1", func(b *byHand) { b.reason = "new power supply" })
			h := p.host()
			by, _ := explain.AttributionOf(h, mendv1.ResetAnnotation)
			if keys := slices.Sorted(maps.Keys(h.Annotations)); code != Done || strings.Join(keys, " ") != "kubemend.io/reset theirs" || by.Reason != "new power supply" {
				t.Errorf("code %d, annotations %v, printed\n%s", code, h.Annotations, got)
			}
			for _, says := range tc.says {
				if !strings.Contains(got, says) {
					t.Errorf("it does not say %q:\n%s", says, got)
				}
			}
			if told := strings.Join(p.told(), "\n"); told != "BareMetalHost host-w1: MarksReset: reset by alice: new power supply" {
				t.Errorf("the events are %s", told)
			}
		})
	}
}

func TestNoMarkIsRemovedThatIsNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		edits []func(*place)
		code  int
		says  string
	}{
		"a remediation keeps it powered off": {
			[]func(*place){keptOff("rem"), remediated("PoweringOff", mendv1.HostRemediationFinalizer)}, Refused, "HostRemediation w1-by-hand is in progress",
		},
		"a remediation of its machine has just begun": {[]func(*place){exhausted("gone"), remediated("Preparing")}, Refused, "HostRemediation w1-by-hand is in progress"},
		"a remediation that ended releases it still": {
			[]func(*place){exhausted("gone"), remediated("Succeeded", mendv1.HostRemediationFinalizer)}, Refused, "is in progress",
		},
		"its machine is to be replaced":        {[]func(*place){exhausted("w1")}, Refused, "Machine w1, for which the host is marked, has not been replaced"},
		"it has no mark":                       {nil, Done, "nothing to do for host/host-w1 in metal: it has no mark that could be removed"},
		"its machine is marked, and it is not": {[]func(*place){func(p *place) { p.machines["w1"].Annotations = map[string]string{mendv1.RequestedAnnotation: "{}"} }}, Done, "no mark"},
	} {
		t.Run(name, func(t *testing.T) {
			p := aPlace(t, tc.edits...)
			p.refuses = errors.New("something was written")
			got, code := p.does("reset", "host/host-w1", confirmed)
			if code != tc.code || !strings.Contains(got, tc.says) {
				t.Errorf("code %d, printed\n%s", code, got)
			}
		})
	}
}

func TestNoPowerAnnotationIsRemovedWhereNoKindIsInstalled(t *testing.T) {
	p := aPlace(t, exhausted("gone"), keptOff("nothing"), func(p *place) { p.bare = true })
	if got, code := p.does("reset", "host/host-w1", confirmed); code != Failed || !strings.Contains(got, "no kind of remediations is installed") || len(p.host().Annotations) != 7 {
		t.Errorf("code %d, annotations %v, printed\n%s", code, p.host().Annotations, got)
	}
}

// The command would take a remediation that it cannot read for one that does not exist, and remove its annotation.
func TestWhoCannotReadRemediationsResetsNothing(t *testing.T) {
	p := aPlace(t, exhausted("gone"), keptOff("nothing"))
	p.unread = errors.New("hostremediations is forbidden")
	if got, code := p.does("reset", "host/host-w1", confirmed); code != Failed || !strings.Contains(got, "hostremediations is forbidden") || len(p.host().Annotations) != 7 {
		t.Errorf("code %d, annotations %v, printed\n%s", code, p.host().Annotations, got)
	}
}
