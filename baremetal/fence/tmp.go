// Package fence is replaced.
package fence

import "k8s.io/apimachinery/pkg/types"

type Mode string
type Seen struct {
	Absent                       bool
	Fenced, FencedByUs, Drained  bool
	Left                         string
	UID                          types.UID
}
type Nodes struct{}
