package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func keyOf(namespace, name string) string { return namespace + "/" + name }

func (s *Server) now() string { return strconv.Itoa(s.version) }

func (s *Server) get(kind Kind, call Call) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(kind, call)
}

func (s *Server) find(kind Kind, call Call) (*unstructured.Unstructured, error) {
	resource := kind.resource().GroupResource()
	obj := s.objects[resource][keyOf(call.Namespace, call.Name)]
	if obj == nil {
		return nil, apierrors.NewNotFound(resource, call.Name)
	}
	return versioned(obj, kind), nil
}

func (s *Server) create(kind Kind, call Call, body []byte) (*unstructured.Unstructured, error) {
	obj, err := decode(body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(kind, call, obj)
}

func (s *Server) add(kind Kind, call Call, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource := kind.resource().GroupResource()
	obj.SetGroupVersionKind(kind.GroupVersionKind)
	obj.SetNamespace(call.Namespace)
	s.born++
	if obj.GetName() == "" {
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), s.born))
	}
	for kind.Kind == "Event" { // its name contains the nanosecond, and on a virtual clock many events have the same one
		taken := s.objects[resource][keyOf(call.Namespace, obj.GetName())]
		if taken == nil {
			break
		}
		about := func(o *unstructured.Unstructured) string { return fmt.Sprint(o.Object["reason"], o.Object["related"]) }
		if obj.Object["series"] != nil && about(obj) == about(taken) {
			repeated := taken.DeepCopy()
			repeated.Object["series"] = obj.Object["series"]
			s.store(kind, taken, repeated)
			return versioned(repeated, kind), nil
		}
		obj.SetName(obj.GetName() + twin)
	}
	namespaces := s.objects[namespaceKind.resource().GroupResource()]
	switch {
	case call.Namespace != "" && namespaces[keyOf("", call.Namespace)] == nil:
		return nil, apierrors.NewNotFound(namespaceKind.resource().GroupResource(), call.Namespace)
	case s.objects[resource][keyOf(call.Namespace, obj.GetName())] != nil:
		return nil, apierrors.NewAlreadyExists(resource, obj.GetName())
	case obj.GetResourceVersion() != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.born)))
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	obj.SetDeletionTimestamp(nil)
	obj.SetGeneration(1)
	obj.SetManagedFields(nil)
	if !kind.NoStatus {
		delete(obj.Object, "status")
	}
	if kind.Default != nil {
		kind.Default(obj)
	}
	s.store(kind, nil, obj)
	return versioned(obj, kind), nil
}

// twin is appended to the name of an Event whose name is taken.
const twin = "-twin"

func (s *Server) update(kind Kind, call Call, body []byte) (*unstructured.Unstructured, error) {
	obj, err := decode(body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := s.find(kind, call)
	if err != nil {
		return nil, err
	}
	return s.replace(kind, call, was, obj)
}

// patch applies a patch. Server-side apply sets the given fields and creates a missing object, but never removes a field.
func (s *Server) patch(kind Kind, call Call, patchType string, body []byte) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := s.find(kind, call)
	if kind.Kind == "Event" && s.objects[kind.resource().GroupResource()][keyOf(call.Namespace, call.Name+twin)] != nil {
		// A patch of a series does not say to which of the two Events it belongs. For a missing Event the client sends the whole series.
		// (client-go, tools/events: recordEvent)
		return nil, apierrors.NewNotFound(kind.resource().GroupResource(), call.Name)
	}
	applies := strings.HasPrefix(patchType, string(types.ApplyYAMLPatchType))
	if applies && apierrors.IsNotFound(err) {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(body, &obj.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return s.add(kind, call, obj)
	}
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(was.Object)
	if err != nil {
		return nil, err
	}
	after, err := patched(kind, types.PatchType(patchType), before, body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(after, &obj.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.replace(kind, call, was, obj)
}

func patched(kind Kind, patchType types.PatchType, before, patch []byte) ([]byte, error) {
	switch patchType {
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(before)
	case types.StrategicMergePatchType:
		typed, err := clientgoscheme.Scheme.New(kind.GroupVersionKind)
		if err != nil {
			return nil, err
		}
		return strategicpatch.StrategicMergePatch(before, patch, typed)
	case types.ApplyYAMLPatchType:
		data, err := yaml.YAMLToJSON(patch)
		if err != nil {
			return nil, err
		}
		return jsonpatch.MergePatch(before, data)
	default:
		return jsonpatch.MergePatch(before, patch)
	}
}

// replace stores the result of a write: the new status, or everything new except the status and the fields that only the server writes.
func (s *Server) replace(kind Kind, call Call, was, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource := kind.resource().GroupResource()
	if uid := obj.GetUID(); uid != "" && uid != was.GetUID() {
		return nil, apierrors.NewConflict(resource, call.Name,
			fmt.Errorf("the UID in precondition: %s, UID in object meta: %s", uid, was.GetUID()))
	}
	if version := obj.GetResourceVersion(); version != "" && version != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource, call.Name,
			errors.New("the object has been modified; please apply your changes to the latest version"))
	}
	next := kind.after(was, obj, call.Subresource)
	prune(next.Object)
	if kind.Default != nil {
		kind.Default(next)
	}
	if equality.Semantic.DeepEqual(was.Object, next.Object) {
		return was, nil
	}
	if !equality.Semantic.DeepEqual(specOf(was, kind), specOf(next, kind)) {
		next.SetGeneration(was.GetGeneration() + 1)
	}
	own(was, next, call.Manager)
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
		s.store(kind, was, nil)
		return versioned(next, kind), nil
	}
	s.store(kind, was, next)
	return versioned(next, kind), nil
}

