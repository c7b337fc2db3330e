package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// plainNode returns a node with only what every kubelet reports.
func plainNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "worker-0001.example.com", UID: "0b1f5b6e-3c1d-4a53-9a53-7f1f3c1d4a53", ResourceVersion: "123456789",
		CreationTimestamp: noon, Labels: map[string]string{corev1.LabelHostname: "worker-0001.example.com", corev1.LabelOSStable: "linux"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &noon, FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/hostname":{},"f:kubernetes.io/os":{}}}}`)},
		}},
	}}
	n.Status.Capacity = corev1.ResourceList{}
	for i := range 5 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(fmt.Sprintf("Condition%d", i)), Status: corev1.ConditionTrue, Reason: "KubeletHasSufficientMemory",
			LastHeartbeatTime: noon, LastTransitionTime: noon,
		})
		n.Status.Capacity[corev1.ResourceName(fmt.Sprintf("resource-%d", i))] = resource.MustParse("263856228Ki")
	}
	return n
}

// readAll reads a response or a watch as client-go does, and returns the error.
func readAll(t testing.TB, contentType string, limit int64, watch bool, sent []byte) error {
	t.Helper()
	address := &url.URL{Path: "/api/v1/nodes"}
	if watch {
		address.RawQuery = "watch=true"
	}
	server := sends(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(sent)),
		}, nil
	})
	answer, err := binding{next: server, limit: limit}.RoundTrip(&http.Request{URL: address, Header: http.Header{}})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	got, err := io.ReadAll(answer.Body)
	if err == nil && !watch && !bytes.Equal(got, sent) {
		t.Error("the answer was changed")
	}
	return err
}

const ofMiB = 1 << 20

func TestAnAnswerHasNoMoreInItThanOneOfItsLength(t *testing.T) {
	const inJSON, limit = runtime.ContentTypeJSON, 4 << 20
	text, err := json.Marshal(plainNode())
	if err != nil {
		t.Fatal(err)
	}
	list := func(items string) string {
		return `{"kind":"NodeList","apiVersion":"v1","items":[` + items + `]}`
	}
	empty := "{}" + strings.Repeat(",{}", 100_000)
	for name, tc := range map[string]struct {
		encoding, sent string
		dense          bool
	}{
		"a node":                       {inJSON, string(text), false},
		"1000 nodes":                   {inJSON, list(strings.Repeat(string(text)+",", 999) + string(text)), false},
		"a probe":                      {inJSON, `{"paths":["/api","/apis"]}`, false},
		"an error":                     {inJSON, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes \"n\" not found"}`, false},
		"empty nodes":                  {inJSON, list(empty), true},
		"nothings":                     {inJSON, list("0" + strings.Repeat(",0", ofMiB/2)), true},
		"conditions":                   {inJSON, list(`{"status":{"conditions":[` + empty + "]}}"), true},
		"more nodes than may be":       {inJSON, list(`{"a":"aaaaaaaaaaa"}` + strings.Repeat(`,{"a":"aaaaaaaaaaa"}`, limit/bytesPerItem)), true},
		"more nodes, and then another": {inJSON, `{"items":[{}` + strings.Repeat(`,{"a":"aaaaaaaaaaa"}`, limit/bytesPerItem) + `],"ITEMS":[]}`, true},
		"protobuf":                     {runtime.ContentTypeProtobuf, "a", true},
		"YAML":                         {runtime.ContentTypeYAML, "a", true},
		"CBOR":                         {runtime.ContentTypeCBOR, "a", true},
		"what is of no type":           {"", "a", true}, // it would be decoded as what was asked for
		"a type that is cut off":       {inJSON + "; =", string(text), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := readAll(t, tc.encoding, limit, false, []byte(tc.sent)); errors.Is(err, errNoAnswer) != tc.dense {
				t.Fatalf("it ends with %v", err)
			}
			if told := `{"type":"ADDED","object":` + tc.sent + "}\n"; tc.encoding == inJSON && len(told) < longestEvent && !strings.Contains(name, "more") {
				if err := readAll(t, tc.encoding, limit, true, []byte(told)); errors.Is(err, errNoAnswer) != tc.dense {
					t.Errorf("as an event of a watch it ends with %v", err)
				}
			}
		})
	}
}

// An API server sends objects of Kubernetes in protobuf to clients that accept it.
func TestAnswersAreAskedForInJSON(t *testing.T) {
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for accepted, want := range map[string]string{
		"": "application/json",
		"application/vnd.kubernetes.protobuf, */*": "application/json",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + metadata + ",application/json": metadata + ",application/json",
	} {
		if got := inJSON(accepted); got != want {
			t.Errorf("of %q are accepted %q, want %q", accepted, got, want)
		}
	}
}

func TestAWatchHasNoMoreEventsAndNoneThatIsLonger(t *testing.T) {
	const limit = 10 * bytesPerItem
	for name, tc := range map[string]struct {
		events, length int
		want           string
	}{
		"a few events":     {9, 100, ""},
		"too many":         {11, 100, "unexpected EOF"},
		"one that is long": {1, longestEvent + 1, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat(`{"type":"ADDED","object":{"metadata":{"name":"`+strings.Repeat("n", tc.length)+`"}}}`+"\n", tc.events)
			err := readAll(t, runtime.ContentTypeJSON, limit, true, []byte(text))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A watch is a sequence of JSON values, however they are separated. (client-go uses json.Decoder)
func TestALineThatEndsWithinAnEventEndsNothing(t *testing.T) {
	lines := strings.Repeat(strings.Repeat("{},", 900)+"\n", 400)
	for name, tc := range map[string]struct {
		sent string
		want error
	}{
		"an event of many lines":          {`{"type":"ADDED","object":{"status":{"conditions":[` + lines + `{}]}}}`, errDense},
		"events without lines between":    {strings.Repeat(`{"type":"ADDED","object":{"metadata":{"name":"n","uid":"u"}}}`, 1000), nil},
		"more of these than there may be": {strings.Repeat(`{}`, 20*ofMiB/bytesPerItem), io.ErrUnexpectedEOF},
	} {
		if err := readAll(t, runtime.ContentTypeJSON, 16*ofMiB, true, []byte(tc.sent)); !errors.Is(err, tc.want) {
			t.Errorf("%s: it ends with %v", name, err)
		}
	}
}

// The administrators of a workload cluster may send anything. client-go must not decode more items and fields than were counted before.
func FuzzContents(f *testing.F) {
	const limit = 8 * bytesPerItem
	node, err := json.Marshal(plainNode())
	if err != nil {
		f.Fatal(err)
	}
	for _, items := range []string{
		"", "{}" + strings.Repeat(",{}", 9), string(node), `{"status":{"conditions":[{}` + strings.Repeat(`,{"type":"aaaaaa"}`, 200) + "]}}",
		`{}],"ITEMS":[{}`, `{}],"items":[{}`,
	} {
		f.Add([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[` + items + "]}"))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if readAll(t, runtime.ContentTypeJSON, limit, false, sent) != nil {
			return
		}
		var list corev1.NodeList
		if _, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(sent, nil, &list); err != nil {
			return
		}
		most, values := limit/bytesPerItem, 0
		for i := range list.Items {
			values += len(list.Items[i].Spec.Taints) + len(list.Items[i].Status.Conditions) + len(list.Items[i].Status.Images) + len(list.Items[i].Finalizers)
		}
		if len(list.Items) > most || values > leastFields+len(sent)/bytesPerField {
			t.Fatalf("there are %d nodes with %d values in %d bytes", len(list.Items), values, len(sent))
		}
	})
}
