package snapshot

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiServer serves a snapshot as an API server does, as far as a snapshot is read from it: discovery, lists, and single objects.
type apiServer struct {
	snapshot *Snapshot
}

// serve starts an API server for w, and returns how it is reached.
func serve(t testing.TB, w *Snapshot) *rest.Config {
	t.Helper()
	server := httptest.NewServer(apiServer{w})
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// ServeHTTP implements http.Handler.
func (s apiServer) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	answer, err := s.answer(in)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if is := apierrors.APIStatus(nil); errors.As(err, &is) {
			status = is.Status()
		}
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(int(status.Code))
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer = status
	}
	out.Header().Set("Content-Type", "application/json")
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err) // all answers are objects of the API
	}
	_, _ = out.Write(data)
}

func (s apiServer) answer(in *http.Request) (any, error) {
	path := strings.Split(strings.Trim(in.URL.Path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(path) == 1 && path[0] == "api":
		return metav1.APIVersions{Versions: []string{"v1"}}, nil
	case len(path) == 1 && path[0] == "apis":
		return s.groups(), nil
	case path[0] == "api":
		gv.Version, path = path[1], path[2:]
	case path[0] == "apis" && len(path) > 2:
		gv.Group, gv.Version, path = path[1], path[2], path[3:]
	}
	if len(path) == 0 {
		return s.resources(gv), nil
	}
	namespace := ""
	if path[0] == "namespaces" && len(path) > 2 {
		namespace, path = path[1], path[2:]
	}
	for gk, k := range s.snapshot.kinds {
		if gk.Group == gv.Group && k.plural == path[0] && slices.Contains(k.versions, gv.Version) {
			return s.read(in, gk.WithVersion(gv.Version), namespace, path[1:])
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gv.Group, Resource: path[0]}, "")
}

func (s apiServer) read(in *http.Request, gvk schema.GroupVersionKind, namespace string, name []string) (runtime.Object, error) {
	if len(name) > 0 {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u, s.snapshot.ReadOnly().Get(in.Context(), client.ObjectKey{Namespace: namespace, Name: name[0]}, u)
	}
	labelled, err := labels.Parse(in.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	fielded, err := fields.ParseSelector(in.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	options := &client.ListOptions{Namespace: namespace, LabelSelector: labelled, FieldSelector: fielded}
	of := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if strings.Contains(in.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(of)
		err := s.snapshot.ReadOnly().List(in.Context(), list, options)
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		}
		return list, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(of)
	return list, s.snapshot.ReadOnly().List(in.Context(), list, options)
}

func (s apiServer) groups() *metav1.APIGroupList {
	groups := map[string]*metav1.APIGroup{}
	for gk, k := range s.snapshot.kinds {
		for _, v := range k.versions {
			if gk.Group == "" {
				continue
			}
			if groups[gk.Group] == nil {
				groups[gk.Group] = &metav1.APIGroup{Name: gk.Group}
			}
			is := metav1.GroupVersionForDiscovery{GroupVersion: gk.Group + "/" + v, Version: v}
			if !slices.Contains(groups[gk.Group].Versions, is) {
				groups[gk.Group].Versions = append(groups[gk.Group].Versions, is)
			}
		}
	}
	list := &metav1.APIGroupList{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		groups[name].PreferredVersion = groups[name].Versions[0]
		list.Groups = append(list.Groups, *groups[name])
	}
	return list
}

func (s apiServer) resources(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	for gk, k := range s.snapshot.kinds {
		if gk.Group != gv.Group || !slices.Contains(k.versions, gv.Version) {
			continue
		}
		is := metav1.APIResource{Name: k.plural, Kind: gk.Kind, Namespaced: k.namespaced, Verbs: metav1.Verbs{"get", "list"}}
		list.APIResources = append(list.APIResources, is)
		is.Name += "/status"
		list.APIResources = append(list.APIResources, is)
	}
	return list
}
