package command

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
)

// codeOf are those of `explain --exit-code`; a healthy object has none.
var codeOf = map[cliv1.Phase]int{
	cliv1.Blocked: Blocked, cliv1.Remediating: Remediating, cliv1.Unknown: Unknown, cliv1.NotChecked: Unknown, cliv1.Pending: Pending,
}

// exitOf is the error with the code of the worst phase of all; nil if all are healthy.
func exitOf(found []*page.Explanation) error {
	codes := sets.New[int]()
	for _, e := range found {
		codes.Insert(codeOf[e.Document().Phase])
	}
	for _, code := range []int{Blocked, Remediating, Unknown, Pending} { // the worst first
		if codes.Has(code) {
			return Exit{code, nil}
		}
	}
	return nil
}

func standing(d *cliv1.Explanation) string {
	if d.Reason == "" {
		return string(d.Phase)
	}
	return fmt.Sprintf("%s (%s)", d.Phase, d.Reason)
}
