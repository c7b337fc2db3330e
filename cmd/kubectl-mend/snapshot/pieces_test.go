package snapshot

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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

// Who writes the kubeconfig of a workload cluster decides what answers, and it is read on the machine of the person who asks.
func TestAWorkloadClusterCannotFillTheMemoryOfWhoAsks(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is asked elsewhere") }))
	defer elsewhere.Close()
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"an answer without end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":["`)
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, strings.Repeat(" ", 1<<20))
			}
		}, "longer than"},
		"one that is far larger once it is decoded": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","items":[{}`+strings.Repeat(",{}", 1<<20)+"]}")
		}, "more objects or fields"},
		"a redirection": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				row.answer(w, r)
			}))
			defer server.Close()
			of := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c1-kubeconfig"}, Data: map[string][]byte{"value": kubeconfigOf(&rest.Config{Host: server.URL})},
			}
			r := &reading{client: fake.NewClientBuilder().WithObjects(of).Build(), snapshot: New()}
			r.snapshot.live = map[client.ObjectKey]client.Reader{}
			if _, err := r.nodes(t.Context(), aCluster("c1")); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("the error is %v, want that it %s", err, row.says)
			}
		})
	}
}

// The list may be as long as it likes, since what is over is not kept. An object is kept until it is.
func TestAnObjectOfAListMustEnd(t *testing.T) {
	for name, object := range map[string]string{"an object": `{"a":"` + strings.Repeat("a", longestObject), "a name": `"` + strings.Repeat("a", longestObject)} {
		head := `{"items":[`
		if name == "a name" {
			head = "{"
		}
		if err := split(io.MultiReader(strings.NewReader(head+object), zeros{}), func([]byte) {}); !errors.Is(err, errLong) {
			t.Errorf("%s that does not end: %v", name, err)
		}
	}
	whole := `{"a":"` + strings.Repeat("a", longestObject/2) + `"}`
	var got [][]byte
	err := split(strings.NewReader(`{"items":[`+whole+","+whole+","+whole+`]}`), func(object []byte) { got = append(got, object) })
	if err != nil || len(got) != 3 || !bytes.Equal(got[2], []byte(whole)) {
		t.Errorf("a long list of long objects: %d, %v", len(got), err)
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A snapshot may come from somebody else: a few kilobytes unpack to as many gigabytes as they like.
func TestAFileThatUnpacksToTooMuchIsRefused(t *testing.T) {
	const most = 1 << 20
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.CopyN(w, zeros{}, 8*most); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]io.Reader{
		"packed":                &packed,
		"not packed":            io.LimitReader(zeros{}, 8*most),
		"one that never ends":   zeros{},
		"one byte too many":     strings.NewReader(strings.Repeat(" ", most+1)),
		"white space, and more": io.MultiReader(strings.NewReader(strings.Repeat(" ", most)), zeros{}),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(from, most); err == nil || !strings.Contains(err.Error(), "more than 1 MiB when it is unpacked") {
				t.Errorf("parse() = %v, want that it is too long", err)
			}
		})
	}
}
