package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// header is the first item of a record, which is a List as `kubectl get -o yaml` writes it. It says what the objects do not. A List of
// kubectl has none: it has all objects of the kinds in it, as of now.
type header struct {
	metav1.TypeMeta `json:",inline"`

	Taken   time.Time `json:"taken"`
	Missing []Missing `json:"missing,omitempty"`
	// Kinds are those of which anything was asked, by KIND.GROUP.
	Kinds map[string]*kind `json:"kinds,omitempty"`
	// Workloads are the workload clusters, by NAMESPACE/NAME.
	Workloads map[string]*workloadCluster `json:"workloadClusters,omitempty"`
}

// headerType is that of the header.
var headerType = metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: "Snapshot"}

// Save writes the snapshot as a List in JSON. It holds only what the commands read: no Secret, no address or credentials of a BMC, no spec
// of another's template, but names, labels and conditions.
func (s *Snapshot) Save(to io.Writer) error {
	items, err := s.items()
	if err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", " ")
	record := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if err := encoder.Encode(record); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

// items are those of a record: its header, and the objects.
func (s *Snapshot) items() ([]any, error) {
	head := &header{
		TypeMeta: headerType, Taken: s.Taken, Missing: s.Missing(), Kinds: map[string]*kind{}, Workloads: map[string]*workloadCluster{},
	}
	items := []any{head}
	for _, k := range s.installed() {
		if len(k.Answers) == 0 && s.source != nil || hidden(k.GroupKind) {
			continue
		}
		head.Kinds[k.GroupKind.String()] = k
		for _, obj := range s.Objects(k.WithVersion(k.Versions[0]), "") {
			kept, err := slim(obj)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", k.Kind, client.ObjectKeyFromObject(obj), err)
			}
			if kept != nil {
				items = append(items, kept)
			}
		}
	}
	for key, cluster := range s.workloads {
		head.Workloads[key.String()] = cluster
	}
	return items, nil
}

// Load reads a snapshot that was saved, or a List that kubectl has written. Its clock stands still at the moment at which it was taken.
func Load(from io.Reader) (*Snapshot, error) {
	head, objs, err := parse(from)
	if err != nil {
		return nil, fmt.Errorf("load a record: %w", err)
	}
	s := New()
	if head == nil {
		head = &header{Taken: s.Clock.Now().UTC()}
	} else {
		s = empty()
	}
	for i := range objs {
		obj := &unstructured.Unstructured{}
		err := utiljson.Unmarshal(objs[i].Raw, &obj.Object)
		if err == nil {
			err = s.Add(obj)
		}
		if err != nil {
			return nil, fmt.Errorf("load an object of a record: %w", err)
		}
	}
	err = s.takeHeader(head)
	return s, err
}

// takeHeader makes the snapshot, which has its objects, what its header says.
func (s *Snapshot) takeHeader(head *header) error {
	s.Taken, s.missing, s.Clock = head.Taken, head.Missing, clocktesting.NewFakePassiveClock(head.Taken)
	for name, said := range head.Kinds {
		if said == nil || len(said.Versions) == 0 {
			return fmt.Errorf("load the objects of kind %s: it has no version", name)
		}
		k := s.indexed(schema.ParseGroupKind(name))
		k.Plural, k.Namespaced, k.Versions, k.Answers = said.Plural, said.Namespaced, said.Versions, said.Answers
		slices.SortFunc(k.Answers, func(a, b answer) int { return a.compare(b.question) })
	}
	for name, said := range head.Workloads {
		cluster := &workloadCluster{Nodes: map[string]*corev1.Node{}}
		if said != nil {
			cluster.Unseen, cluster.Since = said.Unseen, said.Since
			for _, node := range said.Nodes {
				if node != nil {
					cluster.put(node)
				}
			}
		}
		namespace, name, _ := strings.Cut(name, "/")
		s.workloads[client.ObjectKey{Namespace: namespace, Name: name}] = cluster
	}
	return nil
}

var errNoSnapshot = errors.New("it is no file that `kubectl mend record` has written")

// parse returns the header of a record, which is nil for a List of kubectl, and its objects.
func parse(from io.Reader) (*header, []runtime.RawExtension, error) {
	content, err := io.ReadAll(from)
	if err != nil {
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	record, head := metav1.List{}, &header{}
	if content, err = yaml.ToJSON(content); err == nil {
		err = utiljson.Unmarshal(content, &record)
	}
	if err == nil && len(record.Items) > 0 {
		err = utiljson.Unmarshal(record.Items[0].Raw, &head.TypeMeta)
	}
	known, said := headerType.GroupVersionKind(), head.GroupVersionKind()
	switch {
	case err != nil, !strings.HasSuffix(record.Kind, "List"):
		return nil, nil, errNoSnapshot
	case said.GroupKind() != known.GroupKind():
		return nil, record.Items, nil
	case said.Version != known.Version:
		return nil, nil, fmt.Errorf("it is of version %s, and only %s is known here: another release of kubectl-mend has written it",
			said.GroupVersion(), known.GroupVersion())
	}
	if err := utiljson.Unmarshal(record.Items[0].Raw, head); err != nil {
		return nil, nil, fmt.Errorf("parse it: %w", err)
	}
	return head, record.Items[1:], nil
}
