package records

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// metal finds hosts as a test has it.
type metal func(context.Context) (host.Found, error)

func (m metal) Of(ctx context.Context, _ *clusterv1.Machine) (host.Found, error) { return m(ctx) }

func TestARecordNamesTheHostIfItCanBeRead(t *testing.T) {
	on := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rack-7-3"}}
	for name, tc := range map[string]struct {
		metal Metal
		named bool
	}{
		"the host of the machine": {metal(func(context.Context) (host.Found, error) { return host.Found{Host: on, Is: powercycle.HostOurs}, nil }), true},
		"not that of another one": {metal(func(context.Context) (host.Found, error) {
			return host.Found{Host: on, Is: powercycle.HostForeign}, nil
		}), false},
		"none that may not be read":      {metal(func(context.Context) (host.Found, error) { return host.Found{}, errors.New("forbidden") }), false},
		"none if no answer comes":        {metal(func(ctx context.Context) (host.Found, error) { <-ctx.Done(); return host.Found{}, ctx.Err() }), false},
		"none without a reader of hosts": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now() //nolint:forbidigo // of the bubble
				if is := HostOf(t.Context(), tc.metal, &clusterv1.Machine{}); (is != nil) != tc.named {
					t.Errorf("the host is %v", is)
				}
				if took := time.Since(began); took > hostWithin { //nolint:forbidigo // of the bubble
					t.Errorf("it is waited for %s", took)
				}
			})
		})
	}
}
