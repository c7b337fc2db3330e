package remediationrecord

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/test/golden"
)

// quiet is a step in which time passes and no controller writes.
const quiet = "nothing happens for half an hour"

// scenes are what happens to worker w1, in steps a minute apart, as recorded in testdata/capi-v1.14.2.yaml.
var scenes = map[string][]string{
	"a drain that ends by its timeout": slices.Concat(
		wanted, []string{"a budget blocks the drain", "the drain is bounded", quiet}, leaves, replaces),
	"a volume that is not detached": slices.Concat(wanted, []string{"a volume is not detached"}, leaves, replaces),
	"finalizers of others": slices.Concat(wanted[:1], []string{quiet, wanted[1],
		"the infrastructure is deleted", "the host is free, and a finalizer is left on the infrastructure", "the infrastructure is gone",
		"a finalizer is left on the machine", "the machine is gone",
	}, replaces),
	"no spare host": slices.Concat([]string{"no host is left"}, wanted, leaves,
		[]string{"the owner makes another machine", quiet, "a user returns the host"}, replaces[1:]),
	"a replacement that does not boot": slices.Concat(wanted, leaves, replaces[:3], []string{quiet}, replaces[3:]),
	"a rollout": slices.Concat(wanted, []string{
		"the infrastructure is deleted", "the host is free, and a finalizer is left on the infrastructure", "a rollout makes another machine",
	}, replaces[1:], []string{"the infrastructure is gone", "the machine is gone"}),
	"deleted by hand while its MachineSet is paused": slices.Concat(
		[]string{"a user pauses the MachineSet", wanted[0], "a user deletes the machine"}, leaves,
		[]string{"the MachineSet is paused no more"}, replaces),
	"scaled down":              slices.Concat(wanted, leaves[:1], []string{"the MachineDeployment is scaled down"}, leaves[1:]),
	"its namespace is deleted": slices.Concat(wanted, leaves[:1], []string{"the namespace is deleted"}, leaves[1:]),
	"no connection to the workload cluster": slices.Concat(wanted, []string{
		"a budget blocks the drain", "Cluster API loses its connection to the workload cluster", quiet, "the drain is bounded",
	}, leaves, replaces),
	"a control plane of another project": slices.Concat([]string{
		"a control plane of another project owns the worker", wanted[0], "the control plane has not made up its mind", wanted[1],
	}, leaves, []string{"the control plane cannot make another machine", quiet, "the control plane makes another machine"}, replaces[1:]),
	"a KubeadmControlPlane that refuses": slices.Concat([]string{
		"a KubeadmControlPlane owns the worker", wanted[0], "the KubeadmControlPlane refuses", quiet, "a user deletes the machine",
		"a hook holds up the deletion",
	}, leaves, []string{"the KubeadmControlPlane makes another machine"}, replaces[1:]),
}

var (
	wanted   = []string{"the owner is asked", "the owner deletes the machine"}
	leaves   = []string{"the infrastructure is deleted", "the host is free", "the machine is gone"}
	replaces = []string{
		"the owner makes another machine", "a host is provisioned", "the host is provisioned", "the node registers", "the node is Ready",
	}
)

var apiVersions = map[string]string{
	"Namespace": "v1", "Metal3Machine": infrav1.GroupVersion.String(), "BareMetalHost": bmov1alpha1.GroupVersion.String(),
	"Cluster": clusterv1.GroupVersion.String(), "Machine": clusterv1.GroupVersion.String(),
	"MachineDeployment": clusterv1.GroupVersion.String(), "MachineSet": clusterv1.GroupVersion.String(),
	"KubeadmControlPlane": controlplanev1.GroupVersion.String(), "K3sControlPlane": controlplanev1.GroupVersion.String(),
}

// write is what another controller writes to one object.
type write struct {
	Kind, Name string
	Cluster    bool // the object has no namespace
	Delete     bool
	Patch      map[string]any
	Conditions map[string]map[string]any
}

// scene is a management cluster in which other controllers write.
type scene struct {
	*management
	steps string
}

