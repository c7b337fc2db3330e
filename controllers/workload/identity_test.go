package workload

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// connected is a ClusterCache that is connected to one workload cluster.
type connected struct {
	clustercache.ClusterCache
	to client.Client
}

func (c connected) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if c.to == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.to, nil
}

func objects(t *testing.T, all ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Do(t, errors.Join(corev1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
}

// clusterOf returns Cluster c1 with this value of the annotation.
func clusterOf(kept string) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c1.Namespace, Name: c1.Name, UID: "c1"}}
	if kept != "" {
		cluster.Annotations = map[string]string{mendv1.WorkloadClusterAnnotation: kept}
	}
	return cluster
}

// answering returns a workload cluster with this UID.
func answering(t *testing.T, uid types.UID) client.WithWatch {
	t.Helper()
	return objects(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}})
}

func TestAWorkloadClusterIsTheUIDOfItsNamespaceKubeSystem(t *testing.T) {
	for name, tc := range map[string]struct {
		kept    string
		answers client.Client
		changed bool
		keeps   string
	}{
		"the first one that is read is kept": {"", answering(t, "w1"), false, "c1/w1"},
		"the same":                           {"c1/w1", answering(t, "w1"), false, "c1/w1"},
		"another one":                        {"c1/w1", answering(t, "w2"), true, "c1/w1"},
		"another one, where a copied Cluster kept one": {"c0/w1", answering(t, "w2"), false, "c1/w2"},
		"what is kept cannot be read":                  {"w1", answering(t, "w2"), false, "c1/w2"},
		"none is connected":                            {"c1/w1", nil, false, "c1/w1"},
		"one that may not be identified":               {"c1/w1", objects(t), false, "c1/w1"},
		"none can be read, and none is kept":           {"", objects(t), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewClusters(connected{to: tc.answers})
			c.Management = objects(t, clusterOf(tc.kept))
			verified := Connections{ClusterCache: connected{to: tc.answers}, Transports: c.Transports, Verify: c.Verify}
			_, err := verified.GetUncachedClient(t.Context(), c1)
			var changed *ChangedError
			is := errors.As(err, &changed)
			if is != tc.changed {
				t.Errorf("it is %v", err)
			}
			if is && (*changed != ChangedError{c1, "w1", "w2"} || !strings.Contains(err.Error(), "annotate clusters.cluster.x-k8s.io c1 -n "+c1.Namespace+" kubemend.io/workload-cluster-")) {
				t.Errorf("it says %s", err)
			}
			if got := stored(t, c.Management).Annotations[mendv1.WorkloadClusterAnnotation]; got != tc.keeps {
				t.Errorf("%q is kept", got)
			}
		})
	}
}

// stored reads Cluster c1.
func stored(t *testing.T, management client.Reader) *clusterv1.Cluster {
	t.Helper()
	cluster := &clusterv1.Cluster{}
	must.Do(t, management.Get(t.Context(), c1, cluster))
	return cluster
}

func TestAnotherWorkloadClusterStaysOneWhileItCannotBeReadAgain(t *testing.T) {
	c := NewClusters(connected{to: answering(t, "w2")})
	c.Management = objects(t, clusterOf("c1/w1"))
	first := c.Verify(t.Context(), c1)
	c.cache = connected{to: objects(t)}
	second := c.Verify(t.Context(), c1)
	c.of(c1).connection++ // another one
	if third := c.Verify(t.Context(), c1); first == nil || second == nil || third == nil {
		t.Errorf("it was %v and %v, and is %v", first, second, third)
	}
}

// The cache of a manager does not show yet that another manager has written the annotation.
func TestWhatAnotherManagerHasKeptStandsAndIsNotWrittenAgain(t *testing.T) {
	management, patches := objects(t, clusterOf("")), 0
	before := stored(t, management)
	c := NewClusters(connected{to: answering(t, "w2")})
	c.Management = interceptor.NewClient(management, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
			before.DeepCopyInto(into.(*clusterv1.Cluster))
			return nil
		},
		Patch: func(ctx context.Context, m client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			patches++
			return m.Patch(ctx, o, patch, opts...)
		},
	})
	theirs := before.DeepCopy()
	theirs.Annotations = map[string]string{mendv1.WorkloadClusterAnnotation: "c1/w1"}
	must.Do(t, management.Update(t.Context(), theirs))
	for range 3 {
		if err := c.Verify(t.Context(), c1); err != nil {
			t.Errorf("of what the cache does not show it says %v", err)
		}
	}
	before = stored(t, management)
	if err := c.Verify(t.Context(), c1); err == nil || patches != 1 || before.Annotations[mendv1.WorkloadClusterAnnotation] != "c1/w1" {
		t.Errorf("it is %v, after %d writes, and %v is kept", err, patches, before.Annotations)
	}
}

func TestOfAClusterThatIsGoneNothingIsKept(t *testing.T) {
	c := NewClusters(connected{to: answering(t, "w1")})
	c.Management = objects(t)
	if err := c.Verify(t.Context(), c1); err != nil || len(c.states) > 0 {
		t.Errorf("%v, and %v is kept", err, c.states)
	}
}

