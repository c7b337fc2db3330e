package page

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/golden"
)

// recordKind is the kind of records.
var recordKind = mendv1.GroupVersion.WithKind("RemediationRecord")

// lost adds a record of a worker that is gone since so long, and of what its capacity waits for.
func lost(name string, ago time.Duration, reason, message string, edits ...func(*mendv1.RemediationRecord)) func(*scene) {
	return func(s *scene) {
		is := &mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name + "-1", UID: types.UID(name + "-1"), Labels: map[string]string{mendv1.RecordOpenLabel: "true"},
		}}
		is.Spec.Mode, is.Spec.Decided, is.Spec.Due = mendv1.RecordActive, at(ago), new(at(ago))
		is.Spec.Target = mendv1.RecordTarget{ClusterName: "c1", Machine: &mendv1.RecordRef{Kind: "Machine", Namespace: "default", Name: name, UID: "old-" + name}}
		is.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "default", Name: "workers"}
		is.Status.Begun = new(at(ago))
		if reason != "" {
			is.Status.Conditions = []metav1.Condition{{Type: mendv1.RecordCapacityBack, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
			is.Status.Waits = []mendv1.RecordWait{{Reason: reason, Since: new(at(ago / 2))}}
		}
		for _, edit := range edits {
			edit(is)
		}
		s.others = append(s.others, is)
	}
}

// askedFor is what asked for the remediation of a record; nothing if kind is empty.
func askedFor(kind, namespace, name string) func(*mendv1.RemediationRecord) {
	return func(is *mendv1.RemediationRecord) {
		is.Spec.Requester.Check = nil
		if kind != "" {
			is.Spec.Requester.Check = &mendv1.RecordRef{Kind: kind, Namespace: namespace, Name: name}
		}
	}
}

func observedOnly(is *mendv1.RemediationRecord) {
	is.Name, is.Spec.Mode = is.Name+"-observed", mendv1.RecordObserved
}

func ended(is *mendv1.RemediationRecord) { is.Status.Ended = new(at(time.Minute)) }

func ofAnotherCluster(is *mendv1.RemediationRecord) {
	is.Namespace, is.Spec.Target.ClusterName, is.Spec.Target.Machine.Namespace = "edge", "c9", "edge"
	is.Spec.Requester.Check = &mendv1.RecordRef{Kind: "MachineHealthCheck", Namespace: "edge", Name: "workers"}
}

var (
	noHost  = lost("w7", 40*time.Minute, "NoHost", "Machine w17 waits for a host: none of 3 fits")
	drained = lost("w8", 10*time.Minute, "DrainBlockedByBudget", "Machine w8 is being drained: PodDisruptionBudget shop/db allows no disruption of pod shop/db-0")
	closed  = lost("w9", 2*time.Hour, "Replaced", "", ended)
)

// A replacement that is not Ready is not there yet for the check, whose targets are all healthy.
func TestAStatusSaysWhichCapacityIsNotBack(t *testing.T) {
	golden.StoriesIn(t, "testdata/missing", map[string]*scene{
		"one that waits for a host":              aScene(noHost),
		"two of which one waits longer":          aScene(drained, noHost),
		"one of which nothing was read":          aScene(lost("w7", time.Minute, "", "")),
		"one beside machines that are unhealthy": aScene(noHost, silent(6*time.Minute, "w1", "w2"), silent(time.Minute, "w3")),
		"one that no check asked for":            aScene(lost("w7", time.Hour, "OwnerCreates", "MachineSet md-0 is to create a Machine", askedFor("", "", ""))),
		"one that names a check of another namespace": aScene(lost("w7", time.Hour, "NoHost", "No host fits", func(is *mendv1.RemediationRecord) {
			is.Namespace = "elsewhere"
		})),
		"one that two checks asked for":              aScene(noHost, lost("w7", 30*time.Minute, "NoHost", "", observedOnly, askedFor("MachineHealthCheck", "default", "workers-2")), secondCheck),
		"none since all are over":                    aScene(closed),
		"records that the user may not read":         aScene(func(s *scene) { s.barred = append(s.barred, recordKind) }),
		"a node of a check that has no capacity yet": aScene(ownNodes(6*time.Minute), lost("n1", 5*time.Minute, "RemediationInProgress", "Reboot n1 has not ended", askedFor("NodeHealthCheck", "", "own-nodes"), ofTemplates)),
	}, func(t *testing.T, s *scene) string {
		var out bytes.Buffer
		all, err := Of(t.Context(), s.asker(t), "", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []Layout{{Width: 80, NotOK: true}, {Width: 200}} {
			fmt.Fprintf(&out, "==== %d columns\n", l.Width)
			if err := all.Print(&out, l); err != nil {
				t.Fatal(err)
			}
		}
		return out.String()
	})
}

// ofTemplates puts a record where the requests of a NodeHealthCheck are.
func ofTemplates(is *mendv1.RemediationRecord) {
	is.Namespace, is.Spec.Target = "templates", mendv1.RecordTarget{Node: &mendv1.RecordRef{Kind: "Node", Name: "n1"}}
}

func TestWhatIsMissingIsCountedWithinTheScope(t *testing.T) {
	far := lost("f1", 3*time.Hour, "NoHost", "", ofAnotherCluster)
	node := lost("n1", 5*time.Minute, "RemediationInProgress", "", askedFor("NodeHealthCheck", "", "own-nodes"), ofTemplates)
	for name, tc := range map[string]struct {
		namespace, cluster string
		total              int
		oldest             string
	}{
		"all there is":                           {"", "", 3, "f1"},
		"a namespace, and nodes of no namespace": {"default", "", 2, "w7"},
		"a cluster":                              {"", "c1", 1, "w7"},
		"a cluster where nothing is missing":     {"default", "c2", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := Of(t.Context(), aScene(noHost, far, node, closed, ownNodes(6*time.Minute)).asker(t), tc.namespace, tc.cluster)
			if err != nil {
				t.Fatal(err)
			}
			d := all.Document()
			if d.CapacityMissing == nil || d.CapacityMissing.Remediations != tc.total {
				t.Fatalf("missing is %+v", d.CapacityMissing)
			}
			if of := d.CapacityMissing.Oldest; (of == nil) != (tc.oldest == "") || of != nil && of.Name != tc.oldest {
				t.Errorf("the oldest is %+v, want %q", of, tc.oldest)
			}
		})
	}
	all, err := Of(t.Context(), aScene().asker(t), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if d := all.Document(); d.CapacityMissing != nil || d.Items[0].CapacityMissing != nil {
		t.Errorf("without records it says %+v", d.CapacityMissing)
	}
}
