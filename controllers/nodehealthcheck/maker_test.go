package nodehealthcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestTheOwnerOfARequestCompletesItsMarks(t *testing.T) {
	for name, tc := range map[string]struct {
		markedName, markedUID string
		ownerKind             string
		want                  remediationrequest.Maker
	}{
		"without marks the owner has made it":            {"", "", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "1"}},
		"a marked name is completed":                     {"nhc", "", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "1"}},
		"a marked UID is completed":                      {"", "1", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "1"}},
		"an owner of another name has not made it":       {"other", "", "NodeHealthCheck", remediationrequest.Maker{Name: "other"}},
		"an owner with another UID has not made it":      {"nhc", "2", "NodeHealthCheck", remediationrequest.Maker{Name: "nhc", UID: "2"}},
		"an owner of another kind says nothing about it": {"", "", "Machine", remediationrequest.Maker{}},
	} {
		obj := &metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: nhcv1.GroupVersion.String(), Kind: tc.ownerKind, Name: "nhc", UID: "1"},
		}}
		if tc.markedName != "" {
			obj.Annotations = map[string]string{mendv1.MadeByNodeCheckAnnotation: tc.markedName}
		}
		if tc.markedUID != "" {
			obj.Labels = map[string]string{mendv1.MadeByNodeCheckUIDLabel: tc.markedUID}
		}
		if got := makerOf(obj); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestOfARequestWithoutAUIDOfItsMakerTheStatusSaysWhoseItIs(t *testing.T) {
	for name, tc := range map[string]struct {
		markedName, markedUID string
		listed, want          bool
	}{
		"listed, without marks":               {"", "", true, true},
		"listed, with the name of the check":  {"nhc", "", true, true},
		"listed, with another name":           {"other", "", true, false},
		"not listed":                          {"nhc", "", false, false},
		"with the UID of the check":           {"nhc", "1", false, true},
		"with the UID of a check that is not": {"nhc", "2", true, false},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetUID("r")
		if tc.markedName != "" {
			obj.SetAnnotations(map[string]string{mendv1.MadeByNodeCheckAnnotation: tc.markedName})
		}
		if tc.markedUID != "" {
			obj.SetLabels(map[string]string{mendv1.MadeByNodeCheckUIDLabel: tc.markedUID})
		}
		w := &observed{check: &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "nhc", UID: "1"}}}
		if tc.listed {
			w.requests.known = map[types.UID]*listed{"r": {}}
		}
		if got := w.made(obj); got != tc.want {
			t.Errorf("%s: ours %t, want %t", name, got, tc.want)
		}
	}
}
