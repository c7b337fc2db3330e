package snapshot

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

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
			if _, err := r.nodes(t.Context(), key("c1")); err == nil || !strings.Contains(err.Error(), row.says) {
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
