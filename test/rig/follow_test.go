package rig

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A test that misses what was written while its watch was made again would wait for it for ever, or call what happened twice once.
func TestWhatFollowsGoesOnWhereAWatchHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := func(name, version string) *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
		}
		var from []string
		watches := make(chan *watch.FakeWatcher)
		server := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				list.SetResourceVersion("7")
				list.(*corev1.NodeList).Items = []corev1.Node{*node("there", "5")}
				return nil
			},
			Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				all := (&client.ListOptions{}).ApplyOptions(options)
				if all.Namespace != "here" {
					t.Errorf("the options of who follows are lost: %+v", all)
				}
				from = append(from, all.Raw.ResourceVersion)
				is := watch.NewFake()
				watches <- is
				return is, nil
			},
		})

		following, err := Follow(t.Context(), server, &corev1.NodeList{}, client.InNamespace("here"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range following.ResultChan() {
				got = append(got, string(e.Type)+" "+e.Object.(*corev1.Node).Name)
			}
		}()
		first := <-watches
		first.Add(node("new", "8"))
		first.Stop()
		second := <-watches
		second.Modify(node("new", "9"))
		synctest.Wait()
		following.Stop()
		<-ended

		if want := []string{"7", "8"}; !slices.Equal(from, want) {
			t.Errorf("it watched from %v, want %v", from, want)
		}
		if want := []string{"ADDED there", "ADDED new", "MODIFIED new"}; !slices.Equal(got, want) {
			t.Errorf("it sent %v, want %v", got, want)
		}
	})
}
