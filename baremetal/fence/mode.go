package fence

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mode is how the workload of a node is made to move. It is the value of a flag.
type Mode string

const (
	// Taint is the out-of-service taint: pods and volumes of the node are removed at once. (KEP-2268, stable in v1.28.)
	Taint Mode = "taint"
	// Delete deletes the node, whose pods are then collected as orphans. Labels and annotations are given to the node that comes back.
	Delete Mode = "delete"
)

// Set makes Mode a flag value.
func (m *Mode) Set(s string) error {
	switch v := Mode(s); v {
	case "", Taint, Delete:
		*m = v
		return nil
	}
	return fmt.Errorf("must be empty, %s or %s", Taint, Delete)
}

// String makes Mode a flag value.
func (m *Mode) String() string { return string(*m) }

// Type makes Mode a flag value.
func (m *Mode) Type() string { return "string" }

// modeFor is the mode that an API server of that version knows. Vendors write versions like 28+, so only the leading digits count.
func modeFor(v *version.Info) (Mode, error) {
	major, err := leading(v.Major)
	if err != nil {
		return "", fmt.Errorf("read the major version %q: %w", v.Major, err)
	}
	minor, err := leading(v.Minor)
	if err != nil {
		return "", fmt.Errorf("read the minor version %q: %w", v.Minor, err)
	}
	if major > 1 || major == 1 && minor >= 28 {
		return Taint, nil
	}
	return Delete, nil
}

func leading(s string) (int, error) {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		s = s[:end]
	}
	return strconv.Atoi(s)
}

type knownMode struct {
	mode  Mode
	until time.Time
}

// modeLasts is how long the version of a cluster is taken to stay as it is. An upgrade passes v1.28 once.
const modeLasts = 10 * time.Minute

// modeOf finds out the mode for a workload cluster: it is the version of that cluster that counts, and not of the management cluster.
func (n *Nodes) modeOf(ctx context.Context, cluster client.ObjectKey) (Mode, error) {
	if n.Override != "" {
		return n.Override, nil
	}
	n.mu.Lock()
	known, found := n.modes[cluster]
	n.mu.Unlock()
	if found && time.Now().Before(known.until) {
		return known.mode, nil
	}
	config, err := n.Clusters.GetRESTConfig(ctx, cluster)
	if err != nil {
		return "", fmt.Errorf("ask cluster %s for its version: %w", cluster, err)
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("ask cluster %s for its version: %w", cluster, err)
	}
	v, err := api.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask cluster %s for its version: %w", cluster, err)
	}
	mode, err := modeFor(v)
	if err != nil {
		return "", fmt.Errorf("ask cluster %s for its version: %w", cluster, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.modes == nil {
		n.modes = map[client.ObjectKey]knownMode{}
	}
	n.modes[cluster] = knownMode{mode: mode, until: time.Now().Add(modeLasts)}
	return mode, nil
}
