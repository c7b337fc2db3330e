package workload

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// plainNode is a node with nothing but what every kubelet reports.
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

// inEnvelope is an object in protobuf, as an API server sends it.
func inEnvelope(t testing.TB, kind string, raw []byte) []byte {
	t.Helper()
	sent, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}).Marshal()
	must.Do(t, err)
	return append([]byte("k8s\x00"), sent...)
}

// sub is a field of a message.
func sub(number byte, content string) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))) + content
}

// inFrames are events in protobuf, each of an object as an API server sends it.
func inFrames(objects ...[]byte) []byte {
	var sent []byte
	for _, o := range objects {
		content := sub(1, "ADDED") + sub(2, sub(1, string(o)))
		sent = append(binary.BigEndian.AppendUint32(sent, uint32(len(content))), content...)
	}
	return sent
}

// readAll reads an answer, or a watch, as client-go does, and returns how that ends.
func readAll(t testing.TB, contentType string, limit int64, watch bool, sent []byte) error {
	t.Helper()
	address := &url.URL{Path: "/api/v1/nodes"}
	if watch {
		address.RawQuery = "watch=true"
	}
	answer := &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, ContentLength: -1,
		Body: io.NopCloser(bytes.NewReader(sent)), Request: &http.Request{URL: address},
	}
	if err := (binding{limit: limit}).bind(answer); err != nil {
		return err
	}
	got, err := io.ReadAll(answer.Body)
	if err == nil && !watch && !bytes.Equal(got, sent) {
		t.Error("the answer was changed")
	}
	return err
}

const ofMiB = 1 << 20

