package fence

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Backup is what a node that is deleted gets back when it registers again.
type Backup struct{ Annotations, Labels map[string]string }

// maxBackup is how long a backup may be, in bytes of JSON. All annotations of an object together may have 256 KiB, and it needs others.
const maxBackup = 200 * 1024

// backupOf returns what to keep of a node. The error says that it is too much for the annotations of a remediation.
func backupOf(node *corev1.Node) (Backup, error) {
	b := Backup{Annotations: node.Annotations, Labels: node.Labels}
	size := 0
	for _, value := range b.Marks() {
		size += len(value)
	}
	if size > maxBackup {
		return b, fmt.Errorf("its labels and annotations are %d bytes long, and at most %d can be saved; it is not deleted", size, maxBackup)
	}
	return b, nil
}

// Marks are the annotations of a remediation that hold b; see BackupOf.
func (b Backup) Marks() map[string]string {
	return map[string]string{
		infrav1.NodeAnnotationsBackupAnnotation: encoded(b.Annotations), infrav1.NodeLabelsBackupAnnotation: encoded(b.Labels),
	}
}

func encoded(m map[string]string) string {
	if len(m) == 0 {
		return "{}"
	}
	content, err := json.Marshal(m)
	if err != nil {
		panic(err) // a map of strings always can be
	}
	return string(content)
}

// BackupIn reads the backup that a remediation holds in its annotations; nil if it holds none.
func BackupIn(annotations map[string]string) (*Backup, error) {
	var b Backup
	found := false
	for key, into := range map[string]*map[string]string{
		infrav1.NodeAnnotationsBackupAnnotation: &b.Annotations, infrav1.NodeLabelsBackupAnnotation: &b.Labels,
	} {
		value, has := annotations[key]
		found = found || has
		if value == "" { // CAPM3 writes that for a node that has none
			continue
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			return nil, fmt.Errorf("metadata.annotations[%s]: expected a JSON object of strings: %w", key, err)
		}
	}
	if !found {
		return nil, nil
	}
	return &b, nil
}

// restore gives the node what it had and has not got again by itself.
func (b Backup) restore(ctx context.Context, c client.Client, node *corev1.Node) error {
	metadata := map[string]any{"uid": node.UID}
	for field, maps := range map[string][2]map[string]string{
		"annotations": {b.Annotations, node.Annotations}, "labels": {b.Labels, node.Labels},
	} {
		missing := map[string]string{}
		for key, value := range maps[0] {
			if _, has := maps[1][key]; !has && key != mendv1.FencedByAnnotation {
				missing[key] = value
			}
		}
		if len(missing) > 0 {
			metadata[field] = missing
		}
	}
	if len(metadata) == 1 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("restore node %q: %w", node.Name, err)
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if err := c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("restore node %q: %w", node.Name, err)
	}
	return nil
}
