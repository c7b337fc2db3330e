package setup

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// Each of hundreds of records that are written at once finds the host of its machine.
func TestHostsAreReadFromTheCachesThatHaveThem(t *testing.T) {
	for name, tc := range map[string]struct {
		watched   bool
		namespace string // of the caches
		want      int    // reads past them
	}{
		"while power cycles are watched":           {watched: true},
		"not of another namespace":                 {watched: true, namespace: "other", want: 301},
		"not before, and lists in a moment as one": {want: 301},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			counting := func(n *int) client.WithWatch {
				return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
						*n++
						return nil
					},
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						*n++
						return nil
					},
				}).Build()
			}
			live := counting(&reads)
			reader := hostReader{
				Client: live, recent: &records.Recent{Live: live, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))},
				caches: counting(new(int)), namespace: tc.namespace, watched: func() bool { return tc.watched },
			}
			for range 300 {
				one, list := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
				one.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3Machine"))
				list.SetGroupVersionKind(infrav1.GroupVersion.WithKind("Metal3MachineList"))
				get := reader.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: "m"}, one)
				must.Do(t, errors.Join(get, reader.List(t.Context(), list, client.InNamespace("metal"))))
			}
			if reads != tc.want {
				t.Errorf("the API server is asked %d times", reads)
			}
		})
	}
}
