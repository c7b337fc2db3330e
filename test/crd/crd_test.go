package crd

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"
)

// boxes has a default, a rule, and in its first version another field instead of `size`. The second version is stored.
const boxes = `
metadata: {name: boxes.test.io}
spec:
  group: test.io
  scope: Cluster
  names: {kind: Box, plural: boxes}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {width: {type: integer, default: 3}}}
  - name: v2
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 7, maximum: 100}
              colour: {type: string, enum: [red, blue]}
              tags: {type: array, items: {type: string}, x-kubernetes-list-type: set}
            x-kubernetes-validations:
            - {rule: "self.size != 13", message: 13 is not allowed}
          status: {type: object, properties: {sold: {type: boolean}}}
`

func served(t *testing.T) *Server {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(boxes), definition); err != nil {
		t.Fatal(err)
	}
	s := &Server{}
	if err := s.Serve(definition); err != nil {
		t.Fatal(err)
	}
	return s
}

func box(t *testing.T, version, rest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{apiVersion: test.io/"+version+", kind: Box, metadata: {name: a}, "+rest+"}"), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAnswers(t *testing.T) {
	for _, row := range []struct {
		name, given string
		want        string // the spec, or the error
	}{
		{"a default is set where a field is missing", `spec: {}`, `{size: 7}`},
		{"no default is set where its parent is missing", `metadata: {name: a}`, `null`},
		{"a null is as if it were missing", `spec: {size: null}`, `{size: 7}`},
		{"an unknown field is dropped", `spec: {size: 1, weight: 2}`, `{size: 1}`},
		{"a schema refuses", `spec: {size: 101}`, `Box.test.io "a" is invalid: spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100`},
		{"a rule refuses", `spec: {size: 13}`, `Box.test.io "a" is invalid: spec: Invalid value: 13 is not allowed`},
		{"a list that is a set refuses", `spec: {tags: [a, a]}`, `Box.test.io "a" is invalid: spec.tags[1]: Duplicate value: "a"`},
		{
			"rules are not evaluated for what the schema refuses", `spec: {size: 13, colour: green}`,
			`Box.test.io "a" is invalid: [spec.colour: Unsupported value: "green": supported values: "red", "blue", <nil>: Invalid value: null: ` +
				`some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`,
		},
		{
			"a name that cannot be one is refused", `metadata: {name: A}, spec: {}`,
			`Box.test.io "A" is invalid: metadata.name: Invalid value: "A": a lowercase RFC 1123`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, row.want)(served(t).Create(t.Context(), box(t, "v2", row.given)))
		})
	}
}

// expect compares the spec, or the beginning of the error.
func expect(t *testing.T, want string) func(*unstructured.Unstructured, error) {
	t.Helper()
	return func(o *unstructured.Unstructured, err error) {
		t.Helper()
		if err != nil {
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("is refused with\n%v\nand not with\n%s", err, want)
			}
			return
		}
		var spec any
		if err := yaml.Unmarshal([]byte(want), &spec); err != nil {
			t.Fatal(err)
		}
		got, _ := yaml.Marshal(o.Object["spec"])
		if wanted, _ := yaml.Marshal(spec); !bytes.Equal(got, wanted) {
			t.Errorf("has the spec\n%s\nand not\n%s", got, wanted)
		}
	}
}

func TestAStrictRequestReportsUnknownFields(t *testing.T) {
	o := box(t, "v2", `spec: {weight: 2}`)
	_, err := served(t).CreateStrictly(t.Context(), o)
	const want = `Box in version "v2" cannot be handled as a Box: strict decoding error: unknown field "spec.weight"`
	if !apierrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if weight, _, _ := unstructured.NestedFloat64(o.Object, "spec", "weight"); weight != 2 {
		t.Error("the object of the request was changed")
	}
}

func TestACreationSetsNoStatus(t *testing.T) {
	o, err := served(t).Create(t.Context(), box(t, "v2", `status: {sold: true}`))
	if err != nil || o.Object["status"] != nil {
		t.Errorf("%v, %v", o, err)
	}
}

