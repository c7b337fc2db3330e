package test

import (
	"strings"
	"testing"
)

// A folder that the image or Tilt leaves out is missed only by builds there. Tests and the command line are no part of the manager.
func TestTheBuildKnowsEveryFolder(t *testing.T) {
	sources := map[string]bool{"go.mod": true, "go.sum": true}
	for _, p := range listPackages(t) {
		switch top, _, _ := strings.Cut(p.folder(), "/"); top {
		case "", "test", "cmd":
		case ".":
			for _, file := range p.GoFiles {
				sources[file] = true
			}
		default:
			sources[top] = true
		}
	}
	var copied []string
	for line := range strings.Lines(content(t, "Dockerfile")) {
		if strings.HasPrefix(line, "COPY ") && !strings.HasPrefix(line, "COPY --from=") {
			copied = append(copied, strings.Fields(strings.ReplaceAll(line, "/ ", " "))...)
		}
	}
	inImage, watched := " "+strings.Join(copied, " ")+" ", content(t, "tilt-provider.json")
	for source := range sources {
		if !strings.Contains(inImage, " "+source+" ") {
			t.Errorf("the Dockerfile does not copy %s", source)
		}
		if !strings.Contains(watched, `"`+source+`"`) {
			t.Errorf("live_reload_deps in tilt-provider.json does not list %s", source)
		}
	}
}
