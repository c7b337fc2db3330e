package apiserver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// do carries out a call.
func (s *Server) do(r *http.Request, gvr schema.GroupVersionResource, call Call, body []byte) *http.Response {
	if gvr.Resource == "" {
		return s.discover(r)
	}
	if strings.HasSuffix(gvr.Resource, "accessreviews") {
		return allowed(body)
	}
	kind, err := s.kindOf(gvr)
	if err != nil {
		return refusal(err)
	}
	if call.Verb == "watch" {
		return s.watch(r, kind, call)
	}
	var result *unstructured.Unstructured
	switch call.Verb {
	case "list":
		return answer(http.StatusOK, s.list(r, kind, call))
	case "get":
		result, err = s.get(kind, call)
	case "create":
		result, err = s.create(kind, call, body)
	case "update":
		result, err = s.update(kind, call, body)
	case "patch":
		result, err = s.patch(kind, call, r.Header.Get("Content-Type"), body)
	case "delete":
		result, err = s.delete(kind, call, body)
	}
	if err != nil {
		return refusal(err)
	}
	code := http.StatusOK
	if call.Verb == "create" {
		code = http.StatusCreated
	}
	return answer(code, asAsked(r, result).Object)
}

func (s *Server) kindOf(gvr schema.GroupVersionResource) (Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind, served := s.kinds[gvr]
	if !served {
		return kind, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
			Details: &metav1.StatusDetails{Group: gvr.Group, Kind: gvr.Resource, Causes: []metav1.StatusCause{
				{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "404 page not found"},
			}},
		}}
	}
	return kind, nil
}

func (s *Server) list(r *http.Request, kind Kind, call Call) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, obj := range sorted(s.objects[kind.resource().GroupResource()]) {
		if selects(r, call, obj) {
			items = append(items, asAsked(r, versioned(obj, kind)).Object)
		}
	}
	list := map[string]any{
		"kind": kind.Kind + "List", "apiVersion": kind.GroupVersion().String(), "metadata": map[string]any{"resourceVersion": s.now()},
		"items": items,
	}
	if metadataOnly(r) {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	}
	return list
}

// versioned returns an object in the requested version. All versions of a kind have the same fields here.
func versioned(obj *unstructured.Unstructured, kind Kind) *unstructured.Unstructured {
	shown := obj.DeepCopy()
	shown.SetGroupVersionKind(kind.GroupVersionKind)
	return shown
}

func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// asAsked returns an object, or only its metadata if the client asked for that.
func asAsked(r *http.Request, obj *unstructured.Unstructured) *unstructured.Unstructured {
	if !metadataOnly(r) || obj == nil {
		return obj
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": metav1.SchemeGroupVersion.String(), "metadata": obj.Object["metadata"],
	}}
}

// discover answers discovery requests, without aggregation.
func (s *Server) discover(r *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) == 1:
		return answer(http.StatusOK,
			metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	case parts[0] == "apis" && len(parts) == 1:
		return answer(http.StatusOK, s.groups())
	case parts[0] == "api" && len(parts) == 2:
		return answer(http.StatusOK, s.resources(schema.GroupVersion{Version: parts[1]}))
	case parts[0] == "apis" && len(parts) == 3:
		list := s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
		if len(list.APIResources) == 0 {
			return refusal(apierrors.NewNotFound(schema.GroupResource{}, parts[1]))
		}
		return answer(http.StatusOK, list)
	case parts[0] == "apis" && len(parts) == 2:
		for _, group := range s.groups().Groups {
			if group.Name == parts[1] {
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return answer(http.StatusOK, group)
			}
		}
		return refusal(apierrors.NewNotFound(schema.GroupResource{}, parts[1]))
	case parts[0] == "version":
		return answer(http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0"})
	}
	return answer(http.StatusOK, map[string]any{"paths": []string{}}) // for example a probe of /
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, gvr := range s.served() {
		if gvr.Group == "" {
			continue
		}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == gvr.Group })
		if i < 0 {
			i, list.Groups = len(list.Groups), append(list.Groups, metav1.APIGroup{Name: gvr.Group})
		}
		group, version := &list.Groups[i], metav1.GroupVersionForDiscovery{GroupVersion: gvr.GroupVersion().String(), Version: gvr.Version}
		if !slices.Contains(group.Versions, version) {
			group.Versions, group.PreferredVersion = append(group.Versions, version), version // the newest version is the last
		}
	}
	return list
}

func (s *Server) resources(of schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: of.String()}
	for _, gvr := range s.served() {
		kind := s.kinds[gvr]
		if gvr.GroupVersion() != of {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: gvr.Resource, SingularName: strings.ToLower(kind.Kind), Kind: kind.Kind, Namespaced: !kind.ClusterScoped,
			Verbs: metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"},
		})
		if !kind.NoStatus {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: gvr.Resource + "/status", Kind: kind.Kind, Namespaced: !kind.ClusterScoped,
				Verbs: metav1.Verbs{"get", "update", "patch"},
			})
		}
	}
	return list
}

func (s *Server) served() []schema.GroupVersionResource {
	all := make([]schema.GroupVersionResource, 0, len(s.kinds))
	for gvr := range s.kinds {
		all = append(all, gvr)
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// allowed answers every access review with yes.
func allowed(body []byte) *http.Response {
	obj, err := decode(body)
	if err != nil {
		return refusal(err)
	}
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	obj.Object["status"] = map[string]any{"allowed": status.Allowed}
	return answer(http.StatusCreated, obj.Object)
}

// decode decodes an object from JSON, or from protobuf, in which clients send Kubernetes' own kinds.
func decode(body []byte) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	if json.Unmarshal(body, &obj.Object) == nil {
		return obj, nil
	}
	typed, kind, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	data, err := json.Marshal(typed)
	if err == nil {
		err = json.Unmarshal(data, &obj.Object)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	obj.SetGroupVersionKind(*kind)
	return obj, nil
}

func answer(code int, content any) *http.Response {
	body, err := json.Marshal(content)
	if err != nil {
		panic(err) // all contents can be encoded
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}

func refusal(err error) *http.Response {
	status, is := err.(apierrors.APIStatus)
	if !is {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return answer(int(s.Code), s)
}
