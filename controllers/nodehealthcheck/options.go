package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/flags"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Options are the settings of the NodeHealthCheck controller.
type Options struct {
	Concurrency    int
	LeaseNamespace string
	Grace          time.Duration
	// DefaultTemplate is the template of the check that the manager creates if there is no check; nil if it creates none.
	DefaultTemplate *corev1.ObjectReference
}

// AddFlags adds the controller's flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.Concurrency, "nodehealthcheck-concurrency", 10, "Number of NodeHealthChecks to process at the same time.")
	fs.StringVar(&o.LeaseNamespace, "node-lease-namespace", nhcv1.DefaultLeaseNamespace,
		"Namespace of the leases on nodes, which NodeHealthChecks and node maintenance respect. It has to exist, with the Role "+
			"kubemend-node-leases; the packages that have NodeHealthChecks bring both for the default.")
	fs.DurationVar(&o.Grace, "node-monitor-grace-period", 50*time.Second,
		"How long kubelets have to report, after the manager started, became the leader, or could not reach the API server, before a "+
			"NodeHealthCheck starts a remediation. Use the value of the flag of this name of the kube-controller-manager.")
	fs.Func("default-node-health-check-template",
		"Remediation template, as Kind.version.group/namespace/name, of the NodeHealthCheck "+DefaultName+
			", which the manager makes at start if there is no NodeHealthCheck. If empty, it makes none.",
		func(value string) (err error) {
			o.DefaultTemplate, err = parseTemplate(value)
			return err
		})
}

// Validate returns the errors in the values of the flags.
func (o *Options) Validate() error {
	return errors.Join(
		flags.Positive("nodehealthcheck-concurrency", o.Concurrency),
		flags.NotNegative("node-monitor-grace-period", o.Grace),
		flags.Namespace("node-lease-namespace", o.LeaseNamespace),
	)
}

// DefaultName is the name of the check that the manager creates if a flag says so. (Seed 001.)
const DefaultName = "nhc-worker-default"

// parseTemplate parses Kind.version.group/namespace/name; nil if value is empty.
func parseTemplate(value string) (*corev1.ObjectReference, error) {
	if value == "" {
		return nil, nil
	}
	parts := strings.Split(value, "/")
	kind, _ := schema.ParseKindArg(parts[0])
	if kind == nil || len(parts) != 3 || parts[2] == "" {
		return nil, fmt.Errorf("must be Kind.version.group/namespace/name, such as "+
			"SelfNodeRemediationTemplate.v1alpha1.self-node-remediation.medik8s.io/medik8s/automatic, not %q", value)
	}
	if _, err := remediationrequest.NodeKindOf(*kind); err != nil {
		return nil, err
	}
	return &corev1.ObjectReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: parts[1], Name: parts[2]}, nil
}

// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list;create

// CreateDefault creates the check DefaultName, for all nodes except those of the control plane, unless there is any check.
func CreateDefault(ctx context.Context, writer client.Writer, live client.Reader, template *corev1.ObjectReference) error {
	list := &nhcv1.NodeHealthCheckList{}
	if err := live.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("look for NodeHealthChecks: %w", err)
	}
	if len(list.Items) > 0 {
		return nil
	}
	check := &nhcv1.NodeHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultName},
		Spec: nhcv1.NodeHealthCheckSpec{
			Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "node-role.kubernetes.io/control-plane", Operator: metav1.LabelSelectorOpDoesNotExist},
				{Key: "node-role.kubernetes.io/master", Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
			MinHealthy:          ptr.To(intstr.FromString(budget.DefaultMinHealthy)),
			RemediationTemplate: template,
		},
	}
	if err := writer.Create(ctx, check); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create NodeHealthCheck %s: %w", DefaultName, err)
	}
	return nil
}

// shortOutage is how long the API server may be down before a kubelet misses a report: kubelets renew their leases every ten seconds.
const shortOutage = 10 * time.Second

// Contact finds the outages of the API server by the results of the requests that the manager sends anyway.
type Contact struct {
	Clock clock.PassiveClock
	Next  http.RoundTripper // sends the requests
	// Ahead returns Facts.ClockAhead; may be nil.
	Ahead func() time.Duration

	mu      sync.Mutex
	lost    time.Time // since when no request is answered; zero if the last one was
	outages []Outage
}

const mostOutages = 20

// RoundTrip sends a request, and notes whether the API server has answered it.
func (c *Contact) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.Next.RoundTrip(req)
	switch {
	case errors.Is(err, context.Canceled): // by the manager itself
	case err != nil:
		c.note(false)
	default:
		away := []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} // from a load balancer
		c.note(!slices.Contains(away, resp.StatusCode))
	}
	return resp, err
}

func (c *Contact) note(answered bool) {
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !answered && c.lost.IsZero():
		c.lost = now
	case answered && !c.lost.IsZero():
		if now.Sub(c.lost) >= shortOutage {
			c.outages = append(c.outages[max(0, len(c.outages)-mostOutages+1):], Outage{From: c.lost, To: now})
		}
		c.lost = time.Time{}
	}
}

func (c *Contact) past() []Outage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.outages)
}
