package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/kubemend/kubemend/test/golden"
)

// schemaFile has the version in its name, because an incompatible schema needs another file.
var schemaFile = filepath.Join("..", "..", "..", "docs", "cli", GroupVersion.Group+"_"+GroupVersion.Version+".schema.json")

// kinds are the kinds of the documents.
var kinds = []string{"Explanation", "ExplanationList", "Status", "History", "Simulation", "Report"}

// foreign are the schemas of types of other packages.
var foreign = map[string]property{
	"metav1.Time":      {Type: "string", Format: "date-time"},
	"time.Time":        {Type: "string", Format: "date-time"},
	"metav1.Duration":  {Type: "string", Description: "A duration as Go spells it, such as 5m0s."},
	"metav1.Condition": {Type: "object", Description: "A condition of the Kubernetes API."},
	"string":           {Type: "string"}, "bool": {Type: "boolean"}, "int": {Type: "integer"}, "int32": {Type: "integer"},
}

// documentSchema is a JSON schema (2020-12) with one definition for each type.
type documentSchema struct {
	Schema string              `json:"$schema"`
	ID     string              `json:"$id"`
	Title  string              `json:"title"`
	OneOf  []property          `json:"oneOf"`
	Defs   map[string]property `json:"$defs"`
}

type property struct {
	Ref         string              `json:"$ref,omitempty"`
	Type        string              `json:"type,omitempty"`
	Format      string              `json:"format,omitempty"`
	Description string              `json:"description,omitempty"`
	Const       string              `json:"const,omitempty"`
	Enum        []string            `json:"enum,omitempty"`
	Items       *property           `json:"items,omitempty"`
	Properties  map[string]property `json:"properties,omitempty"`
	Required    []string            `json:"required,omitempty"`
}

// source is the parsed Go source of this package.
type source struct {
	structs map[string]*ast.StructType
	docs    map[string]string
	enums   map[string][]string
}

func parseSource(t *testing.T) *source {
	t.Helper()
	s := &source{structs: map[string]*ast.StructType{}, docs: map[string]string{}, enums: map[string][]string{}}
	files, err := filepath.Glob("*_types.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		must.Do(t, err)
		for _, d := range file.Decls {
			if g, is := d.(*ast.GenDecl); is {
				s.declared(g)
			}
		}
	}
	return s
}

func (s *source) declared(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch is := spec.(type) {
		case *ast.TypeSpec:
			s.docs[is.Name.Name] = sentence(g.Doc)
			if fields, object := is.Type.(*ast.StructType); object {
				s.structs[is.Name.Name] = fields
			}
		case *ast.ValueSpec:
			kind := is.Type.(*ast.Ident).Name
			value := strings.Trim(is.Values[0].(*ast.BasicLit).Value, `"`)
			s.enums[kind] = append(s.enums[kind], value)
		}
	}
}

// sentence returns a comment in one line, without markers.
func sentence(doc *ast.CommentGroup) string {
	text, _, _ := strings.Cut(doc.Text(), "+kubebuilder")
	return strings.Join(strings.Fields(text), " ")
}

// schema returns the schema of all documents.
func (s *source) schema() *documentSchema {
	all := &documentSchema{
		Schema: "https://json-schema.org/draft/2020-12/schema", ID: "https://kubemend.io/" + GroupVersion.String(),
		Title: "The documents of kubectl mend -o json", Defs: map[string]property{},
	}
	for _, kind := range kinds {
		all.OneOf = append(all.OneOf, property{Ref: "#/$defs/" + kind})
	}
	for name := range s.structs {
		all.Defs[name] = s.object(name)
	}
	for name, values := range s.enums {
		all.Defs[name] = property{Type: "string", Description: s.docs[name], Enum: values}
	}
	return all
}

// object returns the definition of a struct.
func (s *source) object(name string) property {
	p := property{Type: "object", Description: s.docs[name], Properties: map[string]property{}}
	add := func(field string, is property, required bool) {
		p.Properties[field] = is
		if required {
			p.Required = append(p.Required, field)
		}
	}
	for _, f := range s.structs[name].Fields.List {
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		field, options, _ := strings.Cut(tag, ",")
		kind := spelled(f.Type)
		switch {
		case field == "-":
		case kind == "metav1.TypeMeta":
			add("apiVersion", property{Type: "string", Const: GroupVersion.String()}, true)
			add("kind", property{Type: "string", Const: name}, true)
		case kind == "metav1.ListMeta":
			add(field, property{Type: "object"}, true)
		case field == "":
			embedded := s.object(kind)
			maps.Copy(p.Properties, embedded.Properties)
			p.Required = append(p.Required, embedded.Required...)
		default:
			is := s.typed(f.Type)
			if text := sentence(f.Doc); text != "" {
				is.Description = text
			}
			add(field, is, options == "")
		}
	}
	return p
}

func spelled(e ast.Expr) string {
	switch is := e.(type) {
	case *ast.StarExpr:
		return spelled(is.X)
	case *ast.SelectorExpr:
		return spelled(is.X) + "." + is.Sel.Name
	case *ast.Ident:
		return is.Name
	}
	return ""
}

func (s *source) typed(e ast.Expr) property {
	if list, is := e.(*ast.ArrayType); is {
		items := s.typed(list.Elt)
		return property{Type: "array", Items: &items}
	}
	name := spelled(e)
	if p, known := foreign[name]; known {
		return p
	}
	return property{Ref: "#/$defs/" + name}
}

// incompatible returns why a program that knows the schema was may not understand the schema is: a field is missing, may be absent, or has
// another type, or a value of an enum is missing.
func incompatible(was, is *documentSchema) []string {
	var why []string
	for _, name := range slices.Sorted(maps.Keys(was.Defs)) {
		old, now := was.Defs[name], is.Defs[name]
		if now.Type == "" {
			why = append(why, name+" is gone")
			continue
		}
		for _, value := range old.Enum {
			if !slices.Contains(now.Enum, value) {
				why = append(why, fmt.Sprintf("%s has no value %s any more", name, value))
			}
		}
		for _, field := range slices.Sorted(maps.Keys(old.Properties)) {
			before := old.Properties[field]
			after, there := now.Properties[field]
			switch {
			case !there:
				why = append(why, name+"."+field+" is gone")
			case kindOf(before) != kindOf(after):
				why = append(why, fmt.Sprintf("%s.%s was %s and is %s", name, field, kindOf(before), kindOf(after)))
			case slices.Contains(old.Required, field) && !slices.Contains(now.Required, field):
				why = append(why, name+"."+field+" may be absent now")
			}
		}
	}
	return why
}

// kindOf returns the type of a field in a word.
func kindOf(p property) string {
	switch {
	case p.Items != nil:
		return "list of " + kindOf(*p.Items)
	case p.Ref != "":
		return strings.TrimPrefix(p.Ref, "#/$defs/")
	case p.Format == "date-time":
		return "time"
	}
	return p.Type
}

// -update writes the schema, unless it would break programs that know the existing one.
func TestTheDocumentsAreDocumented(t *testing.T) {
	s := parseSource(t)
	now := s.schema()
	content, err := os.ReadFile(schemaFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	was := &documentSchema{}
	if err == nil {
		must.Do(t, json.Unmarshal(content, was))
	}
	if why := incompatible(was, now); len(why) > 0 {
		t.Fatalf("%s is not compatible with what programs know of it: keep the fields, or make another version of the group\n%s", GroupVersion, strings.Join(why, "\n"))
	}
	written, err := json.MarshalIndent(now, "", "  ")
	must.Do(t, err)
	golden.Compare(t, schemaFile, string(written)+"\n")
}
