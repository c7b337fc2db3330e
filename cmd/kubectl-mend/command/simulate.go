package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/inspect"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/simulate"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// unlimited is the value of --max-remediations that limits nothing.
const unlimited = -1

// simulation is what the flags of simulate say.
type simulation struct {
	simulate.Question

	file string
	most int
}

func (o *Options) simulate() *cobra.Command {
	var s simulation
	c := &cobra.Command{
		Use:   "simulate [-f FILE] [--fail WHAT]",
		Short: "Show what a check would do, before it is applied, and when machines fail",
		Long: `Show what a manifest would do, here and now, before it is applied: which machines it selects, how they are judged, which other
checks select them, what would be remediated at once and what later. Then simulate, on a virtual clock, what happens from now on. With --fail,
nodes turn Ready=Unknown; name another condition with --fail-condition if the check has no rule for that one.

The controllers themselves decide, on a copy of the cluster in memory; nothing is written to the cluster. The first lines say what is assumed
of owners, hosts and other remediators, each with its flag. Without -f the checks of the cluster are simulated. An unclaimed
MachineHealthCheck of the file is simulated as if it were claimed.

The exit code is 3 if more remediations begin than --max-remediations, and 1 if the API server would refuse the manifest.`,
		Example: fmt.Sprintf("  %[1]s simulate -f check.yaml\n  %[1]s simulate -f check.yaml --fail pool=workers --for 20m --horizon 2h\n"+
			"  %[1]s simulate -f check.yaml --fail pool=workers --fail-condition KernelDeadlock=True\n"+
			"  %[1]s simulate --fail machine/workers-x7k2p --hard\n  %[1]s simulate -f check.yaml --from record.gz --max-remediations 0", o.Name),
		Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			a, err := o.simulated(c.Context(), s)
			if err != nil {
				return err
			}
			err = o.print(o.Out, a.Document(), nil, func() error { return a.Print(o.Out, o.width(), o.painter(o.Out)) })
			return errors.Join(err, s.verdict(a))
		},
	}
	s.addFlags(c)
	o.addOutput(c, wide)
	o.addSourceFlags(c)
	return c
}

func (s *simulation) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&s.file, "filename", "f", "",
		"File with MachineHealthChecks, NodeHealthChecks and the remediation templates that they name. If -, the standard input.")
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag is there
	f.StringVar(&s.Cluster, "cluster", "", "Name of the Cluster whose checks are simulated, with those of the manifest. If empty, those of all Clusters.")
	f.StringVar(&s.Fail, "fail", "",
		"What fails: a label selector over Machines, and over the Nodes that NodeHealthChecks judge; or machine/NAME and node/NAME, separated by commas.")
	s.FailCondition = simulate.NodeSilent
	f.Var(&s.FailCondition, "fail-condition", "What the nodes turn that fail: a condition that a rule of the check matches, such as KernelDeadlock=True.")
	f.DurationVar(&s.FailAt, "fail-at", 0, "How long from now it fails. If 0, at once.")
	f.DurationVar(&s.For, "for", 0, "For how long it fails. If 0, until a remediation brings it back.")
	f.DurationVar(&s.Horizon, "horizon", time.Hour, "How long to simulate.")
	f.DurationVar(&s.DeletionTakes, "deletion-takes", 2*time.Minute,
		"How long it takes from when the owner of a machine is asked until the machine is gone.")
	f.DurationVar(&s.ReplacementTakes, "replacement-takes", 10*time.Minute,
		"How long it takes from when an owner makes a new machine until its node is Ready.")
	f.DurationVar(&s.BootTakes, "boot-takes", 5*time.Minute, "How long it takes from when a host is on until its node is Ready.")
	f.BoolVar(&s.Hard, "hard", false, "A reboot does not help what fails, only a new machine does.")
	f.DurationVar(&s.RemediationTakes, "remediation-takes", 0,
		"How long remediators other than kubemend take from when they are asked until the node is Ready. If 0, it never is.")
	f.IntVar(&s.most, "max-remediations", unlimited, "Exit with code 3 if more remediations begin than that. If -1, any number may.")
}

// check refuses what cannot be meant.
func (s *simulation) check() error {
	for _, d := range []struct {
		flag string
		is   time.Duration
	}{
		{"fail-at", s.FailAt}, {"for", s.For}, {"horizon", s.Horizon}, {"deletion-takes", s.DeletionTakes}, {"replacement-takes", s.ReplacementTakes},
		{"boot-takes", s.BootTakes}, {"remediation-takes", s.RemediationTakes},
	} {
		if d.is < 0 {
			return Exit{Misused, fmt.Errorf("--%s %s: expected a duration that is not negative", d.flag, d.is)}
		}
	}
	switch {
	case s.Fail == "" && (s.For > 0 || s.FailAt > 0 || s.Hard || s.FailCondition != simulate.NodeSilent):
		return Exit{Misused, errors.New("--for, --fail-at, --fail-condition and --hard say how something fails: say what, with --fail")}
	case s.most < unlimited:
		return Exit{Misused, fmt.Errorf("--max-remediations %d: expected a number, or -1 for any", s.most)}
	}
	return nil
}

// verdict is the error by which the command ends, if any.
func (s *simulation) verdict(a *simulate.Answer) error {
	switch {
	case len(a.Refused) > 0:
		return errors.New("the API server would refuse the manifest: " + a.Refused[0])
	case s.most != unlimited && a.Summary.Begun > s.most:
		return Exit{TooMany, fmt.Errorf("remediations that begin: %d; --max-remediations allows %d", a.Summary.Begun, s.most)}
	}
	return nil
}

// simulated simulates what the flags ask for in the cluster that they name.
func (o *Options) simulated(ctx context.Context, s simulation) (*simulate.Answer, error) {
	scope := snapshot.Scope{Nodes: true, Cluster: s.Cluster}
	if s.file != "" {
		m, err := o.manifest(s.file)
		if err != nil {
			return nil, err
		}
		s.Manifest, scope.Templates, scope.NodeChecks, scope.Spares = m, m.Templates(), m.NodeChecks(), m.Spares()
	}
	w, err := o.snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	o.sayMissing(w)
	o.sayVersions(inspect.ManagersOf(ctx, w, w.Clock.Now()).All)
	if s.Namespace, err = o.namespace(); err != nil {
		return nil, err
	}
	if err := clusterIsThere(ctx, w.ReadOnly(), s.Namespace, s.Cluster); err != nil {
		return nil, err
	}
	s.From = w.Clock.Now()
	return simulate.Run(ctx, w, s.Question)
}

// manifest reads a file, or the standard input. What is all in one namespace is looked at there, unless the flags name another one.
func (o *Options) manifest(name string) (*simulate.Manifest, error) {
	from := o.In
	if name == "-" {
		name = "the standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		from = io.Reader(file)
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	m, err := simulate.Read(from, name, namespace)
	if err != nil {
		return nil, err
	}
	if o.allNamespaces || o.from != "" {
		return m, nil
	}
	elsewhere := slices.DeleteFunc(m.Namespaces(), func(n string) bool { return n == namespace })
	if len(elsewhere) > 0 {
		return nil, Exit{Misused, fmt.Errorf("%s has checks in namespace %s, and namespace %s is read: say -n %s, or -A",
			name, elsewhere[0], namespace, elsewhere[0])}
	}
	return m, nil
}
