package claims

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The facts of a check of Cluster c1 in Namespace fleet, without a claim or a label, changed by edits.
func factsWith(edits ...func(*Facts)) Facts {
	facts := Facts{Check: check("a", map[string]string{}), Cluster: theCluster(), NamespaceKnown: true}
	for _, edit := range edits {
		edit(&facts)
	}
	return facts
}

// labelled gives the Cluster, or the Namespace, the label with a value.
func labelled(kind, value string) func(*Facts) {
	return func(f *Facts) {
		labels := map[string]string{mendv1.ClaimLabel: value}
		if kind == byNamespace {
			f.Namespace = labels
		} else {
			f.Cluster.Labels = labels
		}
	}
}

// annotated gives the check the pause annotation and the mark of a claim; an empty one is left out.
func annotated(pause, mark string) func(*Facts) {
	return func(f *Facts) {
		if pause != "" {
			f.Check.Annotations[clusterv1.PausedAnnotation] = pause
		}
		if mark != "" {
			f.Check.Annotations[mendv1.ClaimedByAnnotation] = mark
		}
	}
}

func noCluster(f *Facts)   { f.Cluster = nil }
func noNamespace(f *Facts) { f.Namespace, f.NamespaceKnown = nil, false }
func notCovered(f *Facts)  { f.NotCovered = true }
func deleted(f *Facts)     { f.Check.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)} }

func TestDecide(t *testing.T) {
	const act, mend = mendv1.ClaimLabelAct, mendv1.Claim
	onCluster, onNamespace := labelled(byCluster, act), labelled(byNamespace, act)
	markedCluster, markedNamespace := annotated(mend, byCluster), annotated(mend, byNamespace)
	for name, tc := range map[string]struct {
		facts Facts
		want  Plan
	}{
		"a check is left alone that no label asks for":            {factsWith(), Plan{Leave, ""}},
		"the label of the Cluster claims its check":               {factsWith(onCluster), Plan{Claim, byCluster}},
		"the label of the Namespace claims its check":             {factsWith(onNamespace), Plan{Claim, byNamespace}},
		"of two labels that of the Cluster is named":              {factsWith(onCluster, onNamespace), Plan{Claim, byCluster}},
		"the Namespace claims without a Cluster that can be read": {factsWith(noCluster, onNamespace), Plan{Claim, byNamespace}},
		"the Cluster claims without a Namespace that can be read": {factsWith(onCluster, noNamespace), Plan{Claim, byCluster}},
		"labels that cannot be read claim nothing":                {factsWith(noCluster, noNamespace), Plan{Leave, ""}},
		"a check that is claimed by the label stays claimed":      {factsWith(onCluster, markedCluster), Plan{Leave, byCluster}},
		"a claim that somebody removed is made anew":              {factsWith(onCluster, annotated("", byCluster)), Plan{Claim, byCluster}},
		"a check that is claimed by hand is left alone":           {factsWith(onCluster, annotated(mend, "")), Plan{Leave, byCluster}},
		"a check that is paused for all is left alone":            {factsWith(onNamespace, annotated("true", "")), Plan{Refuse, byNamespace}},
		"so is one that was claimed before it was paused":         {factsWith(onCluster, annotated("true", byCluster)), Plan{Refuse, byCluster}},

		"without the label its claim is released":                  {factsWith(markedCluster), Plan{Release, ""}},
		"so is that of the Namespace":                              {factsWith(markedNamespace), Plan{Release, ""}},
		"so is the mark of a claim that somebody removed":          {factsWith(annotated("", byCluster)), Plan{Release, ""}},
		"so is the mark of one that somebody paused for all":       {factsWith(annotated("true", byCluster)), Plan{Release, ""}},
		"so is one whose mark is not understood":                   {factsWith(annotated(mend, "x")), Plan{Release, ""}},
		"one by hand stays when the label goes":                    {factsWith(annotated(mend, "")), Plan{Leave, ""}},
		"the Namespace keeps what the Cluster had claimed":         {factsWith(onNamespace, markedCluster), Plan{Leave, byNamespace}},
		"the Cluster keeps what the Namespace had claimed":         {factsWith(onCluster, markedNamespace), Plan{Leave, byCluster}},
		"a Cluster that is not there yet releases nothing":         {factsWith(noCluster, markedCluster), Plan{Leave, ""}},
		"nor what the Namespace had claimed":                       {factsWith(noCluster, markedNamespace), Plan{Leave, ""}},
		"a Namespace that may not be read releases nothing of its": {factsWith(noNamespace, markedNamespace), Plan{Leave, ""}},
		"but the Cluster's label alone counts for its own claim":   {factsWith(noNamespace, markedCluster), Plan{Release, ""}},

		"an invalid label claims nothing":                    {factsWith(labelled(byCluster, "yes")), Plan{Leave, ""}},
		"nor does that of a Namespace":                       {factsWith(labelled(byNamespace, "yes")), Plan{Leave, ""}},
		"a typing error releases nothing":                    {factsWith(labelled(byCluster, "yes"), markedCluster), Plan{Leave, ""}},
		"nor does one on the Namespace":                      {factsWith(labelled(byNamespace, "yes"), markedCluster), Plan{Leave, ""}},
		"beside an invalid label a valid one of both claims": {factsWith(labelled(byCluster, "yes"), onNamespace), Plan{Claim, byNamespace}},

		"a check of another shard is not claimed": {factsWith(onCluster, notCovered), Plan{Leave, byCluster}},
		"nor released": {factsWith(markedCluster, notCovered), Plan{Leave, ""}},
		"a check that is being deleted is not claimed":         {factsWith(onCluster, deleted), Plan{Leave, byCluster}},
		"nor released, since core would act on it at the end":  {factsWith(markedCluster, deleted), Plan{Leave, ""}},
		"of another shard it is not said that it goes as well": {factsWith(notCovered, deleted), Plan{Leave, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			must.Is(t, tc.want, Decide(tc.facts), "Decide =")
		})
	}
}
