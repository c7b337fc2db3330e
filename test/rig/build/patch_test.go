package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestThePatchOfTheRigIsForTheVersionThatItPins(t *testing.T) {
	folder := filepath.Join("..", "..", "..", inMemory.folder)
	found, err := download(t.Context(), folder, loopback.dependency)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(found, loopback.file))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := loopback.apply(string(content))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(changed, "net.Listen(") != strings.Count(changed, loopback.new) {
		t.Errorf("%s of %s listens elsewhere than where the patch looks", loopback.file, loopback.dependency)
	}
}
