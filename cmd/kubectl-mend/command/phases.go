package command

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
)

// exits are the codes of `explain --exit-code`, from that of the worst phase to that of the best.
var exits = []struct {
	phases sets.Set[cliv1.Phase]
	code   int
}{
	{sets.New(cliv1.Blocked), Blocked},
	{sets.New(cliv1.Remediating), Remediating},
	{sets.New(cliv1.Unknown, cliv1.NotChecked), Unknown},
	{sets.New(cliv1.Pending), Pending},
}

// exitOf is the error with the code of the worst phase of all; nil if all are healthy.
func exitOf(all []*page.Explanation) error {
	for _, exit := range exits {
		for _, e := range all {
			if exit.phases.Has(e.Document().Phase) {
				return Exit{exit.code, nil}
			}
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
