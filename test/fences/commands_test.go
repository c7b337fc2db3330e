package fences

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/command"
)

var root = filepath.Join("..", "..")

// Everything in a command must exist: commands, flags and arguments of kubectl mend, targets of make, files, folders, charts.
func TestTheCommandsInThePagesExist(t *testing.T) {
	made, commands := releaseFiles(t), 0
	for _, page := range everyPage(t) {
		written := []string{"-", os.DevNull}
		for _, b := range blocks(t, page, "sh") {
			files, err := b.Written()
			if err != nil {
				t.Error(err)
				continue
			}
			written = append(written, files...)
			all, err := b.Commands()
			if err != nil {
				t.Error(err)
			}
			for _, c := range all {
				commands++
				must.Is(t, "", wrong(t, c, written, made), "%s:%d: %s:", page, c.Line, strings.Join(c.Words, " "))
			}
		}
	}
	if commands < 100 {
		t.Errorf("only %d commands were found", commands)
	}
}

// releases is the URL of the project's releases.
const releases = "https://github.com/kubemend/kubemend/releases/download/"

// wrong returns what a command refers to that does not exist, or "". written are files that the page writes, made those of a release.
func wrong(t *testing.T, c Command, written, made []string) string {
	t.Helper()
	program, args := c.Words[0], c.Words[1:]
	switch program {
	case "kubectl", "kubectl-mend":
		if program == "kubectl-mend" || slices.Contains(args, "mend") && !slices.Contains(args, "krew") {
			args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "mend" })
			return misused(args)
		}
		if slices.Contains(args, "logs") {
			return "" // for logs, -f means --follow
		}
		return missing(slices.Concat(values(args, "-f", "--filename"), values(args, "-k", "--kustomize")), written, made)
	case "make":
		return noTarget(t, args)
	case "helm":
		return missing(charts(args), written, made)
	case "clusterctl":
		return missing(values(args, "--from"), written, made)
	case "go":
		return missing(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return !strings.HasPrefix(a, "./") }), written, made)
	}
	return ""
}

// misused returns the error with which kubectl mend would refuse its arguments. It does not run the command.
func misused(args []string) string {
	tree := command.New(genericiooptions.NewTestIOStreamsDiscard(), "kubectl mend", "test")
	tree.InitDefaultHelpCmd()
	tree.InitDefaultCompletionCmd()
	found, rest, err := tree.Find(args)
	if err != nil {
		return err.Error()
	}
	found.InitDefaultHelpFlag()
	found.InitDefaultVersionFlag()
	if err := found.ParseFlags(rest); err != nil {
		return err.Error()
	}
	given := found.Flags().Args()
	if found == tree && len(given) > 0 {
		return fmt.Sprintf("no command %q", given[0])
	}
	if err := found.ValidateArgs(given); err != nil {
		return found.Name() + ": " + err.Error()
	}
	for _, check := range []func(*cobra.Command) error{(*cobra.Command).ValidateRequiredFlags, (*cobra.Command).ValidateFlagGroups} {
		if err := check(found); err != nil {
			return found.Name() + ": " + err.Error()
		}
	}
	return ""
}

// values returns the values of flags, in the forms -f x, --filename x and --filename=x.
func values(args []string, flags ...string) []string {
	var all []string
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(flags, name):
		case joined:
			all = append(all, value)
		case i+1 < len(args):
			all = append(all, args[i+1])
		}
	}
	return all
}

// charts returns the chart that a helm command installs: the second argument of the command.
func charts(args []string) []string {
	if len(args) > 2 && (args[0] == "install" || args[0] == "upgrade") {
		return args[2:3]
	}
	return nil
}

// missing returns an error for the first file or folder that is neither in the project, nor written by the page, nor in a release.
func missing(files, written, made []string) string {
	for _, file := range files {
		inRelease, released := strings.CutPrefix(file, releases)
		if !released && strings.Contains(file, "://") || slices.Contains(written, file) || strings.Contains(file, Unknown) {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, file)); err == nil && !released {
			continue
		}
		name := filepath.Base(inRelease)
		if !slices.ContainsFunc(made, func(m string) bool { matched, _ := filepath.Match(m, name); return matched }) {
			return fmt.Sprintf("there is no %s, here or in a release", file)
		}
	}
	return ""
}

func noTarget(t *testing.T, args []string) string {
	t.Helper()
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") || strings.Contains(arg, "=") {
			continue
		}
		for _, file := range []string{"Makefile", "test/rig/rig.mk"} {
			if regexp.MustCompile(`(?m)^([a-z.][a-z/. -]* )?` + regexp.QuoteMeta(arg) + `( [a-z -]*)?:`).MatchString(content(t, file)) {
				return ""
			}
		}
		return "there is no target " + arg
	}
	return ""
}

// releaseFiles returns patterns for the names of the files that the Makefile puts into a release.
func releaseFiles(t *testing.T) []string {
	t.Helper()
	made := []string{"mend.yaml", "SHA256SUMS", "metadata.yaml", "kubemend-[0-9]*.tgz", "kubectl-mend_v*"}
	for _, name := range regexp.MustCompile(`(?m)^\t\$\(call release-build,[^,]+,([^)]+)\)$`).
		FindAllStringSubmatch(content(t, "Makefile"), -1) {
		made = append(made, name[1])
	}
	templates, err := fs.Glob(os.DirFS(filepath.Join(root, "templates")), "*.yaml")
	if err != nil || len(templates) < 10 || len(made) < 10 {
		t.Fatalf("templates %q, files of a release %q: %v", templates, made, err)
	}
	return append(made, templates...)
}

func everyPage(t *testing.T) []string {
	t.Helper()
	pages, err := Pages(root)
	if err != nil || len(pages) < 50 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	return pages
}

func blocks(t *testing.T, page, language string) []Block {
	t.Helper()
	all, err := Read(root, page)
	must.Do(t, err)
	return slices.DeleteFunc(all, func(b Block) bool { return b.Language != language })
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must.Do(t, err)
	return string(text)
}
