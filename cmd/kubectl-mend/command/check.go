package command

import (
	"context"
	"errors"
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
		Use:     "check",
		Short:   "List what is missing: kinds, cert-manager, a manager, clusters that cannot be reached, your rights",
		Long:    "List what is missing for kubemend to remediate, and for this program to explain. The exit code is then 1.",
		Example: fmt.Sprintf("  %[1]s check -A", o.Name),
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			missing, err := o.missing(c.Context())
			if err != nil {
				return err
			}
			for _, what := range missing {
				_, _ = fmt.Fprintln(o.Out, text.Hang(o.layout().Paint.Bad("missing")+"  ", text.Capital(what), 9, text.Width(o.Out)))
			}
			if len(missing) > 0 {
				return fmt.Errorf("missing: %d", len(missing))
			}
			_, err = fmt.Fprintln(o.Out, "Nothing is missing.")
			return err
		},
	}
	o.addScope(c)
	return c
}

func (o *Options) missing(ctx context.Context) ([]string, error) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	a, err := o.asker(ctx, snapshot.Scope{AllMachines: true, Everything: true})
	if err != nil {
		return nil, err
	}
	status, err := page.Of(ctx, a, namespace, "")
	if err != nil {
		return nil, err
	}
	missing := missingKinds(func(crd string) bool {
		resource, group, _ := strings.Cut(crd, ".")
		_, err := a.Snapshot.RESTMapper().KindFor(schema.GroupVersionResource{Group: group, Resource: resource})
		return !meta.IsNoMatchError(err) // after any other error the kind may be installed, and your missing rights report the error
	})
	missing = append(missing, missingManagers(a.Managers.All)...)
	if doubt := a.Managers.Doubt(); doubt != "" {
		missing = append(missing, doubt)
	}
	for _, cluster := range status.Unreachable {
		missing = append(missing, fmt.Sprintf("the manager cannot reach Cluster %s/%s since %s: %s",
			cluster.Namespace, cluster.Name, text.Moment(cluster.Since.Time, a.Now), cluster.Message))
	}
	for _, unread := range a.Snapshot.Missing() {
		missing = append(missing, "you cannot read "+unread)
	}
	return missing, nil
}

// missingKinds lists the kinds that are not installed, each with what does not work without it.
func missingKinds(installed func(crd string) bool) []string {
	var missing []string
	need := func(without string, crds ...string) {
		if !slices.ContainsFunc(crds, installed) {
			missing = append(missing, fmt.Sprintf("the kind %s is not installed: %s", strings.Join(crds, " or "), without))
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
	return missing
}

// missingManagers reports that no manager runs, or which kinds a running manager should serve and does not.
func missingManagers(managers []managerlease.Manager) []string {
	var missing []string
	alive := false
	for _, manager := range managers {
		if !manager.Alive {
			continue
		}
		alive = true
		for _, k := range ptr.Deref(manager.Announcement, managerlease.Announcement{}).Kinds {
			if !slices.Contains([]string{"", crdgate.OffReason, crdgate.ForeignReason, "NotInstalled"}, k.Reason) {
				missing = append(missing, fmt.Sprintf("the manager in namespace %s does not serve %s: %s",
					manager.Namespace, k.CRD, k.Because))
			}
		}
	}
	if !alive {
		because, fix := explain.NoManagerActs(managers, nil)
		missing = append(missing, because+". "+fix)
	}
	return missing
}

func (o *Options) versions() *cobra.Command {
	var clientOnly bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and of each manager that has announced itself",
		Example: fmt.Sprintf("  %[1]s version\n  %[1]s version --client", o.Name),
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, _ = fmt.Fprintf(o.Out, "Client Version: %s\n", o.version)
			if clientOnly {
				return nil
			}
			reader, err := o.client()
			if err != nil {
				return err
			}
			now := o.timeAt(c.Context(), reader)
			managers, err := managerlease.Of(c.Context(), reader, now)
			if err != nil && len(managers) == 0 {
				return err
			}
			layout := o.layout()
			layout.Now = now
			return errors.Join(page.PrintManagers(o.Out, managers, layout), err)
		},
	}
	c.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this program only, and ask no cluster.")
	return c
}
