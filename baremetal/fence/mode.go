package fence

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mode is how the workload of a node is made to move.
type Mode string

const (
	// Auto is no mode: it stands for the one that the version of the workload cluster asks for.
	Auto Mode = "auto"
	// Taint puts the out-of-service taint on the node. Kubernetes then deletes its pods for good and detaches their volumes.
	Taint Mode = "taint"
	// Delete deletes the node, whose pods are then collected as orphans. It gets its labels and annotations back when it registers
	// again.
	Delete Mode = "delete"
)

// ModeFor returns the mode for the nodes of a cluster: override, if it is one; else by the version that the cluster's own API server
// reports (CAPM3 asks the management cluster, once). It is asked for each time, for the cluster may have been upgraded meanwhile.
//
// A version that cannot be read is an error: deleting a node is not what to do in doubt.
func (n *Nodes) ModeFor(ctx context.Context, cluster client.ObjectKey, override Mode) (Mode, error) {
	if override == Taint || override == Delete {
		return override, nil
	}
	l, err := n.link(ctx, cluster)
	if err != nil {
		return "", fmt.Errorf("ask cluster %s for its version: %w", cluster, err)
	}
	info, err := l.version(ctx)
	if err != nil {
		return "", fmt.Errorf("ask cluster %s for its version: %w", cluster, err)
	}
	mode, err := modeOf(info)
	if err != nil {
		return "", fmt.Errorf("choose how to fence nodes of cluster %s: %w", cluster, err)
	}
	return mode, nil
}

// modeOf is Taint from v1.28 on, where the feature NodeOutOfServiceVolumeDetach is GA and cannot be switched off.
func modeOf(info version.Info) (Mode, error) {
	major, minor, ok := numbers(info.Major, info.Minor)
	if !ok {
		first, rest, _ := strings.Cut(strings.TrimPrefix(info.GitVersion, "v"), ".")
		major, minor, ok = numbers(first, rest)
	}
	switch {
	case !ok:
		return "", fmt.Errorf("its version is neither in major %q, minor %q nor in %q", info.Major, info.Minor, info.GitVersion)
	case major > 1 || major == 1 && minor >= 28:
		return Taint, nil
	default:
		return Delete, nil
	}
}

// numbers reads the numbers that major and minor begin with: some vendors report "28+".
func numbers(major, minor string) (int, int, bool) {
	a, err := strconv.Atoi(leadingDigits(major))
	if err != nil {
		return 0, 0, false
	}
	b, err := strconv.Atoi(leadingDigits(minor))
	return a, b, err == nil
}

func leadingDigits(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}
