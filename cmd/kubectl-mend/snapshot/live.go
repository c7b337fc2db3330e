package snapshot

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// live is what a snapshot that was read live can still ask.
type live struct {
	mu        sync.Mutex
	workloads map[client.ObjectKey]client.Reader
}
