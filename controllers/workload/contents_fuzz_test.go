package workload

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What is counted was written by the administrators of a workload cluster, and is counted before anything else reads it. It must not matter how it comes, and
// client-go must not find more in it than was counted.
func FuzzContents(f *testing.F) {
	const limit = 8 * bytesPerItem
	node, err := plainNode().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	for _, raw := range []string{
		"", strings.Repeat("\x12\x00", 9), strings.Repeat(sub(2, string(node)), 3), sub(2, sub(3, strings.Repeat("\x22\x00", 2000))), "\x13\x14\x12\x00", "\x12\x80",
	} {
		sent := inEnvelope(f, "NodeList", []byte(raw))
		f.Add(sent, true, false, uint8(3))
		f.Add(inFrames(sent, sent), true, true, uint8(3))
	}
	f.Add([]byte("k8s\x00"+sub(2, "\x12\x00")+sub(1, sub(2, "NodeList"))), true, false, uint8(1))
	f.Add([]byte(`{"items":[{},{"a":["]}\"",1]}]}`), false, false, uint8(1))
	f.Add([]byte(`{"type":"ADDED","object":{}}`+"\n{}{}"), false, true, uint8(1))
	f.Fuzz(func(t *testing.T, sent []byte, inProtobuf, watch bool, chunk uint8) {
		encoding := runtime.ContentTypeJSON
		if inProtobuf {
			encoding = runtime.ContentTypeProtobuf
		}
		whole := readOf(t, encoding, limit, watch, sent, max(1, len(sent)))
		if some := readOf(t, encoding, limit, watch, sent, max(1, int(chunk))); errors.Is(some, errNoAnswer) != errors.Is(whole, errNoAnswer) {
			t.Fatalf("it ends with %v at once, and with %v in pieces of %d", whole, some, chunk)
		}
		if whole != nil || watch || !inProtobuf || len(sent) < magic {
			return
		}
		var envelope runtime.Unknown
		var list corev1.NodeList
		if envelope.Unmarshal(sent[magic:]) != nil || envelope.Kind != "NodeList" || list.Unmarshal(envelope.Raw) != nil {
			return
		}
		most, values := limit/bytesPerItem, 0
		if len(sent) <= longestOther && most < len(list.Items) && bytes.Index(sent, []byte("NodeList")) > len(sent)/2 {
			return // the kind stands behind the list, which is as short as an answer may be whose kind is unknown
		}
		for i := range list.Items {
			values += len(list.Items[i].Spec.Taints) + len(list.Items[i].Status.Conditions) + len(list.Items[i].Status.Images) + len(list.Items[i].Finalizers)
		}
		if len(list.Items) > most || values > valuesAtLeast+len(sent)/bytesPerValue {
			t.Fatalf("there are %d nodes with %d values in %d bytes", len(list.Items), values, len(sent))
		}
	})
}
