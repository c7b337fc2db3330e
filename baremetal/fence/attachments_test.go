package fence

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestASlimAttachmentHoldsWhatIsAsked(t *testing.T) {
	fat, volume := attachment("v", "n", true), "pv"
	fat.Spec.Source.PersistentVolumeName = &volume
	source := fat.Spec.DeepCopy().Source
	fat.UID, fat.ResourceVersion, fat.Labels = "u", "7", map[string]string{"a": "b"}
	fat.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	fat.Status.AttachmentMetadata = map[string]string{"device": "/dev/x"}
	want := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "u", ResourceVersion: "7"},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: "n", Source: source},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
	got, err := SlimAttachment(fat)
	must.Do(t, err)
	must.Equal(t, want, got, "SlimAttachment()")
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
	must.Do(t, err)
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

func withClaim(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
	}}}
}

func withEphemeral(p *corev1.Pod) {
	p.Name = "claim"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

// ofPod makes an attachment one of a volume that a pod names itself.
func ofPod(a *storagev1.VolumeAttachment) {
	a.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}}
}

func elsewhere(p *corev1.Pod) { p.Name, p.Spec.NodeName, p.Status.Phase = "q", "", corev1.PodPending }

func uid(is types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = is } }

// cluster-api#6285 and kubernetes#75913: what stays, and what was never there, keeps a host off in vain.
func TestWhatNeedNotLeaveAFencedNode(t *testing.T) {
	tolerant := tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists})
	deleted := func(a *storagev1.VolumeAttachment) {
		a.DeletionTimestamp, a.Finalizers = &metav1.Time{Time: noon}, []string{"external-attacher/csi"}
	}
	v, waits := []string{"VolumeAttachment v"}, true
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		claim   string // "-": there is no volume of the name
		change  func(*storagev1.VolumeAttachment)
		by      Owner
		refused bool
		want    []string
		idle    []string
	}{
		"not the volume of a pod of a DaemonSet":        {pod: pod("p", ownedBy("apps/v1", "DaemonSet"), withClaim), claim: "claim"},
		"not that of a pod that tolerates the taint":    {pod: pod("p", tolerant, withClaim), claim: "claim"},
		"nor an ephemeral one":                          {pod: pod("p", tolerant, withEphemeral), claim: "claim-v"},
		"but another volume":                            {pod: pod("p", tolerant, withClaim), claim: "other", want: v},
		"and one whose claim must not be read":          {pod: pod("p", tolerant, withClaim), claim: "claim", refused: waits, want: v},
		"and that of a pod that has finished":           {pod: pod("p", inPhase(corev1.PodFailed), withClaim), claim: "claim", want: v},
		"and one that is being detached":                {pod: pod("p", tolerant, withClaim), claim: "claim", change: deleted, want: v},
		"a volume that no pod has":                      {claim: "claim", want: v},
		"not for long":                                  {claim: "claim", by: Owner{Long: true}, idle: v},
		"nor one that is gone":                          {claim: "-", by: Owner{Long: true}, idle: v},
		"unless it is being detached":                   {claim: "claim", by: Owner{Long: true}, change: deleted, want: v},
		"or a pod waits for it elsewhere":               {pod: pod("p", withClaim, elsewhere), claim: "claim", by: Owner{Long: true}, want: v},
		"or it must not be read":                        {claim: "claim", by: Owner{Long: true}, refused: waits, want: v},
		"or nothing is known of it":                     {change: ofPod, claim: "-", by: Owner{Long: true}, want: v},
		"not a pod that has come since, nor its volume": {pod: pod("p", withClaim, uid("new")), claim: "claim", by: Owner{Found: []types.UID{"old"}}},
		"not even if there was none":                    {pod: pod("p", withClaim, uid("new")), claim: "claim", by: Owner{Found: []types.UID{}}},
		"but one that was there":                        {pod: pod("p", uid("old")), claim: "-", by: Owner{Found: []types.UID{"old"}}, want: []string{"Pod ns/p"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, volume := attachment("v", "n", true), "pv"
			a.Spec.Source.PersistentVolumeName = &volume
			if tc.change != nil {
				tc.change(a)
			}
			objs := []client.Object{node(outage), a}
			if tc.pod != nil {
				objs = append(objs, tc.pod)
			}
			if tc.claim != "-" {
				pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}}
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: tc.claim}
				objs = append(objs, pv)
			}
			get := func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, is := obj.(*corev1.PersistentVolume); is && tc.refused {
					return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), key.Name, nil)
				}
				return c.Get(ctx, key, obj, opts...)
			}
			seen := clusterOf(interceptor.Funcs{Get: get}, objs...).look(t, tc.by)
			if diff := cmp.Diff([][]string{tc.want, tc.idle}, [][]string{seen.Left, seen.Idle}); diff != "" && len(tc.want)+len(seen.Left)+len(tc.idle)+len(seen.Idle) > 0 {
				t.Errorf("left, idle (-want +got):\n%s", diff)
			}
			if seen.Drained != (len(tc.want) == 0) {
				t.Errorf("drained: %t", seen.Drained)
			}
		})
	}
}

func TestThePodsOfANodeThatIsAboutToBeFencedAreToldApart(t *testing.T) {
	n := nodesOf(clusterOf(interceptor.Funcs{}, node(), pod("p", uid("old")), pod("ds", uid("ds"), ownedBy("apps/v1", "DaemonSet"))))
	for fences, want := range map[bool][]types.UID{true: {"old"}, false: nil} {
		seen, err := n.Look(t.Context(), cluster, "n", Owner{Fences: fences})
		if diff := cmp.Diff(want, seen.Pods); diff != "" || err != nil {
			t.Errorf("fences: %t: %v, %s", fences, err, diff)
		}
	}
}
