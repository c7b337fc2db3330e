package test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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

// Who owns an action can move its tags. What it may do is what the job says, and nothing by default.
func TestWorkflowsRunPinnedActionsWithMinimalRights(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(root, ".github", "workflows"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	for _, file := range files {
		report(t, loose(file.Name(), content(t, ".github/workflows/"+file.Name()), content(t, "Makefile")))
	}
}

var (
	used   = regexp.MustCompile(`(?m)^\s*-? *uses: (.*)$`)
	pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d`)
	made   = regexp.MustCompile(`(?m)run: make ([a-z-]+)`)
)

// loose is what is wrong with a workflow.
func loose(name, workflow, makefile string) []string {
	var found []string
	if !strings.Contains(workflow, "\npermissions: {}\n") && !strings.HasPrefix(workflow, "permissions: {}\n") {
		found = append(found, name+": jobs have rights that they do not name")
	}
	for _, action := range used.FindAllStringSubmatch(workflow, -1) {
		if !pinned.MatchString(action[1]) {
			found = append(found, fmt.Sprintf("%s: %s is not named by its commit, with the version behind it", name, action[1]))
		}
	}
	for _, target := range made.FindAllStringSubmatch(workflow, -1) {
		if !regexp.MustCompile(`(?m)^` + target[1] + `:`).MatchString(makefile) {
			found = append(found, fmt.Sprintf("%s: there is no make %s", name, target[1]))
		}
	}
	return found
}

// A module without a maintainer keeps the versions of its dependencies for ever, and one without a toolchain is built by whichever is
// installed.
func TestEveryModuleIsUpdatedAndBuiltByTheSameToolchain(t *testing.T) {
	var bot struct {
		Updates []struct{ Directories []string }
	}
	if err := yaml.Unmarshal([]byte(content(t, ".github/dependabot.yml")), &bot); err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, update := range bot.Updates {
		folders = append(folders, update.Directories...)
	}
	toolchains := map[string][]string{}
	walk(t, func(file string) {
		folder, ok := strings.CutSuffix("/"+file, "/go.mod")
		if !ok {
			return
		}
		known := slices.ContainsFunc(folders, func(pattern string) bool {
			matches, _ := path.Match(pattern, "/"+strings.TrimPrefix(folder, "/"))
			return matches
		})
		if !known {
			t.Errorf("dependabot does not know module %s", file)
		}
		line := regexp.MustCompile(`(?m)^toolchain .*$`).FindString(content(t, file))
		toolchains[line] = append(toolchains[line], file)
	})
	if len(toolchains) != 1 || toolchains[""] != nil {
		t.Errorf("the modules have these toolchains: %q", toolchains)
	}
}

// A manager on somebody's own machine is nothing that other machines should reach.
func TestMakeRunListensOnLoopbackAlone(t *testing.T) {
	local := regexp.MustCompile(`(?m)^LOCAL = (.*)$`).FindStringSubmatch(content(t, "Makefile"))
	want := "--health-addr=127.0.0.1:9440 --diagnostics-address=127.0.0.1:8443 --webhook-host=127.0.0.1"
	if len(local) < 2 || local[1] != want || !strings.Contains(content(t, "Makefile"), "exec bin/manager $(LOCAL) ") {
		t.Errorf("make run has %q, want %q", local, want)
	}
}

// A fault that is tried by hand finds nothing any more once its text is gone from the code.
func TestTheFaultsThatMutateTriesAreOfTheCode(t *testing.T) {
	for _, fault := range strings.Split(content(t, "hack/mutate/faults.txt"), "\n= ")[1:] {
		title, rest, _ := strings.Cut(fault, "\n")
		file, rest, _ := strings.Cut(rest, "\n-")
		old, _, found := strings.Cut(rest, "\n+")
		code, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !found || strings.Count(string(code), old) != 1 {
			t.Errorf("hack/mutate/faults.txt: %s: its text is not in %s once (%v): write it anew", title, file, err)
		}
	}
}