func TestAnAnswerHasNoMoreInItThanOneOfItsLength(t *testing.T) {
	const inProtobuf, inJSON, limit = runtime.ContentTypeProtobuf, runtime.ContentTypeJSON, 16 << 20
	node := plainNode()
	raw, err := node.Marshal()
	must.Do(t, err)
	text, err := json.Marshal(node)
	must.Do(t, err)
	list := func(items string) []byte {
		return []byte(`{"kind":"NodeList","apiVersion":"v1","items":[` + items + `]}`)
	}
	conditions := strings.Repeat("\x22\x00", ofMiB/2)
	for name, tc := range map[string]struct {
		encoding string
		sent     []byte
		dense    bool
	}{
		"a node in protobuf":                 {inProtobuf, inEnvelope(t, "Node", raw), false},
		"a node in JSON":                     {inJSON, text, false},
		"1000 nodes in protobuf":             {inProtobuf, inEnvelope(t, "NodeList", []byte(strings.Repeat(sub(2, string(raw)), 1000))), false},
		"1000 nodes in JSON":                 {inJSON, list(strings.Repeat(string(text)+",", 999) + string(text)), false},
		"a page of 250 pods":                 {inProtobuf, inEnvelope(t, "PodList", []byte(strings.Repeat(sub(2, sub(1, strings.Repeat(sub(1, strings.Repeat("n", 40)), 60))), 250))), false},
		"a probe":                            {inJSON, []byte(`{"paths":["/api","/apis"]}`), false},
		"an error in protobuf":               {inProtobuf, inEnvelope(t, "Status", []byte(sub(1, "")+sub(2, "Failure")+sub(3, `nodes "n" not found`)+sub(4, "NotFound"))), false},
		"nodes of two bytes":                 {inProtobuf, inEnvelope(t, "NodeList", []byte(strings.Repeat("\x12\x00", ofMiB/2))), true},
		"without a kind":                     {inProtobuf, inEnvelope(t, "", []byte(strings.Repeat("\x12\x00", ofMiB/2))), true},
		"of a kind that is not asked for":    {inProtobuf, inEnvelope(t, "Deployment", []byte(sub(2, sub(6, sub(2, strings.Repeat("\x12\x00", ofMiB/2)))))), true},
		"with the kind behind":               {inProtobuf, []byte("k8s\x00" + sub(2, strings.Repeat("\x12\x00", ofMiB/2)) + sub(1, sub(2, "NodeList"))), true},
		"with another kind behind":           {inProtobuf, []byte("k8s\x00" + sub(1, sub(2, "Node")) + sub(1, sub(2, "NodeList")) + sub(2, conditions)), true},
		"conditions of two bytes, in a list": {inProtobuf, inEnvelope(t, "NodeList", []byte(sub(2, sub(3, conditions)))), true},
		"conditions of two bytes":            {inProtobuf, inEnvelope(t, "Node", []byte(sub(3, conditions))), true},
		"behind a group":                     {inProtobuf, inEnvelope(t, "Node", []byte(sub(3, "\x7b\x7c"+conditions))), true},
		"behind a number":                    {inProtobuf, inEnvelope(t, "Node", []byte(sub(3, "\x78\xff\x01"+"\x79"+"12345678"+"\x7d"+"1234"+conditions))), true},
		"containers of two bytes":            {inProtobuf, inEnvelope(t, "PodList", []byte(sub(2, sub(2, strings.Repeat("\x12\x00", ofMiB/2))))), true},
		"empty nodes in JSON":                {inJSON, list("{}" + strings.Repeat(",{}", ofMiB/3)), true},
		"nothings in JSON":                   {inJSON, list("0" + strings.Repeat(",0", ofMiB/2)), true},
		"conditions in JSON":                 {inJSON, list(`{"status":{"conditions":[{}` + strings.Repeat(",{}", ofMiB/3) + "]}}"), true},
		"YAML":                               {runtime.ContentTypeYAML, []byte("a"), true},
		"CBOR":                               {runtime.ContentTypeCBOR, []byte("a"), true},
		"what is of no type":                 {"", []byte("a"), true}, // it would be decoded as what was asked for
		"a type that is cut off":             {inProtobuf + "; =", inEnvelope(t, "Node", raw), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := readAll(t, tc.encoding, limit, false, tc.sent); errors.Is(err, errNoAnswer) != tc.dense {
				t.Fatalf("it ends with %v", err)
			}
			if tc.encoding != inJSON && tc.encoding != inProtobuf || tc.encoding == inProtobuf && tc.sent[4] != 0x0a {
				return
			}
			told, kind := inFrames(tc.sent), tc.encoding+";stream=watch"
			if tc.encoding == inJSON {
				told, kind = []byte(`{"type":"ADDED","object":`+string(tc.sent)+"}\n"), tc.encoding
			}
			if len(told) < longestEvent {
				if err := readAll(t, kind, limit, true, told); errors.Is(err, errNoAnswer) != tc.dense {
					t.Errorf("as an event of a watch it ends with %v", err)
				}
			}
		})
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
			object := inEnvelope(t, "Node", []byte(sub(1, sub(1, strings.Repeat("n", tc.length)))))
			var objects [][]byte
			for range tc.events {
				objects = append(objects, object)
			}
			text := strings.Repeat(`{"type":"ADDED","object":{"metadata":{"name":"`+strings.Repeat("n", tc.length)+`"}}}`+"\n", tc.events)
			for encoding, sent := range map[string][]byte{runtime.ContentTypeProtobuf: inFrames(objects...), runtime.ContentTypeJSON: []byte(text)} {
				err := readAll(t, encoding, limit, true, sent)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: it ends with %v", encoding, err)
				}
			}
		})
	}
}

// A watch in JSON is one value after the other, however they are separated. (client-go goes by json.Decoder.)
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

// What is counted was written by the administrators of a workload cluster, and is counted before anything else reads it. client-go must not
// find more in it than was counted.
func FuzzContents(f *testing.F) {
	const limit = 8 * bytesPerItem
	node, err := plainNode().Marshal()
	must.Do(f, err)
	for _, raw := range []string{
		"", strings.Repeat("\x12\x00", 9), strings.Repeat(sub(2, string(node)), 3), sub(2, sub(3, strings.Repeat("\x22\x00", 2000))), "\x13\x14\x12\x00", "\x12\x80",
	} {
		sent := inEnvelope(f, "NodeList", []byte(raw))
		f.Add(sent)
	}
	f.Add([]byte("k8s\x00" + sub(2, "\x12\x00") + sub(1, sub(2, "NodeList"))))
	f.Add([]byte("k8s\x00" + sub(1, "\xff\xff") + sub(2, "\x12\x00")))
	f.Add(inEnvelope(f, "NodeList", []byte(sub(2, "\x1a\x7f"))))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if readAll(t, runtime.ContentTypeProtobuf, limit, false, sent) != nil {
			return
		}
		var envelope runtime.Unknown
		var list corev1.NodeList
		if envelope.Unmarshal(sent[len(protobufMagic):]) != nil || envelope.Kind != "NodeList" || list.Unmarshal(envelope.Raw) != nil {
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
