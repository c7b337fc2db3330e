package test

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Who owns an action can move its tags. What it may do is what the job says, and nothing by default.
func TestWorkflowsRunPinnedActionsWithMinimalRights(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	targets := content(t, "Makefile")
	for _, file := range files {
		report(t, loose(filepath.Base(file), content(t, ".github/workflows/"+filepath.Base(file)), targets))
	}
}

// Without this, a check that sees nothing would find nothing wrong.
func TestTheWorkflowCheckFindsUnpinnedActions(t *testing.T) {
	workflow := "permissions: {}\nsteps:\n- uses: a/b@v1\n- uses: a/c@0123456789012345678901234567890123456789 # v1\n- run: make there\n- run: make gone\n"
	got := loose("x", workflow, "there: ## It\n")
	if len(got) != 2 || !strings.Contains(got[0], "a/b@v1") || !strings.Contains(got[1], "make gone") {
		t.Errorf("found %q", got)
	}
	if got := loose("x", "permissions: write-all\n", ""); len(got) != 1 {
		t.Errorf("found %q", got)
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

// A module without a maintainer keeps the versions of its dependencies for ever, and one without a toolchain is built by whichever is installed.
func TestEveryModuleIsUpdatedAndBuiltByTheSameToolchain(t *testing.T) {
	var bot struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal([]byte(content(t, ".github/dependabot.yml")), &bot); err != nil {
		t.Fatal(err)
	}
	var patterns, others []string
	for _, update := range bot.Updates {
		if update.Ecosystem == "gomod" {
			patterns = append(patterns, update.Directories...)
		} else {
			others = append(others, update.Ecosystem+" "+update.Directory)
		}
	}
	if want := []string{"github-actions /", "docker /"}; !slices.Equal(others, want) {
		t.Errorf("what is looked after besides is %q, want %q", others, want)
	}
	toolchains := map[string][]string{}
	for _, folder := range modules(t) {
		if !slices.ContainsFunc(patterns, func(pattern string) bool { matches, _ := path.Match(pattern, "/"+folder); return matches }) {
			t.Errorf("dependabot does not know module /%s", folder)
		}
		line := regexp.MustCompile(`(?m)^toolchain .*$`).FindString(content(t, path.Join(folder, "go.mod")))
		toolchains[line] = append(toolchains[line], folder)
	}
	if len(toolchains) != 1 || toolchains[""] != nil {
		t.Errorf("the modules have these toolchains: %q", toolchains)
	}
}

// modules are the folders with a go.mod.
func modules(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, at)
		if entry.IsDir() && folder != "." && strings.HasPrefix(entry.Name(), ".") || folder == "out" || folder == "bin" {
			return filepath.SkipDir
		}
		if entry.Name() == "go.mod" {
			if folder = filepath.Dir(folder); folder == "." {
				folder = ""
			}
			found = append(found, folder)
		}
		return err
	})
	if err != nil || len(found) < 2 {
		t.Fatalf("modules %q: %v", found, err)
	}
	return found
}

func TestOwnersOwnWhatIsThere(t *testing.T) {
	for line := range strings.Lines(content(t, ".github/CODEOWNERS")) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" || fields[0] == "*" {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(root, fields[0])); err != nil || len(found) == 0 {
			t.Errorf("%s has owners, and is not there: %v", fields[0], err)
		}
	}
}

func TestTheSecurityPolicyNamesExistingPages(t *testing.T) {
	says := content(t, "security-insights.yml")
	var whole map[string]any
	if err := yaml.UnmarshalStrict([]byte(says), &whole); err != nil || whole["header"] == nil || whole["project"] == nil || whole["repository"] == nil {
		t.Fatalf("it has header, project and repository: %v", err)
	}
	pages := regexp.MustCompile(`https://github\.com/kubemend/kubemend/blob/main/(\S+)`).FindAllStringSubmatch(says, -1)
	if len(pages) == 0 {
		t.Error("it names no pages")
	}
	for _, page := range pages {
		content(t, page[1])
	}
	if !strings.Contains(content(t, "SECURITY.md"), "/security/advisories/new") {
		t.Error("SECURITY.md has no private address")
	}
}
