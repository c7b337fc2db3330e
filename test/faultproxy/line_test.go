package faultproxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestALineIsCutAndMended(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	line, err := NewLine(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer line.Cut()
	address := string(line.Through([]byte(server.URL)))
	if address == server.URL || !strings.HasPrefix(address, "https://127.0.0.1:") {
		t.Fatalf("the line is at %s", address)
	}
	for i, cut := range []bool{false, true, false} {
		switch i {
		case 1:
			line.Cut()
		case 2:
			if err := line.Mend(); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := server.Client().Get(address)
		if (err != nil) != cut {
			t.Errorf("cut: %t, and the API server answers %v", cut, err)
		}
		if err == nil {
			_ = answer.Body.Close()
		}
	}
}
