package snapshot

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// NodesOf is what Missing names before the name of a workload cluster whose nodes were not read.
const NodesOf = "Nodes of cluster "

// Missing is something that a snapshot does not have, because it could not be read.
type Missing struct {
	// What was to be read, such as "BareMetalHosts in all namespaces".
	What string `json:"what"`
	// Why it was not.
	Why string `json:"why"`
}

// String is the whole sentence.
func (m Missing) String() string { return m.What + ": " + m.Why }

// Missing is what could not be read, sorted.
func (s *Snapshot) Missing() []Missing {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.missing)
}

// Lacks notes that something could not be read.
func (s *Snapshot) Lacks(what, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := (Missing{what, why}); !slices.Contains(s.missing, m) {
		s.missing = append(s.missing, m)
		slices.SortFunc(s.missing, func(a, b Missing) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why)) })
	}
}

// errNoNodeCheck is why the nodes of the management cluster were not read.
var errNoNodeCheck = errors.New("the nodes of the management cluster were not read, since there is no NodeHealthCheck")

// what names what a question reads.
func (q question) what(k *kind) string {
	called := plural(k.Kind)
	switch {
	case k.GroupKind == leaseGVK.GroupKind() && q.Name != "":
		called = "Lease " + q.Name
	case q.Labels == managerBindings:
		called += " of " + managerlease.ClusterRole
	}
	switch {
	case k.GroupKind == nodeGVK.GroupKind():
		return called + " of the management cluster"
	case !k.Namespaced:
		return called
	case q.Namespace == "":
		return called + " in all namespaces"
	default:
		return called + " in namespace " + q.Namespace
	}
}

func plural(kind string) string {
	if begin, found := strings.CutSuffix(kind, "y"); found {
		return begin + "ies"
	}
	return kind + "s"
}

// Silent reports whether it was read in vain since an API server does not answer, which may pass.
func Silent(err error) bool { return explain.Silent(why(err)) }

// why says why something could not be read, in the same words each time.
func why(err error) string {
	timeout := net.Error(nil)
	switch {
	case apierrors.IsForbidden(err):
		said := err.Error()
		if _, after, found := strings.Cut(said, "forbidden: "); found {
			said = after
		}
		return "forbidden: " + said
	case apierrors.IsUnauthorized(err):
		return "not logged in: " + err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout(), apierrors.IsTimeout(err):
		return explain.NoAnswer
	case errors.As(err, new(*url.Error)), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err): // such as a load balancer's
		return explain.NoConnection + err.Error()
	default:
		return err.Error()
	}
}
