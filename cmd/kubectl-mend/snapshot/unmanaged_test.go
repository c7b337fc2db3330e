package snapshot

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pgregory.net/rapid"
)

// members are the fields of an object in an order, as json.Marshal would not give them.
func members(t *rapid.T, fields map[string]any) []byte {
	var out bytes.Buffer
	blank := func() { out.WriteString(rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "blank")) }
	out.WriteString("{")
	for i, name := range rapid.Permutation(slices.Sorted(maps.Keys(fields))).Draw(t, "order") {
		if i > 0 {
			out.WriteString(",")
		}
		blank()
		out.Write(jsonOf(t, name))
		blank()
		out.WriteString(":")
		blank()
		if raw, is := fields[name].(json.RawMessage); is {
			out.Write(raw)
		} else {
			out.Write(jsonOf(t, fields[name]))
		}
		blank()
	}
	out.WriteString("}")
	return out.Bytes()
}

func jsonOf(t *rapid.T, value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// managed is an object with all that might be mistaken for who manages its fields, and often with that itself.
func managed(t *rapid.T) []byte {
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`"`, `\`, `\"managedFields":`, "managedFields", "metadata"}))
	fields := rapid.MapOfN(name, anything(2), 0, 4)
	metadata := fields.Draw(t, "metadata")
	delete(metadata, "managedFields")
	if rapid.Bool().Draw(t, "is managed") {
		metadata["managedFields"] = anything(3).Draw(t, "by")
	}
	object := fields.Draw(t, "object")
	delete(object, "metadata")
	if rapid.IntRange(0, 9).Draw(t, "has metadata") > 0 {
		object["metadata"] = json.RawMessage(members(t, metadata))
	}
	return members(t, object)
}

func TestNothingElseIsCutOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := managed(t)
		var want, got map[string]any
		if err := json.Unmarshal(object, &want); err != nil {
			t.Fatalf("%s: %v", object, err)
		}
		left := unmanaged(bytes.Clone(object))
		if err := json.Unmarshal(left, &got); err != nil {
			t.Fatalf("of %s is left %s: %v", object, left, err)
		}
		for _, content := range []map[string]any{want, got} {
			if metadata, is := content["metadata"].(map[string]any); is {
				delete(metadata, "managedFields")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %s is left %s (-want +got):\n%s", object, left, diff)
		}
	})
}

func TestWhatIsBrokenIsNotMended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := managed(t)
		cut := object[:rapid.IntRange(0, len(object)-1).Draw(t, "length")]
		if json.Valid(cut) {
			t.Fatalf("%s is whole", cut)
		}
		if left := unmanaged(bytes.Clone(cut)); json.Valid(left) {
			t.Errorf("of %s, which is cut off, is left %s, which looks whole", cut, left)
		}
	})
}
