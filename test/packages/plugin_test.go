package packages

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/test/golden"
)

// packed is a file of an archive.
type packed struct {
	Name       string
	Executable bool
}

// unpacked returns the files of an archive and their content. It checks that no file has an owner and that all have the given time.
func unpacked(t *testing.T, archive string, created time.Time) ([]packed, map[string][]byte) {
	t.Helper()
	raw := readAt(t, archive)
	var all []packed
	content := map[string][]byte{}
	add := func(name string, mode fs.FileMode, modified time.Time, r io.Reader) {
		all = append(all, packed{name, mode == 0o755})
		var err error
		if content[name], err = io.ReadAll(r); err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		if mode != 0o755 && mode != 0o644 || !modified.Equal(created) {
			t.Errorf("%s is of mode %o and of %s", name, mode, modified)
		}
	}
	if strings.HasSuffix(archive, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
		must.Do(t, err)
		for _, f := range r.File {
			file, err := f.Open()
			must.Do(t, err)
			add(f.Name, f.Mode(), f.Modified, file)
		}
		return all, content
	}
	plain, err := gzip.NewReader(bytes.NewReader(raw))
	must.Do(t, err)
	if plain.Name != "" || !plain.ModTime.IsZero() {
		t.Errorf("the archive says that it is %q of %s", plain.Name, plain.ModTime)
	}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, content
		}
		must.Do(t, err)
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.Gname != "" {
			t.Errorf("%s belongs to %d %s, %d %s", header.Name, header.Uid, header.Uname, header.Gid, header.Gname)
		}
		add(header.Name, header.FileInfo().Mode(), header.ModTime, r)
	}
}

// The program of this machine's platform is enough: a release builds all platforms with the same commands.
func TestThePluginsArchiveIsComplete(t *testing.T) {
	folder := t.TempDir()
	program, err := filepath.Abs(filepath.Join(root, "bin", "kubectl-mend"))
	must.Do(t, err)
	want, err := os.ReadFile(program)
	if err != nil {
		t.Fatalf("%v: run make build", err)
	}
	archive := filepath.Join(folder, "kubectl-mend_v1.2.3_linux_amd64.tar.gz")
	run(t, "inventory", "-name=kubectl-mend", "-version=v1.2.3", "-out="+folder, program)
	run(t, "archive", "-created=1767265200", "-out="+archive, "kubectl-mend="+program, "LICENSE=LICENSE",
		"kubectl_complete-mend=cmd/kubectl-mend/kubectl_complete-mend",
		"THIRD-PARTY-LICENSES.txt="+filepath.Join(folder, "THIRD-PARTY-LICENSES.txt"))
	all, content := unpacked(t, archive, time.Unix(1767265200, 0))
	if diff := cmp.Diff([]packed{
		{"LICENSE", false}, {"THIRD-PARTY-LICENSES.txt", false}, {"kubectl-mend", true}, {"kubectl_complete-mend", true},
	}, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !bytes.Equal(content["kubectl-mend"], want) || !bytes.Equal(content["LICENSE"], read(t, "LICENSE")) {
		t.Error("what is in the archive is not what was packed")
	}
	for _, needed := range []string{"kubectl-mend contains parts of", "k8s.io/cli-runtime v", "github.com/spf13/cobra v"} {
		if !strings.Contains(string(content["THIRD-PARTY-LICENSES.txt"]), needed) {
			t.Errorf("the licences do not say %q", needed)
		}
	}
}

// kubectl runs the script with what the user has typed, and offers the lines that it prints.
func TestKubectlCompletesCommands(t *testing.T) {
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	must.Do(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "cmd", "kubectl-mend", "kubectl_complete-mend"), "expl")
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "explain\t") || !strings.HasSuffix(string(out), "\n:4\n") {
		t.Errorf("it answers %q, %v", out, err)
	}
}

// tiny writes small archives, one for each platform, and returns their paths.
func tiny(t *testing.T, mode fs.FileMode) (archives []string) {
	t.Helper()
	folder := t.TempDir()
	for _, platform := range []string{"windows_amd64.zip", "linux_arm64.tar.gz", "linux_amd64.tar.gz", "darwin_arm64.tar.gz",
		"darwin_amd64.tar.gz"} {
		program := filepath.Join(folder, platform+".program")
		must.Do(t, errors.Join(os.WriteFile(program, []byte("for "+platform), mode), os.Chmod(program, mode)))
		archive := filepath.Join(folder, "kubectl-mend_v1.2.3_"+platform)
		name := "kubectl-mend"
		if strings.HasPrefix(platform, "windows") {
			name += ".exe"
		}
		run(t, "archive", "-created=1767265200", "-out="+archive, name+"="+program, "LICENSE=LICENSE")
		archives = append(archives, archive)
	}
	return archives
}

