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
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
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
	Read   []string         `json:"read,omitempty"`
	Unread []namespaceFile  `json:"unread,omitempty"`
	Whole  []map[string]any `json:"objects,omitempty"`
	Bare   []map[string]any `json:"metadata,omitempty"`
}

// namespaceFile is why a namespace was not read: an answer of the API server, or a sentence.
type namespaceFile struct {
	Namespace string         `json:"namespace,omitempty"`
	Answer    *metav1.Status `json:"answer,omitempty"`
	Why       string         `json:"why,omitempty"`
}

// workloadFile is what was seen of a workload cluster.
type workloadFile struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Unseen    string           `json:"unseen,omitempty"`
	Since     time.Time        `json:"since,omitzero"`
	Nodes     []map[string]any `json:"nodes,omitempty"`
}

// Save writes the snapshot to a file: JSON, packed with gzip. There is nothing in it that nobody looks at: no Secret, no address or credentials of a
// BMC, no spec of another's template. It holds names, labels, conditions and what they say.
func (w *Snapshot) Save(to io.Writer) error {
	doc, err := w.document()
	if err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	packed := gzip.NewWriter(to)
	encoder := json.NewEncoder(packed)
	encoder.SetIndent("", " ")
	if err := errors.Join(encoder.Encode(doc), packed.Close()); err != nil {
		return fmt.Errorf("save the record: %w", err)
	}
	return nil
}

func (w *Snapshot) document() (*document, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	doc := &document{APIVersion: mendv1.GroupVersion.String(), Kind: fileKind, Taken: w.Taken, Missing: w.missing}
	for _, k := range w.kinds {
		if len(k.versions) == 0 || k.GroupKind == secretKind || k.GroupKind == configMapKind {
			continue
		}
		is, err := k.inFile()
		if err != nil {
			return nil, err
		}
		doc.Kinds = append(doc.Kinds, is)
	}
	slices.SortFunc(doc.Kinds, func(a, b kindInFile) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind)) })
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareKeys) {
		c := w.workloads[key]
		is := workloadFile{Namespace: key.Namespace, Name: key.Name, Unseen: c.unseen, Since: c.since}
		for _, node := range All[corev1.Node](c.snapshot, "") {
			content, err := tree(slimNode(node))
			if err != nil {
				return nil, err
			}
			is.Nodes = append(is.Nodes, content)
		}
		doc.Workloads = append(doc.Workloads, is)
	}
	return doc, nil
}

var (
	secretKind    = corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
)

func (k *kind) inFile() (kindInFile, error) {
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
	for _, r := range k.all {
		kept := slim(r.is.DeepCopyObject().(client.Object))
		if kept == nil {
			continue
		}
		content, err := tree(kept)
		if err != nil {
			return is, fmt.Errorf("%s %s: %w", k.Kind, r.key, err)
		}
		if isMetadata(kept) {
			is.Bare = append(is.Bare, content)
		} else {
			is.Whole = append(is.Whole, content)
		}
	}
	return is, nil
}

// stopped is a clock that stands still. What was recorded is looked at as it was then.
type stopped time.Time

// Now implements clock.PassiveClock.
func (s stopped) Now() time.Time { return time.Time(s) }

// Since implements clock.PassiveClock.
func (s stopped) Since(t time.Time) time.Duration { return time.Time(s).Sub(t) }

// Load reads a snapshot that was saved, packed or not. Its clock stands still at the moment at which it was taken.
func Load(from io.Reader) (*Snapshot, error) {
	doc, err := parse(from, mostUnpacked)
	if err != nil {
		return nil, fmt.Errorf("load a record: %w", err)
	}
	w := New()
	w.kinds = map[schema.GroupKind]*kind{}
	w.Taken, w.missing, w.Clock = doc.Taken, doc.Missing, stopped(doc.Taken)
	for _, k := range doc.Kinds {
		if err := w.load(k); err != nil {
			return nil, fmt.Errorf("load the objects of kind %s: %w", k.Kind, err)
		}
	}
	for _, c := range doc.Workloads {
		key := client.ObjectKey{Namespace: c.Namespace, Name: c.Name}
		nodes := make([]corev1.Node, len(c.Nodes))
		for i, content := range c.Nodes {
			if err := fill(&nodes[i], content); err != nil {
				return nil, fmt.Errorf("load the nodes of cluster %s: %w", key, err)
			}
		}
		w.SetNodes(key, nodes)
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
		u := &unstructured.Unstructured{Object: content}
		if err := w.put(k, u.GroupVersionKind(), u); err != nil {
			return err
		}
	}
	for _, content := range is.Bare {
		bare := &metav1.PartialObjectMetadata{}
		if err := fill(bare, content); err != nil {
			return err
		}
		if err := w.put(k, bare.GroupVersionKind(), bare); err != nil {
			return err
		}
	}
	return nil
}

func fill(obj client.Object, content map[string]any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, obj)
}
