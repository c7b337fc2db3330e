package snapshot

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

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
