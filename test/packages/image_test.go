package packages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// imageName is a name of the manager's image with its host. Names in registry.example.org are those of users' copies.
var imageName = regexp.MustCompile(`\b(?:[a-z0-9-]+\.)+[a-z]+(?::\d+)?/[a-z]+/kubemend\b`)

// An image that the release workflow does not push is one that no pod can pull.
func TestTheImageThatIsPushedIsTheOneThatIsNamed(t *testing.T) {
	const pushed = "ghcr.io/kubemend/kubemend"
	workflow, err := os.ReadFile(filepath.Join(root, ".github", "workflows", "release.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(workflow), "IMAGE: "+pushed+" ") {
		t.Errorf("the release workflow does not push %s", pushed)
	}
	named := 0
	for _, place := range []string{"Makefile", "README.md", "tilt-provider.json", "config", "charts", "docs", "templates"} {
		err := filepath.WalkDir(filepath.Join(root, place), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			for _, name := range imageName.FindAllString(string(content), -1) {
				switch {
				case name == pushed:
					named++
				case !strings.HasPrefix(name, "registry.example.org/") && !strings.Contains(name, "github"):
					t.Errorf("%s names %s", path, name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if named < 10 {
		t.Errorf("only %d places name the image", named)
	}
}
