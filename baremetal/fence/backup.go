package fence

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// reserve is how much of the room for annotations a backup leaves for what else has to be remembered until it is dropped.
const reserve = 8 << 10

// Backup is what a node that is deleted has to get back, as the values of three annotations of its remediation: each a JSON object, or empty if
// there is none. The first two are in the form in which CAPM3 keeps them.
type Backup struct {
	// Annotations is the value of infrav1.NodeAnnotationsBackupAnnotation.
	Annotations string
	// Labels is the value of infrav1.NodeLabelsBackupAnnotation.
	Labels string
	// Spec is the value of mendv1.NodeSpecBackupAnnotation.
	Spec string
	// Deleted is when the node was about to be deleted, at the earliest. What is on a node that was created before that is not from a node that came
	// back, and gets nothing; nor does any node if it is zero: there was no deletion that is known of.
	Deleted time.Time
}

// BackupIn returns the backup among the annotations of a remediation. They do not say when the node was deleted.
func BackupIn(annotations map[string]string) Backup {
	return Backup{
		Annotations: annotations[infrav1.NodeAnnotationsBackupAnnotation],
		Labels:      annotations[infrav1.NodeLabelsBackupAnnotation],
		Spec:        annotations[mendv1.NodeSpecBackupAnnotation],
	}
}

// Keys are the annotations of a remediation in which a backup is kept.
func Keys() []string {
	return []string{infrav1.NodeAnnotationsBackupAnnotation, infrav1.NodeLabelsBackupAnnotation, mendv1.NodeSpecBackupAnnotation}
}

// Into stores b among the annotations of a remediation.
func (b Backup) Into(annotations map[string]string) {
	for i, text := range []string{b.Annotations, b.Labels, b.Spec} {
		annotations[Keys()[i]] = text
	}
}

// Empty reports whether there is no backup.
func (b Backup) Empty() bool { return b.Annotations == "" && b.Labels == "" && b.Spec == "" }

// since reports whether node was created after the one that was backed up was deleted. The API server notes that to the second.
func (b Backup) since(node *corev1.Node) bool {
	return !b.Deleted.IsZero() && !node.CreationTimestamp.Time.Before(b.Deleted.Truncate(time.Second))
}

// BackupOf returns what to store before node is deleted, on a remediation that has the given annotations. Where these hold a backup
// that was not given back yet, it is kept, and the node as it is now is put over it: a node that came back in between would else
// take the place of what it lacks.
//
// It is an error if there is no room for it: an object has 256 KiB for all its annotations. The node must not be deleted then.
func BackupOf(node *corev1.Node, annotations map[string]string) (Backup, error) {
	kept, err := BackupIn(annotations).parse()
	if err != nil {
		return Backup{}, fmt.Errorf("back up node %q: %w", node.Name, err)
	}
	kept.annotations = over(kept.annotations, node.Annotations)
	kept.labels = over(kept.labels, node.Labels)
	kept.spec.keep(node)
	delete(kept.annotations, FencedByAnnotation) // who fences that node says nothing about the next one
	backup, err := kept.format()
	if err != nil {
		return Backup{}, fmt.Errorf("back up node %q: %w", node.Name, err)
	}
	all := maps.Clone(annotations)
	if all == nil {
		all = map[string]string{}
	}
	backup.Into(all)
	size := 0
	for k, v := range all {
		size += len(k) + len(v)
	}
	if limit := validation.TotalAnnotationSizeLimitB - reserve; size > limit {
		return Backup{}, fmt.Errorf(
			"back up node %q: what it has to get back would bring the annotations of the remediation to %d bytes, of which %d are the most; "+
				"it must not be deleted",
			node.Name, size, limit)
	}
	return backup, nil
}

// keepsakes are a backup that was read.
type keepsakes struct {
	annotations, labels map[string]string
	spec                specKept
}

// specKept is what is kept of the spec of a node.
type specKept struct {
	Taints        []corev1.Taint `json:"taints,omitempty"`
	Unschedulable bool           `json:"unschedulable,omitempty"`
}

// lifecycleTaints begin the keys of taints that say how a node is at the moment, or that its registration is not finished: the controllers that set them set
// them on the node that comes back. (Kubernetes, Well-Known Labels, Annotations and Taints; Cluster API, api/core/v1beta2.)
var lifecycleTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cluster.x-k8s.io/"}

// keep notes the taints of node that a person or an installer has set, over those that were kept.
func (k *specKept) keep(node *corev1.Node) {
	for _, taint := range node.Spec.Taints {
		if hasPrefix(taint.Key, lifecycleTaints) {
			continue
		}
		k.Taints = slices.DeleteFunc(k.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		k.Taints = append(k.Taints, taint)
	}
	k.Unschedulable = node.Spec.Unschedulable
}

func (b Backup) parse() (keepsakes, error) {
	var k keepsakes
	for _, part := range []struct {
		name, text string
		into       any
	}{
		{infrav1.NodeAnnotationsBackupAnnotation, b.Annotations, &k.annotations},
		{infrav1.NodeLabelsBackupAnnotation, b.Labels, &k.labels},
		{mendv1.NodeSpecBackupAnnotation, b.Spec, &k.spec},
	} {
		if part.text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(part.text), part.into); err != nil {
			return keepsakes{}, fmt.Errorf("read annotation %s: %w", part.name, err)
		}
	}
	return k, nil
}

func (k keepsakes) format() (Backup, error) {
	var texts [3]string
	for i, part := range []any{k.annotations, k.labels, k.spec} {
		text, err := json.Marshal(part)
		if err != nil {
			return Backup{}, fmt.Errorf("write it as JSON: %w", err)
		}
		texts[i] = string(text)
	}
	return Backup{Annotations: texts[0], Labels: texts[1], Spec: texts[2]}, nil
}

func (k keepsakes) empty() bool {
	return len(k.annotations) == 0 && len(k.labels) == 0 && len(k.spec.Taints) == 0 && !k.spec.Unschedulable
}

// protected begin the labels that say what may run on a node. A kubelet must not set them on its own node (admission plugin NodeRestriction), so they
// are not given back on the word of an annotation either. Cluster API sets those that the Machine has on the node itself.
var protected = []string{"node-role.kubernetes.io/", "node-restriction.kubernetes.io/"}

// giveBack adds what node lacks. What it has is newer, and is left as it is.
func (k keepsakes) giveBack(node *corev1.Node) {
	for key, value := range k.annotations {
		if _, has := node.Annotations[key]; !has && key != FencedByAnnotation {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
		}
	}
	for key, value := range k.labels {
		if _, has := node.Labels[key]; !has && !hasPrefix(key, protected) {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
	}
	for _, taint := range k.spec.Taints {
		has := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
		if !has && !hasPrefix(taint.Key, lifecycleTaints) {
			taint.TimeAdded = nil // It said since when the deleted node had it; and see putOutOfService.
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	node.Spec.Unschedulable = node.Spec.Unschedulable || k.spec.Unschedulable
}

func hasPrefix(key string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// over is base with what is in top; never nil.
func over(base, top map[string]string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, base)
	maps.Copy(merged, top)
	return merged
}
