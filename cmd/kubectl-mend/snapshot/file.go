package snapshot

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	Taken     time.Time        `json:"taken"`
	Missing   []Missing        `json:"missing,omitempty"`
	Kinds     []kindHeader     `json:"kinds,omitempty"`
	Workloads []workloadHeader `json:"workloadClusters,omitempty"`
}

// headerType is that of the header.
var headerType = metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: "Snapshot"}

// kindHeader is a kind of which objects were read, or were not.
type kindHeader struct {
	Group      string   `json:"group,omitempty"`
	Kind       string   `json:"kind"`
	Plural     string   `json:"plural"`
	Versions   []string `json:"versions"`
	Namespaced bool     `json:"namespaced,omitempty"`
	// Read are the namespaces that were read, "" for all; Unread those that were not, and why.
	Read   []string          `json:"read,omitempty"`
	Unread []namespaceHeader `json:"unread,omitempty"`
}

// namespaceHeader is why a namespace was not read, as an API server says it.
type namespaceHeader struct {
	Namespace string        `json:"namespace,omitempty"`
	Answer    metav1.Status `json:"answer"`
}

// workloadHeader is what was seen of a workload cluster.
type workloadHeader struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Unseen    string        `json:"unseen,omitempty"`
	Since     time.Time     `json:"since,omitzero"`
	Nodes     []corev1.Node `json:"nodes,omitempty"`
}

// Save writes the snapshot to a file: a List in JSON, packed with gzip. It holds only what the commands read: no Secret, no address or
// credentials of a BMC, no spec of another's template, but names, labels and conditions.
func (s *Snapshot) Save(to io.Writer) error {
	items, err := s.items()
	if err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	packed := gzip.NewWriter(to)
	encoder := json.NewEncoder(packed)
	encoder.SetIndent("", " ")
	record := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if err := errors.Join(encoder.Encode(record), packed.Close()); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

// items are those of a record: its header, and the objects.
func (s *Snapshot) items() ([]any, error) {
	head := &header{TypeMeta: headerType, Taken: s.Taken, Missing: s.Missing()}
	items := []any{head}
	for _, k := range s.installed() {
		if len(k.answers) == 0 && s.source != nil || hidden(k.GroupKind) {
			continue
		}
		head.Kinds = append(head.Kinds, k.header())
		for _, obj := range s.Objects(k.WithVersion(k.versions[0]), "") {
			kept, err := slim(obj)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", k.Kind, client.ObjectKeyFromObject(obj), err)
			}
			if kept != nil {
				items = append(items, kept)
			}
		}
	}
	for _, key := range s.Workloads() {
		seen := workloadHeader{Namespace: key.Namespace, Name: key.Name}
		seen.Unseen, seen.Since, _ = s.Unseen(key)
		for _, node := range s.Nodes(key) {
			if kept := slimNode(node); kept != nil {
				seen.Nodes = append(seen.Nodes, *kept)
			}
		}
		head.Workloads = append(head.Workloads, seen)
	}
	return items, nil
}

func (k *kind) header() kindHeader {
	read, unread := k.namespaces()
	head := kindHeader{Group: k.Group, Kind: k.Kind, Plural: k.plural, Versions: k.versions, Namespaced: k.namespaced, Read: read}
	for _, namespace := range unread {
		_, why := k.answer(namespace)
		said, answer := metav1.Status{Message: why.Error()}, apierrors.APIStatus(nil)
		if errors.As(why, &answer) {
			said = answer.Status()
		}
		head.Unread = append(head.Unread, namespaceHeader{Namespace: namespace, Answer: said})
	}
	return head
}

// Load reads a snapshot that was saved, packed or not, or a List that kubectl has written. Its clock stands still at the moment at which it
// was taken.
func Load(from io.Reader) (*Snapshot, error) {
	head, objs, err := parse(from, mostUnpacked)
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
	for _, said := range head.Kinds {
		gk := schema.GroupKind{Group: said.Group, Kind: said.Kind}
		if len(said.Versions) == 0 {
			return fmt.Errorf("load the objects of kind %s: it has no version", said.Kind)
		}
		k := s.kindFor(gk.WithVersion(said.Versions[0]), said.Plural, said.Namespaced)
		k.plural, k.namespaced, k.versions, k.answers = said.Plural, said.Namespaced, said.Versions, map[question]error{}
		for _, namespace := range said.Read {
			k.answers[question{namespace: namespace}] = nil
		}
		for _, unread := range said.Unread {
			k.answers[question{namespace: unread.Namespace}] = &apierrors.StatusError{ErrStatus: unread.Answer}
		}
	}
	for _, seen := range head.Workloads {
		key := client.ObjectKey{Namespace: seen.Namespace, Name: seen.Name}
		s.SetNodes(key, seen.Nodes)
		if seen.Unseen != "" {
			s.SetUnseen(key, seen.Unseen, seen.Since)
		}
	}
	return nil
}

var errNoSnapshot = errors.New("it is no file that `kubectl mend record` has written")

// mostUnpacked is how many bytes a file may have when it is unpacked: some hundred thousand machines. A small file of somebody else's may
// unpack to any number of them.
const mostUnpacked = 512 << 20

// unpack returns what is in a file, which gzip may have made.
func unpack(from io.Reader, most int64) ([]byte, error) {
	file := bufio.NewReader(from)
	if begin, err := file.Peek(2); err == nil && bytes.Equal(begin, []byte{0x1f, 0x8b}) { // as every file begins that gzip has made
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return nil, fmt.Errorf("unpack it: %w", err)
		}
		file = bufio.NewReader(unpacked)
	}
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("it has more than %d MiB when it is unpacked, which no file has that `kubectl mend record` has written", most>>20)
	}
	return content, nil
}

// parse returns the header of a record, which is nil for a List of kubectl, and its objects.
func parse(from io.Reader, most int64) (*header, []runtime.RawExtension, error) {
	content, err := unpack(from, most)
	if err != nil {
		return nil, nil, err
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