// newScene returns a scene. If first says who owns the worker, it is played at once.
func newScene(t *testing.T, first string) *scene {
	t.Helper()
	recorded, err := os.ReadFile(filepath.Join("testdata", "capi-v1.14.2.yaml"))
	must.Do(t, err)
	pass(time.Until(noon)) // the fake client uses the clock of the synctest bubble
	s := &scene{newManagement(t), string(recorded)}
	s.play("there is a worker")
	if strings.HasSuffix(first, "owns the worker") {
		s.play(first)
	}
	worker := &clusterv1.Machine{}
	must.Do(t, s.server.Get(t.Context(), client.ObjectKey{Namespace: "metal", Name: "w1"}, worker))
	s.create(recordOf(func(r *mendv1.RemediationRecord) {
		before := r.Spec.Target
		delete(r.Labels, clusterv1.MachineDeploymentNameLabel)
		OnMachine(r, worker)
		r.Spec.Target.Host, r.Spec.Target.ClusterUID, r.Spec.Target.Node = &mendv1.RecordRef{Kind: hostKind, Namespace: "metal", Name: "h1"}, before.ClusterUID, nil
	}))
	return s
}

func pass(d time.Duration) {
	time.Sleep(d)
}

// play makes the writes of a step.
func (s *scene) play(step string) {
	s.t.Helper()
	if step == quiet {
		for range 6 {
			pass(29 * time.Minute / 6)
			s.now()
		}
		return
	}
	all := map[string][]write{}
	must.Do(s.t, yaml.Unmarshal([]byte(strings.ReplaceAll(s.steps, "NOW", time.Now().UTC().Format(time.RFC3339))), &all))
	s.Recent = NewRecent(s.Recent.Live, s.Clock) // the manager reconciles other records only after it forgot answers
	if len(all[step]) == 0 {
		s.t.Fatalf("nothing is recorded of %q", step)
	}
	for _, w := range all[step] {
		if err := s.write(&w); err != nil {
			s.t.Fatalf("%s: %s %s: %v", step, w.Kind, w.Name, err)
		}
	}
}

func (s *scene) write(w *write) error {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetAPIVersion(apiVersions[w.Kind])
	obj.SetKind(w.Kind)
	obj.SetName(w.Name)
	if !w.Cluster {
		obj.SetNamespace("metal")
	}
	err := s.server.Get(s.t.Context(), client.ObjectKeyFromObject(obj), obj)
	switch {
	case apierrors.IsNotFound(err):
		if err := s.server.Create(s.t.Context(), obj); err != nil {
			return err
		}
	case err != nil:
		return err
	case w.Delete:
		return s.server.Delete(s.t.Context(), obj)
	}
	patch := runtime.DeepCopyJSON(map[string]any{"status": map[string]any{}})
	for key, value := range w.Patch {
		patch[key] = value
	}
	if len(w.Conditions) > 0 {
		patch["status"].(map[string]any)["conditions"] = merged(obj, w.Conditions)
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return s.server.Patch(s.t.Context(), obj, client.RawPatch("application/merge-patch+json", body))
}

// merged returns the conditions of an object, with those in changed in place of others of their type.
func merged(obj *unstructured.Unstructured, changed map[string]map[string]any) []any {
	old, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	all := slices.DeleteFunc(old, func(c any) bool { return changed[c.(map[string]any)["type"].(string)] != nil })
	for kind, c := range changed {
		c["type"], c["lastTransitionTime"] = kind, time.Now().UTC().Format(time.RFC3339)
		all = append(all, any(c))
	}
	return all
}

// now reconciles the record, and returns it with the story of the capacity, which is nil before the owner has acted and after the end.
func (s *scene) now() (*mendv1.RemediationRecord, *capacity.Story) {
	s.t.Helper()
	is := s.reconcile(time.Since(noon))
	if !is.Open() {
		return is, nil
	}
	o, err := s.observe(s.t.Context(), recordKey, s.clock.Now(), false)
	must.Do(s.t, err)
	return is, o.story
}

// The golden file has what the manager reports about the capacity of w1 after each step. Between two steps the report must not change, not
// even after a restart, and the record must end the same.
func TestWhatIsSaidOfMissingCapacity(t *testing.T) {
	seed := rand.Uint64()
	golden.Stories(t, "scenes", scenes, func(t *testing.T, steps []string) string {
		var story, want string
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, steps[0])
			story = s.story(steps)
			want = end(s.record())
		})
		synctest.Test(t, func(t *testing.T) {
			if got := newScene(t, steps[0]).disturbed(steps, rand.New(rand.NewPCG(seed, 0))); got != want {
				t.Errorf("seed %d: the record ends as %s, and without disturbance as %s", seed, got, want)
			}
		})
		return story
	})
}