func TestAPausedClusterIsNotWritten(t *testing.T) {
	c, paused := NewClusters(connected{to: answering(t, "w1")}), clusterOf("")
	paused.Spec.Paused = ptr.To(true)
	c.Management = objects(t, paused)
	if err := c.Verify(t.Context(), c1); err != nil || stored(t, c.Management).ResourceVersion != "999" {
		t.Errorf("%v, and it is %v", err, stored(t, c.Management).Annotations)
	}
}

func TestWhatFailedOnceIsTriedAgain(t *testing.T) {
	for _, fails := range []string{"reading which one answers", "keeping it"} {
		t.Run(fails, func(t *testing.T) {
			failing := fails
			c := NewClusters(connected{to: interceptor.NewClient(answering(t, "w1"), interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, into client.Object, opts ...client.GetOption) error {
					if failing == "reading which one answers" {
						return apierrors.NewTimeoutError("", 0)
					}
					return w.Get(ctx, k, into, opts...)
				},
			})})
			c.of(c1).connection++
			c.Management = interceptor.NewClient(objects(t, clusterOf("")), interceptor.Funcs{
				Patch: func(ctx context.Context, m client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if failing == "keeping it" {
						return apierrors.NewTimeoutError("", 0)
					}
					return m.Patch(ctx, o, p, opts...)
				},
			})
			if v := c.identified(t.Context(), c1, View{Link: Up}, noon.Time); v.Keep != nil {
				v.Keep(t.Context())
			}
			if v := c.identified(t.Context(), c1, View{Link: Up}, noon.Time); v.Keep != nil {
				t.Error("it is tried again at once")
			}
			failing = ""
			c.identified(t.Context(), c1, View{Link: Up}, noon.Add(time.Minute)).Keep(t.Context())
			if got := stored(t, c.Management).Annotations[mendv1.WorkloadClusterAnnotation]; got != "c1/w1" {
				t.Errorf("%q is kept", got)
			}
		})
	}
}

func TestWhatAnotherClientRemovesFromTheClusterIsKeptEverMoreRarely(t *testing.T) {
	patches, without := 0, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))
	c := NewClusters(connected{to: answering(t, "w1")})
	c.of(c1).connection++
	c.Management = interceptor.NewClient(objects(t, clusterOf("")), interceptor.Funcs{
		Patch: func(ctx context.Context, m client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			patches++
			err := m.Patch(ctx, o, p, opts...)
			return errors.Join(err, m.Patch(ctx, clusterOf(""), without))
		},
	})
	for second := range 60 {
		for range 10 {
			if v := c.identified(t.Context(), c1, View{Link: Up}, noon.Add(time.Duration(second)*time.Second)); v.Keep != nil {
				v.Keep(t.Context())
			}
		}
	}
	if patches < 4 || patches > 8 { // after 1, 2, 4 ... seconds
		t.Errorf("it is written %d times in a minute", patches)
	}
}

// Each of hundreds of power cycles may act several times in a second. Another kubeconfig may lead to another cluster.
func TestWhichClusterAnswersByAKubeconfigIsReadOnceASecond(t *testing.T) {
	server, now := serve(t, func(http.ResponseWriter, *http.Request) {}), testclock.NewFakePassiveClock(noon.Time)
	for name, happens := range map[string]func(*Clusters){
		"a second later":              func(*Clusters) { now.SetTime(now.Now().Add(time.Second)) },
		"another kubeconfig":          func(c *Clusters) { must.Do(t, c.Transports.use(c1, kubeconfigOf(server, "token: other", ""))) },
		"another connection":          func(c *Clusters) { c.of(c1).connection++ },
		"a Cluster that is made anew": func(c *Clusters) { c.of(c1).identity = identity{} },
	} {
		c := NewClusters(connected{to: answering(t, "w1")})
		c.Transports, c.Management = routed(t, c1, server, NewTransports(1<<20, now)), objects(t, clusterOf("c1/w1"))
		first := c.Verify(t.Context(), c1)
		c.cache = connected{to: answering(t, "w2")}
		second := c.Verify(t.Context(), c1)
		happens(c)
		if third := c.Verify(t.Context(), c1); first != nil || second != nil || third == nil {
			t.Errorf("%s: it was %v and %v, and is %v", name, first, second, third)
		}
	}
}

// The response came from the cluster of the previous kubeconfig.
func TestAnAnswerFromBeforeAnotherKubeconfigDoesNotCount(t *testing.T) {
	server, now := serve(t, func(http.ResponseWriter, *http.Request) {}), testclock.NewFakePassiveClock(noon.Time)
	c := NewClusters(nil)
	c.Transports, c.Management = routed(t, c1, server, NewTransports(1<<20, now)), objects(t, clusterOf("c1/w1"))
	c.cache = connected{to: interceptor.NewClient(answering(t, "w1"), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			must.Do(t, c.Transports.use(c1, kubeconfigOf(server, "token: other", "")))
			return w.Get(ctx, k, into, opts...)
		},
	})}
	first := c.Verify(t.Context(), c1)
	c.cache = connected{to: answering(t, "w2")}
	if second := c.Verify(t.Context(), c1); first != nil || second == nil {
		t.Errorf("it was %v, and is %v", first, second)
	}
}
