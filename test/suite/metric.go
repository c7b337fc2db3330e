package suite

import (
	"context"
	"slices"
	"strings"

	"github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/rig"
)

// Metric is the value of the first series of a manager's metrics that has the name, and the labels as they are written; or "missing".
func Metric(ctx context.Context, manager *rig.Kubemend, name string, labels ...string) func(gomega.Gomega) string {
	return func(g gomega.Gomega) string {
		text, err := manager.Scrape(ctx)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			lacks := func(label string) bool { return !strings.Contains(line, label) }
			if (strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")) && !slices.ContainsFunc(labels, lacks) {
				return line[strings.LastIndex(line, " ")+1:]
			}
		}
		return "missing"
	}
}