// The umask and file times of the build machine must not matter.
func TestTheSameProgramsMakeTheSameArchives(t *testing.T) {
	one, other := tiny(t, 0o755), tiny(t, 0o711)
	for i := range one {
		a, b := sum(t, one[i]), sum(t, other[i])
		if a != b {
			t.Errorf("%s is once %s and once %s", filepath.Base(one[i]), a, b)
		}
		all, _ := unpacked(t, one[i], time.Unix(1767265200, 0))
		if len(all) != 2 || all[0].Executable || !all[1].Executable {
			t.Errorf("%s has in it %+v", filepath.Base(one[i]), all)
		}
	}
}

func sum(t *testing.T, file string) string {
	t.Helper()
	return fmt.Sprintf("%x", sha256.Sum256(readAt(t, file)))
}

func krewOf(t *testing.T, version string, archives []string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "mend.yaml")
	run(t, "krew", append([]string{"-version=" + version, "-url=https://example.org/releases/" + version, "-out=" + out}, archives...)...)
	return string(readAt(t, out))
}

// These are the rules of krew (internal/index/validation and developer guide) and of the reviewers of its index: a short description of
// less than 50 characters, lines of at most 80, and one archive with its checksum for each platform, all of whose files are installed.
func TestKrewTakesTheManifest(t *testing.T) {
	archives := tiny(t, 0o755)
	text := krewOf(t, "v1.2.3", archives)
	for _, archive := range archives {
		is := sum(t, archive)
		if !strings.Contains(text, is) {
			t.Errorf("the manifest has not the sum of %s", archive)
		}
		text = strings.ReplaceAll(text, is, "SHA256 of "+filepath.Base(archive))
	}
	golden.Compare(t, "testdata/mend.yaml", text)
}

// krew accepts only semantic versions with a leading v.
func TestAManifestOfACommitHasAVersionBelowAllReleases(t *testing.T) {
	archives := tiny(t, 0o755)[:1]
	for version, want := range map[string]string{"v0.1.0-rc.1": "v0.1.0-rc.1", "eb32a14-dirty": "v0.0.0-dev-eb32a14-dirty",
		"v1": "v0.0.0-dev-v1", "1.2.3": "v0.0.0-dev-1.2.3"} {
		if text := krewOf(t, version, archives); !strings.Contains(text, "\n  version: "+want+"\n") ||
			!strings.Contains(text, "/releases/"+version+"/") {
			t.Errorf("%s: want version %s in\n%s", version, want, text)
		}
	}
}

var pluginBuilt = regexp.MustCompile(`CGO_ENABLED=0 GOOS=(\w+) GOARCH=(\w+) +` +
	`go build -trimpath -ldflags '-s -w -X main\.version=v1\.2\.3' -o out/bin/kubectl-mend-(\S+) `)

// A build for all platforms takes minutes, so this checks the commands of `make --dry-run`.
func TestAReleaseHasThePluginForEveryPlatform(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "--dry-run", "plugin", "VERSION=v1.2.3")
	cmd.Dir = root
	out, err := cmd.Output()
	must.Do(t, err)
	var platforms []string
	steps := strings.ReplaceAll(string(out), "\\\n", "")
	for _, m := range pluginBuilt.FindAllStringSubmatch(strings.ReplaceAll(steps, "\t", " "), -1) {
		platforms = append(platforms, m[1]+"/"+m[2])
		archive := fmt.Sprintf("kubectl-mend_v1.2.3_%s_%s.", m[1], m[2])
		if m[3] != m[1]+"-"+m[2] || !strings.Contains(steps, archive) {
			t.Errorf("%s is built as %s, and packed: %t", m[1]+"/"+m[2], m[3], strings.Contains(steps, archive))
		}
	}
	slices.Sort(platforms)
	if diff := cmp.Diff([]string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64"}, platforms); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, steps)
	}
	if !strings.Contains(steps, "krew -version 'v1.2.3' -url 'https://github.com/kubemend/kubemend/releases/download/v1.2.3'") {
		t.Errorf("krew does not know where the archives are:\n%s", steps)
	}
	if !regexp.MustCompile(`(?m)^release:.*\n(\t.*\n)*\t@\$\(MAKE\) plugin\n(\t.*\n)*\t.*sha256sum`).Match(read(t, "Makefile")) {
		t.Error("make release does not make the plugin before it sums up")
	}
}
