package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/page"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

const certificateCRD = "certificates.cert-manager.io"

func (o *Options) check() *cobra.Command {
	c := &cobra.Command{
		Use:   "check",
		Short: "List what is missing: kinds, cert-manager, a manager, clusters that cannot be reached, your rights",
		Long: "List what is missing for kubemend to remediate, and for this program to explain: CustomResourceDefinitions, cert-manager, " +
			"a manager that runs and serves its kinds, workload clusters that can be reached, and your rights to read. " +
			"The exit code is 1 if something is missing.",
		Example: fmt.Sprintf("  %[1]s check -A", o.Name),
		Args:    noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			found, err := o.findings(c.Context())
			if err != nil {
				return err
			}
			return o.printFindings(found)
		},
	}
	o.addScope(c)
	return c
}

// finding is one thing that was checked: what is there, or what is missing and what a user can do.
type finding struct {
	missing bool
	text    string
}

func (o *Options) findings(ctx context.Context) ([]finding, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	management, err := o.client()
	if err != nil {
		return nil, err
	}
	a, err := o.asker(ctx, snapshot.Scope{Nodes: true, AllMachines: true, Everything: true})
	if err != nil {
		return nil, err
	}
	status, err := page.Of(ctx, a, namespace, "")
	if err != nil {
		return nil, err
	}
	found := checkKinds(func(crd string) bool {
		resource, group, _ := strings.Cut(crd, ".")
		_, err := management.RESTMapper().KindFor(schema.GroupVersionResource{Group: group, Resource: resource})
		return !meta.IsNoMatchError(err) // a kind that could not be asked for may be there; that is in the findings of the rights
	})
	found = append(found, checkManagers(status.Managers)...)
	if doubt := a.Managers.Doubt(); doubt != "" {
		found = append(found, finding{true, doubt})
	}
	for _, cluster := range status.Unreachable {
		found = append(found, finding{true, fmt.Sprintf("the manager cannot reach Cluster %s/%s since %s: %s",
			cluster.Namespace, cluster.Name, text.Moment(cluster.Since.Time, a.Now), cluster.Message)})
	}
	return append(found, checkRights(a.Snapshot)...), nil
}

func checkKinds(installed func(crd string) bool) []finding {
	var found []finding
	need := func(without string, crds ...string) {
		there := slices.DeleteFunc(slices.Clone(crds), func(crd string) bool { return !installed(crd) })
		if len(there) == 0 {
			found = append(found, finding{true, fmt.Sprintf("the kind %s is not installed: %s", strings.Join(crds, " or "), without)})
		}
		for _, crd := range there {
			found = append(found, finding{false, "the kind " + crd + " is installed"})
		}
	}
	need("there is nothing to act on: see docs/install.md", crdgate.MachineCheckCRD, crdgate.NodeCheckCRD)
	need("nothing is recorded, and history and report are empty", crdgate.RecordCRD)
	if installed(crdgate.HostCRD) {
		need("no host can be power-cycled", crdgate.OwnCRD, crdgate.Metal3CRD)
	}
	if installed(crdgate.MachineCheckCRD) {
		need("the webhooks of Cluster API and of kubemend have no certificates, unless another tool issues them", certificateCRD)
	}
	return found
}

// checkManagers checks that a manager runs, and that those that run serve what they are to serve.
func checkManagers(managers []managerlease.Manager) []finding {
	found := make([]finding, 0, 1+len(managers))
	asConfigured := []string{"", crdgate.OffReason, crdgate.ForeignReason, "NotInstalled"}
	for _, manager := range slices.DeleteFunc(slices.Clone(managers), func(m managerlease.Manager) bool { return !m.Alive }) {
		called, version := "the manager in namespace "+manager.Namespace, "unknown"
		if manager.Announcement != nil {
			version = manager.Announcement.Version
		}
		found = append(found, finding{false, called + " runs, version " + version})
		for _, k := range ptr.Deref(manager.Announcement, managerlease.Announcement{}).Kinds {
			if !slices.Contains(asConfigured, k.Reason) {
				found = append(found, finding{true, fmt.Sprintf("%s does not serve %s: %s", called, k.CRD, k.Because)})
			}
		}
	}
	if len(found) == 0 {
		because, fix := explain.NoManagerActs(managers, nil)
		found = append(found, finding{true, because + ". " + fix})
	}
	return found
}

// checkRights checks what could be read: what the user may not read, and workload clusters that do not answer the user.
func checkRights(read *snapshot.Snapshot) []finding {
	missing := read.Missing()
	found := make([]finding, 0, 1+len(missing))
	for _, m := range missing {
		found = append(found, finding{true, "you cannot read " + m.String()})
	}
	if len(missing) == 0 {
		answer := len(read.Workloads())
		found = append(found, finding{false, fmt.Sprintf("you can read all that is explained; workload clusters that answer: %d", answer)})
	}
	return found
}

// printFindings prints one line for each, those first that are missing.
func (o *Options) printFindings(found []finding) error {
	paint := o.painter(o.Out)
	missing := 0
	for _, f := range found {
		if f.missing {
			missing++
			_, _ = fmt.Fprintln(o.Out, text.Hang(paint.Bad("missing")+"  ", text.Capital(f.text), 9, text.Width(o.Out)))
		}
	}
	for _, f := range found {
		if !f.missing {
			_, _ = fmt.Fprintln(o.Out, text.Hang(paint.Good("ok")+"       ", text.Capital(f.text), 9, text.Width(o.Out)))
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d are missing", missing, len(found))
	}
	return nil
}