// story plays the steps, and returns what is reported after each of them and at the end.
func (s *scene) story(steps []string) string {
	s.t.Helper()
	var told strings.Builder
	for _, step := range steps {
		pass(time.Minute)
		s.play(step)
		_, story := s.now()
		fmt.Fprintf(&told, "%s %s\n", time.Now().UTC().Format("15:04"), step)
		if story != nil {
			fmt.Fprintf(&told, "      %s %s: %s\n", story.Stage, story.Reason, story.Message)
			fmt.Fprintf(&told, "      next %s, waits for %s %s%s\n", cmp.Or(story.Next.Reason, "-"), story.WaitsFor.Kind, story.WaitsFor.Name, until(story))
		}
	}
	is := s.record()
	fmt.Fprintf(&told, "record: %s %s, begun %s, back %s, ended %s at %s\n", is.Status.Outcome, is.Status.EndedBy, condition(is, mendv1.RecordBegun),
		condition(is, mendv1.RecordCapacityBack), condition(is, mendv1.RecordEnded), is.Annotations[mendv1.RecordEndedAnnotation])
	waited := waitedOf(&is.Status)
	for i := range is.Status.Steps {
		if reason := is.Status.Steps[i].Reason; waited[reason] > 0 {
			fmt.Fprintf(&told, "      waited %v s: %s\n", waited[reason], reason)
			delete(waited, reason)
		}
	}
	for _, e := range s.reported {
		fmt.Fprintf(&told, "event: %s %s %s %s: %s\n", e.about, e.kind, e.reason, e.action, e.text)
	}
	return told.String()
}

// disturbed plays the steps, reconciles and restarts the manager at random times between them, and returns how the record ends.
func (s *scene) disturbed(steps []string, dice *rand.Rand) string {
	s.t.Helper()
	for _, step := range steps {
		next := time.Now().Add(time.Minute)
		_, before := s.now()
		for before != nil && dice.IntN(4) > 0 && time.Until(next) > 0 {
			pass(time.Duration(dice.Int64N(int64(time.Until(next)))))
			if dice.IntN(3) == 0 {
				s.restart()
			}
			if _, story := s.now(); story == nil || gist(story) != gist(before) {
				s.t.Fatalf("before %q the manager says %+v, and at %s %+v", step, before, time.Now(), story)
			}
		}
		pass(time.Until(next))
		s.play(step)
	}
	is, _ := s.now()
	return end(is)
}

func until(s *capacity.Story) string {
	if s.Deadline.IsZero() {
		return ""
	}
	return ", until " + s.Deadline.Format("15:04:05")
}

func gist(s *capacity.Story) string {
	return fmt.Sprint(s.Stage, s.Reason, s.Machine, s.WaitsFor, s.Since, s.Deadline, s.Next, s.Replacement)
}

func end(is *mendv1.RemediationRecord) string {
	by := ""
	if is.Status.Replacement != nil {
		by = is.Status.Replacement.Machine.Name
	}
	return fmt.Sprint(is.Status.Outcome, " ", is.Status.EndedBy, " ", by, " ", is.Status.CapacityBack)
}

// metal3Machines registers the kinds that have no Go type here.
func metal3Machines(scheme *runtime.Scheme) {
	kind := infrav1.GroupVersion.WithKind("Metal3Machine")
	scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(infrav1.GroupVersion.WithKind("Metal3MachineList"), &unstructured.UnstructuredList{})
	scheme.AddKnownTypeWithName(controlplanev1.GroupVersion.WithKind("K3sControlPlane"), &unstructured.Unstructured{})
}
