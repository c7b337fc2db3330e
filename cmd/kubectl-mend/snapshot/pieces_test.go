package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// found are the objects of a list that comes as from does.
func found(from io.Reader) (all []string, err error) {
	err = split(from, func(object []byte) { all = append(all, string(object)) })
	return all, err
}

func TestTheObjectsOfAListAreFoundAsTheyStand(t *testing.T) {
	long := `{"a":"` + strings.Repeat(`\"]}`, 256<<10) + `"}`
	for name, tc := range map[string]struct {
		list string
		want []string
	}{
		"none":                           {`{"items":[],"kind":"MachineList"}`, nil},
		"null":                           {`{"kind":"MachineList","items":null}`, nil},
		"a head":                         {`{"metadata":{"resourceVersion":"7","continue":""},"items":[{"a":1}]}`, []string{`{"a":1}`}},
		"two, before the rest":           {`{"items":[{"a":1},{"b":[2]}],"kind":"MachineList"}`, []string{`{"a":1}`, `{"b":[2]}`}},
		"two, behind the rest":           {`{"metadata":{"items":[{}]},"kind":"items","of":[{}],"items":[{"a":1},{"b":[2]}]}`, []string{`{"a":1}`, `{"b":[2]}`}},
		"blanks anywhere":                {" {\n\t\"items\" : [ {\"a\" : 1} ,\r\n{} ] } \n", []string{`{"a" : 1}`, `{}`}},
		"brackets and quotes in strings": {`{"items":[{"a":"]}\"{["},{"b":"\\"}]}`, []string{`{"a":"]}\"{["}`, `{"b":"\\"}`}},
		"items inside of an item":        {`{"items":[{"items":[{},{}]}]}`, []string{`{"items":[{},{}]}`}},
		"one that is long":               {`{"items":[{},` + long + `,{}]}`, []string{`{}`, long, `{}`}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []io.Reader{strings.NewReader(tc.list), iotest.HalfReader(strings.NewReader(tc.list)), iotest.OneByteReader(strings.NewReader(tc.list))} {
				got, err := found(from)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestWhatIsNoListIsNotTakenForAnEmptyOne(t *testing.T) {
	for data, want := range map[string]error{
		`[]`: errNoList, `<html>`: errNoList, `{}x`: errNoList, `{}{}`: errNoList, `items`: errNoList,
		`{}`: errNoList, `{"kind":"MachineList"}`: errNoList, `{"kind":"Status","status":"Failure","code":403}`: errNoList,
		`{"items":{}}`: errNoList, `{"items":{"a":1}}`: errNoList, `{"items":"a"}`: errNoList, `{"items":[null]}`: errNoList, `{"items":[{}{}]}`: errNoList, `{"items":[{"a":]}]}`: errNoList, `{"items":[[{}]]}`: errNoList,
		`{"metadata":{"continue":"there is more"},"items":[{"a":1}]}`: errPage, `{"items":[],"metadata":{"continue":"there is more"}}`: errPage,
		``: errCut, ` `: errCut, `{"items":[{"a":1}`: errCut, `{"items":[{"a":"`: errCut, `{"items":[{"a":"\`: errCut, `{"kind":`: errCut, `{"items":[]`: errCut,
	} {
		if got, err := found(strings.NewReader(data)); !errors.Is(err, want) {
			t.Errorf("the objects of %q are %q, %v; want the error %v", data, got, err, want)
		}
	}
	broken := errors.New("the connection is lost")
	if _, err := found(io.MultiReader(strings.NewReader(`{"items":[{}`), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want the one of who was read from", err)
	}
}

// A parser that gave up would leave the one who reads waiting.
func TestAListIsReadToItsEndWhereNoObjectCanBeParsed(t *testing.T) {
	broken := errors.New("it cannot be parsed")
	var parsed atomic.Int32
	err := eachObject(strings.NewReader(`{"items":[{}`+strings.Repeat(",{}", 999)+"]}"), func([]byte) error {
		parsed.Add(1)
		return broken
	})
	if !errors.Is(err, broken) || parsed.Load() != 1000 {
		t.Errorf("%d were parsed, with the error %v", parsed.Load(), err)
	}
}

func TestObjectsAreTheSameAsThoseThatAParserFinds(t *testing.T) {
	value := anything(3)
	object := rapid.MapOfN(rapid.String(), value, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(map[string]any{
			"kind": "List", "a": value.Draw(t, "before"), "z": value.Draw(t, "behind"), "items": rapid.SliceOf(object).Draw(t, "items"),
		})
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Items []json.RawMessage }
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		got, err := found(chunks{bytes.NewReader(data), rapid.IntRange(1, len(data)).Draw(t, "at a time")})
		if err != nil {
			t.Fatal(err)
		}
		equal := func(a string, b json.RawMessage) bool { return a == string(b) }
		if !slices.EqualFunc(got, want.Items, equal) {
			t.Errorf("the objects of %s are %q", data, got)
		}
	})
}

// chunks reads so much at a time.
type chunks struct {
	from io.Reader
	size int
}

func (c chunks) Read(into []byte) (int, error) { return c.from.Read(into[:min(c.size, len(into))]) }

// anything is a value of JSON that is nested no deeper than that.
func anything(deep int) *rapid.Generator[any] {
	plain := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil), rapid.SampledFrom([]string{`"`, `\`, `\"`, `]}`, `{[`, "items"}).AsAny(),
	}
	if deep == 0 {
		return rapid.OneOf(plain...)
	}
	inner := anything(deep - 1)
	return rapid.OneOf(append(plain, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(rapid.String(), inner, 0, 4).AsAny())...)
}
