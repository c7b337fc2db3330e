package snapshot

import (
	"bytes"
	"testing"
)

// A file may come from anybody. One that can be loaded is, saved again, a file that can be loaded, with the same content; and no Secret or ConfigMap
// that somebody put into it goes on.
func FuzzLoad(f *testing.F) {
	const begin = `{"apiVersion":"kubemend.io/v1alpha1","kind":"Snapshot","taken":"2026-01-01T12:00:00Z"`
	for _, rest := range []string{
		`}`, `,"missing":["x"]}`, `,"kinds":[{"group":"","kind":"Secret","plural":"secrets","versions":["v1"],"namespaced":true,"read":[""],` +
			`"whole":[{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"ns","name":"s"},"data":{"a":"c2VjcmV0"}}]}]}`,
		`,"kinds":[{"group":"cluster.x-k8s.io","kind":"Cluster","plural":"clusters","versions":["v1beta2"],"namespaced":true,"read":[""],` +
			`"whole":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"Cluster","metadata":{"namespace":"ns","name":"c"}}]}]}`,
		`,"kinds":[{"group":"example.org","kind":"Thing","plural":"things","versions":["v1"],"namespaced":true,"unread":[{"namespace":"ns","why":"no"}]}]}`,
		`,"workloads":[{"namespace":"ns","name":"c","nodes":[{"metadata":{"name":"n"}}]},{"namespace":"ns","name":"d","unseen":"lost"}]}`,
		`,"kinds":[{}]}`, `,"kinds":[{"kind":"A","versions":[""]}],"workloads":[{}]}`,
	} {
		f.Add([]byte(begin + rest))
	}
	f.Add([]byte("kind: Snapshot\napiVersion: kubemend.io/v1alpha1\n"))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, file []byte) {
		w, err := Load(bytes.NewReader(file))
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		if err := w.Save(&once); err != nil {
			t.Fatalf("what was loaded cannot be saved: %v", err)
		}
		first := unpacked(t, once.Bytes())
		if bytes.Contains(first, []byte(`"kind": "Secret"`)) {
			t.Errorf("a Secret goes on:\n%s", first)
		}
		again, err := Load(bytes.NewReader(once.Bytes()))
		if err != nil {
			t.Fatalf("what was saved cannot be loaded: %v\n%s", err, first)
		}
		if err := again.Save(&twice); err != nil {
			t.Fatal(err)
		}
		if second := unpacked(t, twice.Bytes()); !bytes.Equal(first, second) {
			t.Errorf("saved again, it differs: first\n%s\nsecond\n%s", first, second)
		}
	})
}
