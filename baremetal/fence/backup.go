package fence

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// reserve is how much of the room for annotations a backup leaves for what else has to be remembered until it is dropped.
const reserve = 8 << 10

// Backup is what a node that is deleted has to get back, as the values of two annotations of its remediation: each a JSON object of
// strings, or empty if there is none. It is the form in which CAPM3 keeps it.
type Backup struct {
	// Annotations is the value of infrav1.NodeAnnotationsBackupAnnotation.
	Annotations string
	// Labels is the value of infrav1.NodeLabelsBackupAnnotation.
	Labels string
}

// BackupIn returns the backup among the annotations of a remediation.
func BackupIn(annotations map[string]string) Backup {
	return Backup{
		Annotations: annotations[infrav1.NodeAnnotationsBackupAnnotation],
		Labels:      annotations[infrav1.NodeLabelsBackupAnnotation],
	}
}

// Empty reports whether there is no backup.
func (b Backup) Empty() bool { return b == Backup{} }

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
	delete(kept.annotations, FencedByAnnotation) // who fences that node says nothing about the next one
	backup, err := kept.format()
	if err != nil {
		return Backup{}, fmt.Errorf("back up node %q: %w", node.Name, err)
	}
	all := maps.Clone(annotations)
	if all == nil {
		all = map[string]string{}
	}
	all[infrav1.NodeAnnotationsBackupAnnotation], all[infrav1.NodeLabelsBackupAnnotation] = backup.Annotations, backup.Labels
	size := 0
	for k, v := range all {
		size += len(k) + len(v)
	}
	if limit := validation.TotalAnnotationSizeLimitB - reserve; size > limit {
		return Backup{}, fmt.Errorf(
			"back up node %q: its labels and annotations would bring those of the remediation to %d bytes, of which %d are the most; it must not be deleted",
			node.Name, size, limit)
	}
	return backup, nil
}

// keepsakes are a backup that was read.
type keepsakes struct {
	annotations, labels map[string]string
}

func (b Backup) parse() (keepsakes, error) {
	var k keepsakes
	for _, part := range []struct {
		name, text string
		into       *map[string]string
	}{
		{infrav1.NodeAnnotationsBackupAnnotation, b.Annotations, &k.annotations},
		{infrav1.NodeLabelsBackupAnnotation, b.Labels, &k.labels},
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
	annotations, err := json.Marshal(k.annotations)
	if err != nil {
		return Backup{}, fmt.Errorf("write its annotations as JSON: %w", err)
	}
	labels, err := json.Marshal(k.labels)
	if err != nil {
		return Backup{}, fmt.Errorf("write its labels as JSON: %w", err)
	}
	return Backup{Annotations: string(annotations), Labels: string(labels)}, nil
}

func (k keepsakes) empty() bool { return len(k.annotations) == 0 && len(k.labels) == 0 }

// giveBack adds what node lacks. What it has is newer, and is left as it is.
func (k keepsakes) giveBack(node *corev1.Node) {
	for key, value := range k.annotations {
		if _, has := node.Annotations[key]; !has && key != FencedByAnnotation {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
		}
	}
	for key, value := range k.labels {
		if _, has := node.Labels[key]; !has {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
	}
}

// over is base with what is in top; never nil.
func over(base, top map[string]string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, base)
	maps.Copy(merged, top)
	return merged
}
