package badinput

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// memory is an annotation of a HostRemediation that kubemend alone writes, with a value that it would not.
type memory struct{ key, value, says string }

const unreadable = "metadata.annotations[" + mendv1.PowerCycleAnnotation + "]: expected what kubemend wrote there"

var memories = []memory{
	{mendv1.PowerCycleAnnotation, "", unreadable},
	{mendv1.PowerCycleAnnotation, "{", unreadable},
	{mendv1.PowerCycleAnnotation, "[]", unreadable},
	{mendv1.PowerCycleAnnotation, `"Ended"`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"state":7}`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"attempt":"two"}`, unreadable},
	{mendv1.PowerCycleAnnotation, `{"since":"yesterday"}`, unreadable},
}

func TestAnUnreadableMemoryIsAnErrorThatNamesTheAnnotation(t *testing.T) {
	for _, row := range memories {
		t.Run(row.value, func(t *testing.T) {
			rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{row.key: row.value}}}
			if _, err := remediation.RecordOf(rem); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v; want %s", err, row.says)
			}
		})
	}
}
