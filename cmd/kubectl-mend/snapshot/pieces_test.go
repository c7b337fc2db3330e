package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTheItemsOfAListAreFoundAsTheyStand(t *testing.T) {
	for name, tc := range map[string]struct {
		list string
		want []string
	}{
		"none":                           {`{"items":[],"kind":"MachineList"}`, nil},
		"null":                           {`{"kind":"MachineList","items":null}`, nil},
		"no items at all":                {`{"kind":"MachineList"}`, nil},
		"an empty object":                {`{}`, nil},
		"two, before the rest":           {`{"items":[{"a":1},{"b":[2]}],"kind":"MachineList"}`, []string{`{"a":1}`, `{"b":[2]}`}},
		"two, behind the rest":           {`{"metadata":{"items":[3]},"kind":"MachineList","items":[{"a":1},{"b":[2]}]}`, []string{`{"a":1}`, `{"b":[2]}`}},
		"blanks anywhere":                {" {\n\t\"items\" : [ {\"a\" : 1} ,\r\n{} ] } ", []string{`{"a" : 1}`, `{}`}},
		"brackets and quotes in strings": {`{"items":[{"a":"]}\"{["},{"b":"\\"}]}`, []string{`{"a":"]}\"{["}`, `{"b":"\\"}`}},
		"items inside of an item":        {`{"items":[{"items":[1,2]}]}`, []string{`{"items":[1,2]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := items([]byte(tc.list))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, item := range found {
				got = append(got, string(item))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsNoListIsNotTakenForAnEmptyOne(t *testing.T) {
	for _, data := range []string{``, ` `, `[]`, `"items"`, `<html>`, `{"items":[{"a":1}`, `{"items":[{"a":"`, `{"items":[{"a":"\`, `{"kind"`, `{"kind":`, `{"kind" "x"}`, `{"items":{}}`, `{"items":"x"}`, `{,}`} {
		if found, err := items([]byte(data)); !errors.Is(err, errNoList) {
			t.Errorf("items(%q) are %q, %v; want an error", data, found, err)
		}
	}
}

func TestWhoManagesTheFieldsIsCutOut(t *testing.T) {
	for name, tc := range map[string]struct{ object, want string }{
		"in the middle":             {`{"metadata":{"name":"a","managedFields":[{"x":"}"}],"uid":"u"},"spec":{}}`, `{"metadata":{"name":"a","managedFields":null,"uid":"u"},"spec":{}}`},
		"at the end":                {`{"kind":"K","metadata":{"managedFields":[{}, {}]}}`, `{"kind":"K","metadata":{"managedFields":null}}`},
		"of nobody":                 {`{"metadata":{"managedFields":[]}}`, `{"metadata":{"managedFields":[]}}`},
		"not said":                  {`{"metadata":{"name":"a"},"spec":{"managedFields":[{}]}}`, `{"metadata":{"name":"a"},"spec":{"managedFields":[{}]}}`},
		"of something else":         {`{"spec":{"metadata":{"managedFields":[{}]}}}`, `{"spec":{"metadata":{"managedFields":[{}]}}}`},
		"of what is not an object":  {`[1]`, `[1]`},
		"of what has no such thing": {`{}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(unmanaged([]byte(tc.object)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestItemsAreTheSameAsThoseThatAParserFinds(t *testing.T) {
	value := rapid.Deferred(func() *rapid.Generator[any] { return anything(3) })
	rapid.Check(t, func(t *rapid.T) {
		list := map[string]any{"kind": "List", "a": value.Draw(t, "before"), "z": value.Draw(t, "behind"), "items": rapid.SliceOf(value).Draw(t, "items")}
		data, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Items []json.RawMessage }
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		got, err := items(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want.Items) {
			t.Fatalf("%d items of %s, want %d", len(got), data, len(want.Items))
		}
		for i := range got {
			if string(got[i]) != string(want.Items[i]) {
				t.Errorf("item %d of %s is %s, want %s", i, data, got[i], want.Items[i])
			}
		}
	})
}

// anything is a value of JSON that is nested no deeper than that.
func anything(deep int) *rapid.Generator[any] {
	plain := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil), rapid.SampledFrom([]string{`"`, `\`, `\"`, `]}`, `{[`}).AsAny(),
	}
	if deep == 0 {
		return rapid.OneOf(plain...)
	}
	inner := anything(deep - 1)
	return rapid.OneOf(append(plain, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(rapid.String(), inner, 0, 4).AsAny())...)
}

func TestWhatIsSharedOutComesBackInItsOrder(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 1000} {
		got, err := shared(n, func(i int) (int, error) { return i, nil })
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got[i] != i {
				t.Errorf("of %d, thing %d is %d", n, i, got[i])
			}
		}
	}
	bad := errors.New("it cannot be parsed")
	if _, err := shared(1000, func(i int) (int, error) {
		if i == 999 {
			return 0, fmt.Errorf("no: %w", bad)
		}
		return i, nil
	}); !errors.Is(err, bad) {
		t.Errorf("the error is %v, want the one of the last thing", err)
	}
}
