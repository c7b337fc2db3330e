package snapshot

import (
	"encoding/json"
	"errors"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"pgregory.net/rapid"
)

func TestAMergePatchIsWhatTheStandardSays(t *testing.T) {
	for name, tc := range map[string]struct{ content, patch, want string }{
		"a field that is new":                     {`{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`},
		"a field that is taken away":              {`{"a":1,"b":2}`, `{"b":null}`, `{"a":1}`},
		"one that is not there":                   {`{"a":1}`, `{"b":null}`, `{"a":1}`},
		"a field of an object":                    {`{"a":{"b":1,"c":2}}`, `{"a":{"b":null,"d":3}}`, `{"a":{"c":2,"d":3}}`},
		"a new object with nothing in it":         {`{}`, `{"a":{"b":null}}`, `{"a":{}}`},
		"a new object, with null deep inside":     {`{}`, `{"a":{"b":{"c":null,"d":1}}}`, `{"a":{"b":{"d":1}}}`},
		"an object in place of a number":          {`{"a":1}`, `{"a":{"b":null,"c":2}}`, `{"a":{"c":2}}`},
		"an object in place of a list":            {`{"a":[1]}`, `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":1}}}`},
		"an object in place of null":              {`{"a":null}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"a number in place of an object":          {`{"a":{"b":1}}`, `{"a":2}`, `{"a":2}`},
		"a list, which is not merged":             {`{"a":[1,2]}`, `{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`},
		"an object that is empty changes nothing": {`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(parsed(t, tc.want), patchedBy(t, types.MergePatchType, tc.content, tc.patch)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMergePatchDoesWhatThatOfAnAPIServerDoes(t *testing.T) {
	doc := anObject(3)
	rapid.Check(t, func(rt *rapid.T) {
		content, patch := marshalled(t, doc.Draw(rt, "content")), marshalled(t, doc.Draw(rt, "patch"))
		want, err := jsonpatch.MergePatch(content, patch)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, string(want)), patchedBy(t, types.MergePatchType, string(content), string(patch))); diff != "" {
			rt.Errorf("%s patched with %s (-want +got):\n%s", content, patch, diff)
		}
	})
}

// anObject has few names, so that those of two of them meet, and is nested no deeper than that. In its lists there is no null: the library drops
// those, and the standard does not.
func anObject(deep int) *rapid.Generator[map[string]any] {
	values := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.IntRange(0, 2).AsAny(), rapid.StringMatching("[a-c]?").AsAny(), rapid.SliceOfN(rapid.IntRange(0, 2), 0, 2).AsAny(),
	}
	if deep > 0 {
		values = append(values, anObject(deep-1).AsAny(), anObject(deep-1).AsAny())
	}
	return rapid.MapOfN(rapid.StringMatching("[a-d]"), rapid.OneOf(values...), 0, 4)
}

func marshalled(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parsed(t *testing.T, data string) map[string]any {
	t.Helper()
	content := map[string]any{}
	if err := utiljson.Unmarshal([]byte(data), &content); err != nil {
		t.Fatal(err)
	}
	return content
}

func patchedBy(t *testing.T, kind types.PatchType, content, patch string) map[string]any {
	t.Helper()
	next, err := patched(parsed(t, content), kind, []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestAJSONPatchIsAppliedWholeOrNotAtAll(t *testing.T) {
	for name, tc := range map[string]struct {
		patch string
		is    func(error) bool
		pool  string
	}{
		"one that applies": {`[{"op":"test","path":"/metadata/labels/pool","value":"a"},{"op":"replace","path":"/metadata/labels/pool","value":"b"}]`, nil, "b"},
		"one whose test fails": {
			`[{"op":"replace","path":"/metadata/labels/pool","value":"b"},{"op":"test","path":"/metadata/uid","value":"x"}]`, apierrors.IsInvalid, "a",
		},
		"one of a field that is not there": {`[{"op":"remove","path":"/metadata/annotations/a"}]`, apierrors.IsInvalid, "a"},
		"one that makes no object of it":   {`[{"op":"replace","path":"","value":[]}]`, apierrors.IsInvalid, "a"},
		"what is no list of steps":         {`{"op":"remove"}`, apierrors.IsBadRequest, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := aWorld(t, aMachine("m"))
			err := w.Client().Patch(t.Context(), aMachine("m"), client.RawPatch(types.JSONPatchType, []byte(tc.patch)))
			if (err == nil) != (tc.is == nil) || err != nil && !tc.is(err) {
				t.Errorf("the error is %v", err)
			}
			if is := get(t, w, "m"); is.Labels["pool"] != tc.pool || (is.ResourceVersion == "7") != (tc.pool == "a") {
				t.Errorf("it is of pool %s, in version %s", is.Labels["pool"], is.ResourceVersion)
			}
		})
	}
}

func TestTheBodyOfASubresourceIsWhatIsWritten(t *testing.T) {
	w, _ := aWorld(t, aMachine("m"))
	named, body := get(t, w, "m"), get(t, w, "m")
	named.Status.Phase, body.Status.Phase, body.Labels["pool"] = "Failed", "Running", "b"
	if err := w.Client().Status().Update(t.Context(), named, client.WithSubResourceBody(body)); err != nil {
		t.Fatal(err)
	}
	if is := get(t, w, "m"); is.Status.Phase != "Running" || is.Labels["pool"] != "a" || body.ResourceVersion != is.ResourceVersion {
		t.Errorf("it is %s of pool %s; the writer has version %s, want %s", is.Status.Phase, is.Labels["pool"], body.ResourceVersion, is.ResourceVersion)
	}
}

func TestThereIsNoSubresourceButTheStatus(t *testing.T) {
	w, _ := aWorld(t, aMachine("m"))
	scale, status := w.Client().SubResource("scale"), w.Client().Status()
	for what, err := range map[string]error{
		"an update of another one": scale.Update(t.Context(), aMachine("m")),
		"a patch of another one":   scale.Patch(t.Context(), aMachine("m"), merged(`{"status":{"phase":"x"}}`)),
		"a read of another one":    scale.Get(t.Context(), aMachine("m"), &clusterv1.Machine{}),
		"a status that is created": status.Create(t.Context(), aMachine("m"), &clusterv1.Machine{}),
		"a status that is applied": status.Apply(t.Context(), nil),
	} {
		if err == nil || errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	readOnly := w.ReadOnly().Status()
	for what, err := range map[string]error{
		"created": readOnly.Create(t.Context(), aMachine("m"), &clusterv1.Machine{}), "applied": readOnly.Apply(t.Context(), nil),
	} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("in a world that is only looked at a status is %s: %v", what, err)
		}
	}
	if is := get(t, w, "m"); is.ResourceVersion != "7" {
		t.Errorf("it was written all the same: version %s", is.ResourceVersion)
	}
}
