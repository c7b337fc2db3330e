package test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A folder that the image or Tilt leaves out is missed only by builds there.
func TestTheBuildKnowsEveryFolder(t *testing.T) {
	want := append(topLevelSources(listPackages(t)), "go.mod", "go.sum")
	slices.Sort(want)
	inImage := append([]string{"LICENSE"}, want...)
	if diff := cmp.Diff(inImage, copiedByDockerfile(t)); diff != "" {
		t.Errorf("Dockerfile must copy just what holds our code, and its licence (-want +copied):\n%s", diff)
	}
	if diff := cmp.Diff(want, watchedByTilt(t)); diff != "" {
		t.Errorf("live_reload_deps in tilt-provider.json must list just what holds our code (-want +listed):\n%s", diff)
	}
}

// topLevelSources are the files of the main package and the top-level folders of all others but the tests, the command line and the models
// of kubemend's partners, which are no part of the manager.
func topLevelSources(pkgs []pkg) []string {
	var sources []string
	for _, p := range pkgs {
		top, _, _ := strings.Cut(p.folder(), "/")
		switch top {
		case "", "test", "cmd", "partners":
		case ".":
			sources = append(sources, p.GoFiles...)
		default:
			sources = append(sources, top)
		}
	}
	slices.Sort(sources)
	return slices.Compact(sources)
}

func copiedByDockerfile(t *testing.T) []string {
	t.Helper()
	var copied []string
	for line := range strings.Lines(content(t, "Dockerfile")) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--from=") {
			continue
		}
		for _, source := range words[1 : len(words)-1] {
			copied = append(copied, filepath.Clean(source))
		}
	}
	slices.Sort(copied)
	return copied
}

func watchedByTilt(t *testing.T) []string {
	t.Helper()
	var provider struct {
		Config struct {
			LiveReloadDeps []string `json:"live_reload_deps"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(content(t, "tilt-provider.json")), &provider); err != nil {
		t.Fatalf("read tilt-provider.json: %v", err)
	}
	slices.Sort(provider.Config.LiveReloadDeps)
	return provider.Config.LiveReloadDeps
}
