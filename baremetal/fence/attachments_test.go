package fence

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestASlimAttachmentHoldsWhatIsAsked(t *testing.T) {
	fat, volume := attachment("v", "n", true), "pv"
	inline("id")(fat)
	fat.Spec.Source.PersistentVolumeName = &volume
	source := fat.Spec.DeepCopy().Source
	fat.Spec.Source.InlineVolumeSpec.CSI.Driver = "d"
	fat.UID, fat.ResourceVersion, fat.Labels = "u", "7", map[string]string{"a": "b"}
	fat.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	fat.Status.AttachmentMetadata = map[string]string{"device": "/dev/x"}
	want := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "7"},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: "n", Source: source},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
	got, err := SlimAttachment(fat)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("SlimAttachment() (-want +got):\n%s", diff)
	}
	if other, err := SlimAttachment("else"); err != nil || other != "else" {
		t.Errorf("SlimAttachment() of something else = %v, %v", other, err)
	}
}

// connection is the cache of one connection; there are attachments in it, and nothing else.
type connection struct {
	cache.Cache
	informer toolscache.SharedIndexInformer
	changes  *watch.RaceFreeFakeWatcher
	stop     context.CancelFunc
}

func (c *connection) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

// connected is a cache that lists the given attachments as soon as it may.
func connected(t *testing.T, may <-chan struct{}, attachments ...storagev1.VolumeAttachment) *connection {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &connection{changes: watch.NewRaceFreeFake(), stop: stop}
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			select {
			case <-may:
			case <-ctx.Done():
			}
			return &storagev1.VolumeAttachmentList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: attachments}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return c.changes, nil },
	}
	plain := toolscache.ToListWatcherWithWatchListSemantics(source, listsOnly{})
	c.informer = toolscache.NewSharedIndexInformer(plain, &storagev1.VolumeAttachment{}, 0, toolscache.Indexers{})
	go c.informer.RunWithContext(ctx)
	return c
}

// listsOnly is a client that lists before it watches.
type listsOnly struct{}

func (listsOnly) IsWatchListSemanticsUnSupported() bool { return true }

// see is what is left on the node, as the adapter sees it.
func see(t *testing.T, n *Nodes) []string {
	t.Helper()
	synctest.Wait()
	seen, err := n.Look(t.Context(), cluster, "n", us)
	if err != nil {
		t.Fatal(err)
	}
	return seen.Left
}

// The attachments in the cluster and those in the caches have other names here, so that the answer shows which of them was asked.
func TestAttachmentsComeFromTheCacheOfTheConnection(t *testing.T) {
	watching(t, func(t *testing.T, s *server, n *Nodes) {
		lists := 0
		count := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*storagev1.VolumeAttachmentList); is {
				lists++
			}
			return c.List(ctx, list, opts...)
		}}
		config := s.config
		s.fakeCluster = clusterOf(count, node(outage), attachment("live", "n", true))
		s.config = config
		may := make(chan struct{})
		first := connected(t, may, *attachment("cached", "n", true), *attachment("elsewhere", "m", true))
		s.cache = first
		same(t, "left before anything is watched", []string{"VolumeAttachment live"}, see(t, n))
		s.watches(t, n, "n")
		same(t, "left before the cache is filled", []string{"VolumeAttachment live"}, see(t, n))
		close(may)
		same(t, "left when it is", []string{"VolumeAttachment cached"}, see(t, n))
		same(t, "number of lists", 2, lists)

		first.changes.Delete(attachment("elsewhere", "m", true))
		same(t, "reported for a volume that leaves another node", nil, s.reported())
		first.changes.Modify(attachment("cached", "n", false))
		same(t, "reported for a volume that is detached", nil, s.reported())
		first.changes.Delete(attachment("cached", "n", false))
		same(t, "reported for a volume that is gone", []string{"c/n"}, s.reported())
		same(t, "left then", nil, see(t, n))

		first.stop()
		same(t, "left when the connection is lost", []string{"VolumeAttachment live"}, see(t, n))
		second := connected(t, may, *attachment("again", "n", true))
		defer second.stop()
		s.cache, s.added = second, map[string]bool{}
		s.watches(t, n, "n")
		same(t, "left when there is a new one", []string{"VolumeAttachment again"}, see(t, n))
		n.Unwatch(cluster, "n")
		second.changes.Delete(attachment("again", "n", true))
		same(t, "reported though nothing is watched", nil, s.reported())
	})
}

func TestTheLastKnownStateOfAnAttachmentIsReportedAsWell(t *testing.T) {
	watching(t, func(t *testing.T, s *server, n *Nodes) {
		s.watches(t, n, "n")
		attachmentStore{n, cluster}.gone(toolscache.DeletedFinalStateUnknown{Obj: attachment("v", "n", true)})
		same(t, "reported", []string{"c/n"}, s.reported())
	})
}
