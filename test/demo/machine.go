package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/test/simulator"
)

// origin is what a machine was before something happens to it, to compare with afterwards.
type origin struct {
	machine string
	uid     types.UID
	host    *simulator.Host
	at      time.Time
}

func (s *environment) origin(ctx context.Context, machine string) (origin, error) {
	object, err := s.machine(ctx, machine)
	if err != nil {
		return origin{}, err
	}
	host, err := s.host(machine)
	return origin{machine: machine, uid: object.UID, host: host, at: time.Now()}, err
}

// hostIsFree reports an error if anything still acts on the power of a host, or if it has an annotation that begins like one of
// the others.
func (s *environment) hostIsFree(ctx context.Context, key client.ObjectKey, others ...string) error {
	host := &bmov1alpha1.BareMetalHost{}
	if err := s.here.Get(ctx, key, host); err != nil {
		return fmt.Errorf("read host %s: %w", key.Name, err)
	}
	for left := range host.Annotations {
		for _, prefix := range append(others, infrav1.RebootAnnotation) {
			if strings.HasPrefix(left, prefix) {
				return fmt.Errorf("host %s still has the annotation %s", key.Name, left)
			}
		}
	}
	return nil
}
