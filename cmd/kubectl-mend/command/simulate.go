package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/simulate"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

const unlimited = -1

type simulation struct {
	simulate.Question

	file string
	most int
}

func (o *Options) simulate() *cobra.Command {
	var s simulation
	c := &cobra.Command{
		Use:   "simulate [-f FILE] [--fail WHAT] [--fail-domain NAME] [--set LIMIT=VALUE]",
		Short: "Show which remediations a check would start, before it is applied, and when machines fail",
		Long: `Show which remediations checks would start, when, and what their limits answer: now, and, with --fail, while nodes fail.
With -f, the checks of a file are simulated as if they were applied and claimed; without it, those of the cluster. Policies and overrides of
the cluster apply as well.

The controllers decide on a copy of the cluster in memory, with a clock that jumps from one event to the next. What others do about a
remediation is not simulated: it is over, and its machine healthy again, --takes after it has started.

The exit code is 0 if no remediation would start, 3 if one would, and 4 if they would be more than --at-most.`,
		Example: fmt.Sprintf("  %[1]s simulate -f check.yaml\n  %[1]s simulate -f check.yaml --fail 3 --for 20m\n"+
			"  %[1]s simulate --fail zone=b --set maxUnhealthy=40%%\n"+
			"  %[1]s simulate -f check.yaml --from record.json --at-most 0", o.Name),
		Args: s.args,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			answer, err := o.simulated(c.Context(), s)
			if err != nil {
				return err
			}
			err = o.print(answer, func() error { return simulate.Print(o.Out, answer, o.layout()) })
			return errors.Join(err, s.verdict(answer))
		},
	}
	s.addFlags(c)
	o.addOutput(c)
	o.addSourceFlags(c)
	return c
}

func (s *simulation) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&s.file, "filename", "f", "",
		"File with MachineHealthChecks, NodeHealthChecks, the remediation templates that they name, RemediationPolicies and "+
			"RemediationOverrides. If -, the standard input.")
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json") // fails only for an unknown flag
	f.StringVar(&s.Cluster, "cluster", "",
		"Name of the Cluster whose checks are simulated, with those of the file. If empty, those of all Clusters.")
	f.StringArrayVar(&s.Set, "set", nil,
		"Limit that the checks have, as NAME=VALUE; may be repeated. Names: "+strings.Join(simulate.Limits, ", ")+".")
	f.StringArrayVar(&s.Fail, "fail", nil, "Nodes that fail at once: how many of those that the checks select; a label selector over "+
		"Machines and over Nodes that NodeHealthChecks judge, also as -l SELECTOR; or machine/NAME, node/NAME and failuredomain/NAME, "+
		"with commas. May be repeated.")
	f.Func("fail-domain", "Failure domain of which all nodes fail at once, as RemediationPolicies know it: by the label of the host, else "+
		"that of the Machine, else the zone of the Node. May be repeated.", func(name string) error {
		s.Fail = append(s.Fail, "failuredomain/"+name)
		return nil
	})
	f.DurationVar(&s.For, "for", 0, "For how long they fail, if no remediation ends it before. If 0, they do not recover by themselves.")
	f.DurationVar(&s.Takes, "takes", 10*time.Minute, "After how long a remediation is over, and its machine healthy again.")
	f.DurationVar(&s.Horizon, "horizon", time.Hour, "How long to simulate.")
	f.IntVar(&s.most, "at-most", unlimited, "Exit with code 4 if more remediations would start than that. If -1, any number may.")
}

// args accepts the selector of `--fail -l SELECTOR`, which the flag parser takes for an argument of the command, and no other argument.
func (s *simulation) args(c *cobra.Command, args []string) error {
	for i, what := range s.Fail {
		if what == "-l" && len(args) > 0 {
			s.Fail[i], args = args[0], args[1:]
		}
	}
	return noArgs(c, args)
}

func (s *simulation) check() error {
	for _, limit := range s.Set {
		if err := simulate.CheckLimit(limit); err != nil {
			return Exit{Misused, err}
		}
	}
	switch {
	case s.For < 0, s.Horizon < 0:
		return Exit{Misused, errors.New("--for and --horizon: expected a duration that is not negative")}
	case s.Takes < time.Second:
		return Exit{Misused, fmt.Errorf("--takes %s: expected a second at least", s.Takes)}
	case len(s.Fail) == 0 && s.For > 0:
		return Exit{Misused, errors.New("--for says for how long something fails: say what, with --fail or --fail-domain")}
	case s.most < unlimited:
		return Exit{Misused, fmt.Errorf("--at-most %d: expected a number, or -1 for any", s.most)}
	}
	return nil
}

func (s *simulation) verdict(answer *cliv1.Simulation) error {
	if s.most != unlimited && len(answer.Starts) > s.most {
		return Exit{Refused, fmt.Errorf("remediations that would start: %d; --at-most allows %d", len(answer.Starts), s.most)}
	} else if len(answer.Starts) > 0 {
		return Exit{WouldStart, nil}
	}
	return nil
}

func (o *Options) simulated(ctx context.Context, s simulation) (*cliv1.Simulation, error) {
	scope := snapshot.Scope{Cluster: s.Cluster, Judge: true}
	if s.file != "" {
		m, err := o.manifest(s.file)
		if err != nil {
			return nil, err
		}
		s.Manifest = m
		if m.JudgesNodes() { // a NodeHealthCheck needs the Machines of all clusters
			scope.Cluster = ""
		}
	}
	w, err := o.snapshot(ctx, scope)
	if err != nil {
		return nil, err
	}
	if s.Namespace, err = o.namespace(); err != nil {
		return nil, err
	}
	if err := clusterIsThere(ctx, w, s.Namespace, s.Cluster); err != nil {
		return nil, err
	}
	s.From = w.Clock.Now()
	answer, err := simulate.Run(ctx, w, s.Question)
	o.sayMissing(w)
	return answer, err
}

// manifest reads the checks of a file or of the standard input. It returns an error if they are in another namespace than the one read.
func (o *Options) manifest(name string) (simulate.Manifest, error) {
	from := o.In
	if name == "-" {
		name = "the standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		defer func() { _ = file.Close() }() // nothing was written to it
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
	if elsewhere := m.Elsewhere(namespace); elsewhere != "" && !o.allNamespaces && o.from == "" {
		return nil, Exit{Misused, fmt.Errorf("%s has checks in namespace %s, and namespace %s is read: say -n %s, or -A",
			name, elsewhere, namespace, elsewhere)}
	}
	return m, nil
}
