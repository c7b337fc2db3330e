package snapshot

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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

// headerKind is the kind of the first item of a record.
const headerKind = "Snapshot"

// header is the first item of a record, which is a List as `kubectl get -o yaml` writes it. It says what the objects do not. A List of
// kubectl has none: it has all objects of the kinds in it, as of now.
type header struct {
	metav1.TypeMeta `json:",inline"`

	Taken     time.Time        `json:"taken"`
	Missing   []Missing        `json:"missing,omitempty"`
	Kinds     []kindHeader     `json:"kinds,omitempty"`
	Workloads []workloadHeader `json:"workloadClusters,omitempty"`
}

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

// namespaceHeader is why a namespace was not read: an answer of the API server, or a sentence.
type namespaceHeader struct {
	Namespace string         `json:"namespace,omitempty"`
	Answer    *metav1.Status `json:"answer,omitempty"`
	Why       string         `json:"why,omitempty"`
}

// workloadHeader is what was seen of a workload cluster.
type workloadHeader struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Unseen    string        `json:"unseen,omitempty"`
	Since     time.Time     `json:"since,omitzero"`
	Nodes     []corev1.Node `json:"nodes,omitempty"`
}

// Save writes the snapshot to a file: a List in JSON, packed with gzip. It holds only what the commands read: no Secret, no address or credentials
// of a BMC, no spec of another's template, but names, labels and conditions.
func (w *Snapshot) Save(to io.Writer) error {
	record, err := w.list()
	if err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	packed := gzip.NewWriter(to)
	encoder := json.NewEncoder(packed)
	encoder.SetIndent("", " ")
	if err := errors.Join(encoder.Encode(record), packed.Close()); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

// list is the snapshot as a List.
func (w *Snapshot) list() (map[string]any, error) {
	head := &header{
		TypeMeta: metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: headerKind}, Taken: w.Taken, Missing: w.Missing(),
	}
	items := []any{head}
	for _, k := range w.installed() {
		if len(k.scopes) == 0 && w.source != nil || hidden(k.GroupKind) {
			continue
		}
		head.Kinds = append(head.Kinds, k.header())
		for _, obj := range w.Objects(k.WithVersion(k.versions[0]), "") {
			kept, err := slim(obj)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", k.Kind, client.ObjectKeyFromObject(obj), err)
			}
			if kept != nil {
				items = append(items, kept)
			}
		}
	}
	for _, key := range w.Workloads() {
		seen := workloadHeader{Namespace: key.Namespace, Name: key.Name}
		seen.Unseen, seen.Since, _ = w.Unseen(key)
		for _, node := range w.Nodes(key) {
			if kept := slimNode(node); kept != nil {
				seen.Nodes = append(seen.Nodes, *kept)
			}
		}
		head.Workloads = append(head.Workloads, seen)
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}, nil
}

func (k *kind) header() kindHeader {
	head := kindHeader{Group: k.Group, Kind: k.Kind, Plural: k.plural, Versions: k.versions, Namespaced: k.namespaced}
	for _, namespace := range slices.Sorted(maps.Keys(k.scopes)) {
		answer := apierrors.APIStatus(nil)
		switch why := k.scopes[namespace]; {
		case why == nil:
			head.Read = append(head.Read, namespace)
		case errors.As(why, &answer):
			status := answer.Status()
			head.Unread = append(head.Unread, namespaceHeader{Namespace: namespace, Answer: &status})
		default:
			head.Unread = append(head.Unread, namespaceHeader{Namespace: namespace, Why: why.Error()})
		}
	}
	return head
}

// Load reads a snapshot that was saved, packed or not, or a List that kubectl has written. Its clock stands still at the moment at which it was
// taken.
func Load(from io.Reader) (*Snapshot, error) {
	head, objs, err := parse(from, mostUnpacked)
	if err != nil {
		return nil, fmt.Errorf("load a record: %w", err)
	}
	w := New()
	if head == nil {
		head = &header{Taken: w.Clock.Now().UTC()}
	} else {
		w = empty(w.scheme)
	}
	for i := range objs {
		obj := &unstructured.Unstructured{}
		err := utiljson.Unmarshal(objs[i].Raw, &obj.Object)
		if err == nil {
			err = w.Add(obj)
		}
		if err != nil {
			return nil, fmt.Errorf("load an object of a record: %w", err)
		}
	}
	if err := w.takeHeader(head); err != nil {
		return nil, err
	}
	return w, nil
}

// takeHeader makes the snapshot, which has its objects, what its header says.
func (w *Snapshot) takeHeader(head *header) error {
	w.Taken, w.missing, w.Clock = head.Taken, head.Missing, clocktesting.NewFakePassiveClock(head.Taken)
	for _, said := range head.Kinds {
		gk := schema.GroupKind{Group: said.Group, Kind: said.Kind}
		if len(said.Versions) == 0 {
			return fmt.Errorf("load the objects of kind %s: it has no version", said.Kind)
		}
		k := w.kindFor(gk.WithVersion(said.Versions[0]), said.Plural, said.Namespaced)
		k.plural, k.namespaced, k.versions, k.scopes = said.Plural, said.Namespaced, said.Versions, map[string]error{}
		for _, namespace := range said.Read {
			k.scopes[namespace] = nil
		}
		for _, unread := range said.Unread {
			k.scopes[unread.Namespace] = errors.New(unread.Why)
			if unread.Answer != nil {
				k.scopes[unread.Namespace] = &apierrors.StatusError{ErrStatus: *unread.Answer}
			}
		}
	}
	for _, seen := range head.Workloads {
		key := client.ObjectKey{Namespace: seen.Namespace, Name: seen.Name}
		w.SetNodes(key, seen.Nodes)
		if seen.Unseen != "" {
			w.SetUnseen(key, seen.Unseen, seen.Since)
		}
	}
	return nil
}

var errNoSnapshot = errors.New("it is no file that `kubectl mend record` has written")

// packed is how every file begins that gzip has made.
var packed = []byte{0x1f, 0x8b}

// mostUnpacked is how many bytes a file may have when it is unpacked: some hundred thousand machines. A small file of somebody else's may unpack to
// any number of them.
const mostUnpacked = 512 << 20

// unpack returns what is in a file, which gzip may have made.
func unpack(from io.Reader, most int64) ([]byte, error) {
	file := bufio.NewReader(from)
	if begin, err := file.Peek(len(packed)); err == nil && bytes.Equal(begin, packed) {
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
	if !bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) { // somebody has made it legible
		if content, err = yaml.ToJSON(content); err != nil {
			return nil, nil, errNoSnapshot
		}
	}
	record := metav1.List{}
	if err := utiljson.Unmarshal(content, &record); err != nil || !strings.HasSuffix(record.Kind, "List") {
		return nil, nil, errNoSnapshot
	}
	head := &header{}
	if len(record.Items) == 0 {
		return nil, nil, nil
	}
	if err := utiljson.Unmarshal(record.Items[0].Raw, &head.TypeMeta); err != nil {
		return nil, nil, errNoSnapshot
	}
	if head.Kind != headerKind || head.GroupVersionKind().Group != mendv1.GroupVersion.Group {
		return nil, record.Items, nil
	}
	if head.APIVersion != mendv1.GroupVersion.String() {
		return nil, nil, fmt.Errorf("it is of version %s, and only %s is known here: another release of kubectl-mend has written it",
			head.APIVersion, mendv1.GroupVersion)
	}
	if err := utiljson.Unmarshal(record.Items[0].Raw, head); err != nil {
		return nil, nil, fmt.Errorf("parse it: %w", err)
	}
	return head, record.Items[1:], nil
}