func TestAnUpdateIsValidatedOnlyWhereItChanges(t *testing.T) {
	for _, row := range []struct{ name, was, is, want string }{
		{"what was wrong and stays is accepted", `spec: {size: 101}`, `spec: {size: 101, tags: [a]}`, `{size: 101, tags: [a]}`},
		{"what becomes wrong is refused", `spec: {size: 1}`, `spec: {size: 101}`, `Box.test.io "a" is invalid: spec.size: Invalid value: 101`},
		{
			"a rule of an object that changes is evaluated", `spec: {size: 13}`, `spec: {size: 13, tags: [a]}`,
			`Box.test.io "a" is invalid: spec: Invalid value: 13 is not allowed`,
		},
		{"a set that had an element twice may keep it", `spec: {size: 1, tags: [a, a]}`, `spec: {size: 2, tags: [a, a]}`, `{size: 2, tags: [a, a]}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			expect(t, row.want)(served(t).Update(t.Context(), box(t, "v2", row.was), box(t, "v2", row.is)))
		})
	}
}

func TestObjectsAreReturnedInTheRequestedVersion(t *testing.T) {
	s := served(t)
	var asked []string
	s.Convert = func(o *unstructured.Unstructured, apiVersion string) (*unstructured.Unstructured, error) {
		asked = append(asked, apiVersion)
		fields := map[string]string{"test.io/v1": "width", "test.io/v2": "size"}
		number, _, _ := unstructured.NestedInt64(o.Object, "spec", fields[o.GetAPIVersion()])
		if number == 99 {
			return nil, errors.New("no 99")
		}
		o.SetAPIVersion(apiVersion)
		o.Object["spec"] = map[string]any{fields[apiVersion]: number, "weight": int64(2)}
		return o, nil
	}
	expect(t, `{width: 3}`)(s.Create(t.Context(), box(t, "v1", `spec: {}`)))
	if strings.Join(asked, " ") != "test.io/v2 test.io/v1" {
		t.Errorf("conversions to %v", asked)
	}
	expect(t, `conversion webhook for test.io/v1, Kind=Box failed: no 99`)(s.Create(t.Context(), box(t, "v1", `spec: {width: 99}`)))
	expect(t, `request to convert CR to an invalid group/version: test.io/v3`)(s.As(box(t, "v2", `spec: {}`), "test.io/v3"))
}

func TestWithoutConversionFieldsOfTheOtherVersionAreLost(t *testing.T) {
	expect(t, `{}`)(served(t).As(box(t, "v2", `spec: {size: 5}`), "test.io/v1"))
}

func TestAMutatingWebhookIsAskedBeforeTheSchema(t *testing.T) {
	s := served(t)
	s.Mutating = []Webhook{{Name: "repaint.test.io", Kind: schema.GroupVersionKind{Group: "test.io", Version: "v2", Kind: "Box"}, Handler: admission.HandlerFunc(
		func(_ context.Context, request admission.Request) admission.Response {
			if strings.Contains(string(request.Object.Raw), "black") {
				return admission.Denied("not black")
			}
			return admission.PatchResponseFromRaw(request.Object.Raw, bytes.ReplaceAll(request.Object.Raw, []byte("green"), []byte("red")))
		})}}
	expect(t, `{size: 7, colour: red}`)(s.Create(t.Context(), box(t, "v2", `spec: {colour: green}`)))
	expect(t, `admission webhook "repaint.test.io" denied the request: not black`)(s.Create(t.Context(), box(t, "v2", `spec: {colour: black}`)))
}

func TestAKindThatIsNotServedIsNoMatch(t *testing.T) {
	if _, err := served(t).Create(t.Context(), box(t, "v3", `spec: {}`)); !meta.IsNoMatchError(err) {
		t.Error(err)
	}
}

func TestAConversionThatFailsSaysWhy(t *testing.T) {
	convert := ConvertBy(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"response":{"result":{"status":"Failed","message":"no scheme"}}}`))
	}))
	if _, err := convert(box(t, "v1", ``), "test.io/v2"); err == nil || !strings.Contains(err.Error(), "no scheme") {
		t.Error(err)
	}
}
