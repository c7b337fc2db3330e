package test

import (
	"regexp"
	"strings"
	"testing"
)

// alike are the modules that share compiled packages with the project. A package is compiled once for each set of versions below it: one
// version that differs, of a module far below, makes Kubernetes compile again.
var alike = []string{"test/rig/kube", "test/rig/capi", "test/gitops", "hack/release"}

func TestModulesUseTheSameVersionsOfSharedDependencies(t *testing.T) {
	ours := versionsIn(content(t, "go.mod"))
	for _, folder := range alike {
		shared := 0
		for path, version := range versionsIn(content(t, folder+"/go.mod")) {
			own, both := ours[path]
			if both {
				shared++
			}
			if both && own != version {
				t.Errorf("%s needs %s %s, the project %s: raise the older one, with go -C %s get PATH@VERSION "+
					"or go get PATH@VERSION, and run make tidy", folder, path, version, own, folder)
			}
		}
		if shared < 20 {
			t.Errorf("%s shares only %d dependencies with the project", folder, shared)
		}
	}
}

var (
	required = regexp.MustCompile(`^(?:require )?\s*([a-z][\w./~-]*\.[\w./~-]+) (v\S+)`)
	replaced = regexp.MustCompile(`^(?:replace )?\s*(\S+)(?: v\S+)? => \S+ (v\S+)`)
)

// versionsIn are the versions that a go.mod builds with, by module.
func versionsIn(text string) map[string]string {
	versions := map[string]string{}
	for _, kind := range []*regexp.Regexp{required, replaced} {
		for line := range strings.Lines(text) {
			if found := kind.FindStringSubmatch(line); len(found) == 3 && (kind == required || versions[found[1]] != "") {
				versions[found[1]] = found[2]
			}
		}
	}
	return versions
}
