package suite

import (
	"os"

	"github.com/onsi/ginkgo/v2"

	"github.com/kubemend/kubemend/test/rig"
)

// logEnd is how much of a log is shown, in bytes.
const logEnd = 16 << 10

// LogOf adds the end of a manager's log to the report of a spec that has failed: whatever failed, the log says most. There need not be a manager
// yet, and what cannot be read is left out.
func LogOf(name string, manager *rig.Kubemend, report ginkgo.SpecReport) {
	if !report.Failed() || manager == nil {
		return
	}
	if content, err := os.ReadFile(manager.Log); err == nil {
		ginkgo.AddReportEntry("the log of "+name, string(content[max(0, len(content)-logEnd):]))
	}
}
