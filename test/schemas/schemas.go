// Package schemas has requests for objects of kubemend's kinds, each with what an API server answers: as tables, which
// test/api asks, and of which one is a part of docs/reference/bad-input.md.
package schemas

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kubemend/kubemend/test/seeds"
)

// Row is one request that creates an object, and its answer.
type Row struct {
	// Name says what is special about the object. It starts with its kind.
	Name string

	Object *unstructured.Unstructured

	// Strict asks for the refusal of unknown fields.
	Strict bool

	// Refused is a part of the message of the refusal, and empty if the object is accepted.
	Refused string

	// Becomes is the spec of the accepted object, that which a template embeds, as JSON: Absent if there is none, and empty if any will do.
	Becomes string
}

// Absent is the spec of an object that has none.
const Absent = "null"

// Check returns what is wrong with an answer, and nothing if it is the one of the row.
func (r Row) Check(stored *unstructured.Unstructured, err error) string {
	switch {
	case r.Refused == "" && err != nil:
		return "is refused: " + err.Error()
	case r.Refused != "" && err == nil:
		return "is accepted, and should be refused: " + r.Refused
	case r.Refused != "" && !strings.Contains(err.Error(), r.Refused):
		return fmt.Sprintf("is refused with\n%v\nand not with\n%s", err, r.Refused)
	case r.Refused == "" && r.Becomes != "" && Spec(stored) != compact(r.Becomes):
		return fmt.Sprintf("has the spec\n%s\nand not\n%s", Spec(stored), compact(r.Becomes))
	}
	return ""
}

// Kind is one version of a kind.
type Kind struct{ APIVersion, Kind string }

func (k Kind) String() string {
	return k.APIVersion[strings.Index(k.APIVersion, "/")+1:] + " " + k.Kind
}

// Template is the kind of templates of remediations of kind k.
func (k Kind) Template() Kind { return Kind{k.APIVersion, k.Kind + "Template"} }

// Object is an object of this name with this spec, which is JSON; it has none if that is empty. A template embeds it.
func (k Kind) Object(name, spec string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.APIVersion, k.Kind))
	o.SetName(name)
	if k != NodeHealthCheck {
		o.SetNamespace("default")
	}
	switch {
	case spec == "":
	case strings.HasSuffix(k.Kind, "Template"):
		o.Object["spec"] = map[string]any{"template": map[string]any{"spec": JSON(spec)}}
	default:
		o.Object["spec"] = JSON(spec)
	}
	return o
}

// Spec is the spec of an object, that which a template embeds, as JSON.
func Spec(o *unstructured.Unstructured) string {
	fields := []string{"spec"}
	if strings.HasSuffix(o.GetKind(), "Template") {
		fields = []string{"spec", "template", "spec"}
	}
	spec, found, err := unstructured.NestedMap(o.Object, fields...)
	if err != nil {
		return err.Error()
	}
	if !found {
		return Absent
	}
	return marshal(spec)
}

// JSON is the object of this text, with integers as an API server reads them.
func JSON(text string) map[string]any {
	var o map[string]any
	if err := utiljson.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("%v: %s", err, text)) // a slip in a table
	}
	return o
}

func compact(text string) string {
	if text == Absent {
		return Absent
	}
	return marshal(JSON(text))
}

func marshal(o map[string]any) string {
	content, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was JSON before
	}
	return string(content)
}

// documented is the last object of a manifest of the documentation, which a check of machines precedes in some; nil if it is no YAML.
func documented(file string) *unstructured.Unstructured {
	objects, err := seeds.Objects(file)
	if err != nil {
		return nil
	}
	return objects[len(objects)-1]
}