// after returns an object after a write of its status, or of everything except its status and the fields that only the server writes.
func (k Kind) after(was, obj *unstructured.Unstructured, subresource string) *unstructured.Unstructured {
	next := was.DeepCopy()
	if subresource == "status" {
		next.Object["status"] = obj.Object["status"]
		return next
	}
	status, had := next.Object["status"]
	next = obj.DeepCopy()
	if !k.NoStatus {
		delete(next.Object, "status")
	}
	if !k.NoStatus && had {
		next.Object["status"] = status
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "managedFields",
		"name", "namespace"} {
		value, has, _ := unstructured.NestedFieldCopy(was.Object, "metadata", field)
		unstructured.RemoveNestedField(next.Object, "metadata", field)
		if has {
			_ = unstructured.SetNestedField(next.Object, value, "metadata", field)
		}
	}
	return next
}

// prune removes null values, as the API server does in a structural schema.
func prune(obj map[string]any) {
	for key, value := range obj {
		if below, is := value.(map[string]any); is {
			prune(below)
		}
		if value == nil {
			delete(obj, key)
		}
	}
}

// specOf returns what a change of raises the generation.
func specOf(obj *unstructured.Unstructured, kind Kind) map[string]any {
	spec := maps.Clone(obj.Object)
	delete(spec, "metadata")
	if !kind.NoStatus {
		delete(spec, "status")
	}
	return spec
}

// own sets the managed fields: who last wrote each condition of the status. (Kubernetes documentation, "Server-Side Apply", field
// management.)
func own(was, next *unstructured.Unstructured, manager string) {
	before, after := conditionsOf(was), conditionsOf(next)
	owners := map[string]string{}
	for _, entry := range was.GetManagedFields() {
		for kind := range after {
			if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.String(), `"k:{\"type\":\"`+kind+`\"}"`) {
				owners[kind] = entry.Manager
			}
		}
	}
	changed := false
	for kind, content := range after {
		if !equality.Semantic.DeepEqual(before[kind], content) {
			owners[kind], changed = manager, true
		}
	}
	if !changed && len(before) == len(after) {
		return
	}
	fields := map[string][]string{}
	for kind := range after {
		if owners[kind] != "" {
			fields[owners[kind]] = append(fields[owners[kind]], `"k:{\"type\":\"`+kind+`\"}":{}`)
		}
	}
	entries := make([]metav1.ManagedFieldsEntry, 0, len(fields))
	for name, conditions := range fields {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: name, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: next.GetAPIVersion(), FieldsType: "FieldsV1",
			Subresource: "status",
			FieldsV1:    metav1.NewFieldsV1(`{"f:status":{"f:conditions":{` + strings.Join(conditions, ",") + `}}}`),
		})
	}
	next.SetManagedFields(entries)
}

func conditionsOf(obj *unstructured.Unstructured) map[string]any {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	conditions := map[string]any{}
	for _, item := range list {
		if condition, is := item.(map[string]any); is {
			conditions[fmt.Sprint(condition["type"])] = condition
		}
	}
	return conditions
}

// delete deletes an object, or sets its deletion timestamp if it has finalizers. Foreground deletion does not wait for dependents.
func (s *Server) delete(kind Kind, call Call, body []byte) (*unstructured.Unstructured, error) {
	options := metav1.DeleteOptions{}
	if obj, err := decode(body); len(body) > 0 && err == nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := s.find(kind, call)
	if err != nil {
		return nil, err
	}
	if only := options.Preconditions; only != nil {
		if only.UID != nil && *only.UID != was.GetUID() ||
			only.ResourceVersion != nil && *only.ResourceVersion != was.GetResourceVersion() {
			return nil, apierrors.NewConflict(kind.resource().GroupResource(), call.Name, errors.New("the precondition does not hold"))
		}
	}
	if len(was.GetFinalizers()) == 0 {
		s.store(kind, was, nil)
		return was, nil
	}
	if was.GetDeletionTimestamp() != nil {
		return was, nil
	}
	next := was.DeepCopy()
	deleted := metav1.NewTime(time.Now().Truncate(time.Second))
	next.SetDeletionTimestamp(&deleted)
	next.SetGeneration(was.GetGeneration() + 1)
	s.store(kind, was, next)
	return versioned(next, kind), nil
}

// store stores an object with a new resource version, or deletes it, and notifies the watches.
func (s *Server) store(kind Kind, was, is *unstructured.Unstructured) {
	resource := kind.resource().GroupResource()
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	s.version++
	change := event{version: s.version, resource: resource, was: was, is: is}
	if is != nil {
		is.SetResourceVersion(s.now())
		s.objects[resource][keyOf(is.GetNamespace(), is.GetName())] = is
	} else {
		gone := was.DeepCopy()
		gone.SetResourceVersion(s.now())
		change.was = gone
		delete(s.objects[resource], keyOf(was.GetNamespace(), was.GetName()))
	}
	s.history = append(s.history, change)
	for w := range s.watchers {
		w.notify()
	}
}
