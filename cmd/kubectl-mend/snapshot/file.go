package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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

// fileKind is the kind of the document that a snapshot is saved as.
const fileKind = "Snapshot"

// document is a snapshot in a file.
type document struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Taken      time.Time      `json:"taken"`
	Missing    []Missing      `json:"missing,omitempty"`
	Kinds      []kindInFile   `json:"kinds,omitempty"`
	Workloads  []workloadFile `json:"workloadClusters,omitempty"`
}

// kindInFile is a kind with all its objects.
type kindInFile struct {
	Group      string   `json:"group,omitempty"`
	Kind       string   `json:"kind"`
	Plural     string   `json:"plural"`
	Versions   []string `json:"versions"`
	Namespaced bool     `json:"namespaced,omitempty"`
	// Read are the namespaces that were read, "" for all; Unread those that were not, and why.
	Read   []string               `json:"read,omitempty"`
	Unread []namespaceFile        `json:"unread,omitempty"`
	Whole  []runtime.RawExtension `json:"objects,omitempty"`
	Bare   []runtime.RawExtension `json:"metadata,omitempty"`
}

// namespaceFile is why a namespace was not read: an answer of the API server, or a sentence.
type namespaceFile struct {
	Namespace string         `json:"namespace,omitempty"`
	Answer    *metav1.Status `json:"answer,omitempty"`
	Why       string         `json:"why,omitempty"`
}

// workloadFile is what was seen of a workload cluster.
type workloadFile struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Unseen    string        `json:"unseen,omitempty"`
	Since     time.Time     `json:"since,omitzero"`
	Nodes     []corev1.Node `json:"nodes,omitempty"`
}

// Save writes the snapshot to a file: JSON, packed with gzip. It holds only what the commands read: no Secret, no address or credentials of a
// BMC, no spec of another's template, but names, labels and conditions.
func (w *Snapshot) Save(to io.Writer) error {
	packed := gzip.NewWriter(to)
	encoder := json.NewEncoder(packed)
	encoder.SetIndent("", " ")
	if err := errors.Join(encoder.Encode(w.document()), packed.Close()); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

func (w *Snapshot) document() *document {
	w.mu.RLock()
	defer w.mu.RUnlock()
	doc := &document{APIVersion: mendv1.GroupVersion.String(), Kind: fileKind, Taken: w.Taken, Missing: w.missing}
	for _, k := range w.kinds {
		if len(k.versions) == 0 || k.GroupKind == secretKind || k.GroupKind == configMapKind {
			continue
		}
		doc.Kinds = append(doc.Kinds, k.inFile())
	}
	slices.SortFunc(doc.Kinds, func(a, b kindInFile) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareKeys) {
		c := w.workloads[key]
		is := workloadFile{Namespace: key.Namespace, Name: key.Name, Unseen: c.unseen, Since: c.since}
		for _, node := range All[corev1.Node](c.snapshot, "") {
			if kept := slimNode(node); kept != nil {
				is.Nodes = append(is.Nodes, *kept)
			}
		}
		doc.Workloads = append(doc.Workloads, is)
	}
	return doc
}

var (
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
)

func (k *kind) inFile() kindInFile {
	is := kindInFile{Group: k.Group, Kind: k.Kind, Plural: k.plural, Versions: k.versions, Namespaced: k.namespaced}
	for _, namespace := range slices.Sorted(maps.Keys(k.scopes)) {
		answer := apierrors.APIStatus(nil)
		switch why := k.scopes[namespace]; {
		case why == nil:
			is.Read = append(is.Read, namespace)
		case errors.As(why, &answer):
			status := answer.Status()
			is.Unread = append(is.Unread, namespaceFile{Namespace: namespace, Answer: &status})
		default:
			is.Unread = append(is.Unread, namespaceFile{Namespace: namespace, Why: why.Error()})
		}
	}
	for _, obj := range k.in("") {
		switch kept := slim(obj.DeepCopyObject().(client.Object)); {
		case kept == nil:
		case isMetadata(kept):
			is.Bare = append(is.Bare, runtime.RawExtension{Object: kept})
		default:
			is.Whole = append(is.Whole, runtime.RawExtension{Object: kept})
		}
	}
	return is
}

// Load reads a snapshot that was saved, packed or not. Its clock stands still at the moment at which it was taken.
func Load(from io.Reader) (*Snapshot, error) {
	doc, err := parse(from, mostUnpacked)
	if err != nil {
		return nil, fmt.Errorf("load a record: %w", err)
	}
	w := New()
	w.kinds = map[schema.GroupKind]*kind{}
	w.Taken, w.missing, w.Clock = doc.Taken, doc.Missing, clocktesting.NewFakePassiveClock(doc.Taken)
	for _, k := range doc.Kinds {
		if err := w.load(k); err != nil {
			return nil, fmt.Errorf("load the objects of kind %s: %w", k.Kind, err)
		}
	}
	for _, c := range doc.Workloads {
		key := client.ObjectKey{Namespace: c.Namespace, Name: c.Name}
		w.SetNodes(key, c.Nodes)
		if c.Unseen != "" {
			w.SetUnseen(key, c.Unseen, c.Since)
		}
	}
	return w, nil
}

var errNoSnapshot = errors.New("it is no file that `kubectl mend record` has written")

// packed is how every file begins that gzip has made.
var packed = []byte{0x1f, 0x8b}

// mostUnpacked is how many bytes a file may have when it is unpacked: some hundred thousand machines. A small file of somebody else's may unpack to
// any number of them.
const mostUnpacked = 512 << 20

func parse(from io.Reader, most int64) (*document, error) {
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
	if !bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) { // somebody has made it legible
		if content, err = yaml.ToJSON(content); err != nil {
			return nil, errNoSnapshot
		}
	}
	var is metav1.TypeMeta
	if err := utiljson.Unmarshal(content, &is); err != nil || is.Kind != fileKind || is.GroupVersionKind().Group != mendv1.GroupVersion.Group {
		return nil, errNoSnapshot
	}
	if is.APIVersion != mendv1.GroupVersion.String() {
		return nil, fmt.Errorf("it is of version %s, and only %s is known here: another release of kubectl-mend has written it",
			is.APIVersion, mendv1.GroupVersion)
	}
	doc := &document{}
	if err := utiljson.Unmarshal(content, doc); err != nil {
		return nil, fmt.Errorf("parse it: %w", err)
	}
	return doc, nil
}

func (w *Snapshot) load(is kindInFile) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: is.Group, Kind: is.Kind}
	if len(is.Versions) == 0 {
		return errors.New("it has no version")
	}
	var k *kind
	for _, version := range is.Versions {
		k = w.kindFor(gk.WithVersion(version), is.Plural, is.Namespaced)
	}
	for _, namespace := range is.Read {
		k.scopes[namespace] = nil
	}
	for _, un := range is.Unread {
		k.scopes[un.Namespace] = errors.New(un.Why)
		if un.Answer != nil {
			k.scopes[un.Namespace] = &apierrors.StatusError{ErrStatus: *un.Answer}
		}
	}
	for _, content := range is.Whole {
		tree := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(content.Raw, &tree.Object); err != nil {
			return err
		}
		if err := w.keep(k, tree.GroupVersionKind(), tree); err != nil {
			return err
		}
	}
	for _, content := range is.Bare {
		bare := &metav1.PartialObjectMetadata{}
		if err := utiljson.Unmarshal(content.Raw, bare); err != nil {
			return err
		}
		if err := w.keep(k, bare.GroupVersionKind(), bare); err != nil {
			return err
		}
	}
	return nil
}
