package fence

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func withClaim(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
	}}}
}

func withEphemeral(p *corev1.Pod) {
	p.Name = "claim"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

// ofPod makes the volume of an attachment one that a pod names inline.
func ofPod(a *storagev1.VolumeAttachment) {
	a.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{}}
}

func elsewhere(p *corev1.Pod) { p.Name, p.Spec.NodeName, p.Status.Phase = "q", "", corev1.PodPending }

func uid(is types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = is } }

// cluster-api#6285 and kubernetes#75913: the power cycle must not wait for pods that stay on the node, or that never ran there.
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
		"not a volume that only a pod elsewhere has": {
			pod: pod("p", withClaim, elsewhere, inPhase(corev1.PodRunning)), claim: "claim", by: Owner{Long: true}, idle: v,
		},
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
			if !slices.Equal(tc.want, seen.Left) || !slices.Equal(tc.idle, seen.Idle) {
				t.Errorf("left %v, idle %v; want %v and %v", seen.Left, seen.Idle, tc.want, tc.idle)
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

// All attachments of a large cluster in one answer would exceed --clustercache-response-limit.
func TestAttachmentsAreReadInPages(t *testing.T) {
	pages := map[string]*storagev1.VolumeAttachmentList{
		"":     {ListMeta: metav1.ListMeta{Continue: "last"}, Items: []storagev1.VolumeAttachment{*attachment("w", "n", true), *attachment("v", "m", true)}},
		"last": {Items: []storagev1.VolumeAttachment{*attachment("u", "n", false)}},
	}
	fails := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		into, is := list.(*storagev1.VolumeAttachmentList)
		if !is {
			return c.List(ctx, list, opts...)
		}
		*into = *pages[(&client.ListOptions{}).ApplyOptions(opts).Continue].DeepCopy()
		return nil
	}}
	seen, err := nodesOf(clusterOf(fails, node(outage))).Look(t.Context(), cluster, "n", us)
	if want := []string{"VolumeAttachment u", "VolumeAttachment w"}; err != nil || !cmp.Equal(want, seen.Left) {
		t.Errorf("%v are left, %v; want %v", seen.Left, err, want)
	}
}
