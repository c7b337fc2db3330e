package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/kubemend/kubemend/test/golden"
)

func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("read the archive: %v", err)
		}
		if found[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatalf("read %s: %v", header.Name, err)
		}
	}
}

const inventoried = `{"spdxVersion":"SPDX-2.3"}`

// image builds an image from two programs, one for each platform, and returns the archive.
func image(t *testing.T) []byte {
	t.Helper()
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, content := range map[string]string{"amd64": "for amd64", "arm64": "for arm64", "LICENSE": "for LICENSE",
		"spdx.json": inventoried} {
		must.Do(t, os.WriteFile(path(name), []byte(content), 0o600))
	}
	run(t, "image", "-name=registry.example.org/mend", "-version=v1.2.3", "-revision=abc", "-created=1767265200",
		"-licenses="+path("LICENSE"),
		"-inventory="+path("spdx.json"), "-out="+path("image.tar"), "amd64="+path("amd64"), "arm64="+path("arm64"))
	return readAt(t, path("image.tar"))
}

// namedPart matches a reference from one part of an image to another.
var namedPart = regexp.MustCompile(`"digest":\s*"(sha256:[0-9a-f]{64})"`)

// described prints an image as text: its index, then each part after the one that refers to it, with numbers instead of digests. For a
// layer it lists the files, with the content of those that hack/release/image writes.
func described(t *testing.T, layout map[string][]byte) string {
	t.Helper()
	var b strings.Builder
	digests, text, unpacked := []string{}, string(layout["index.json"]), map[string]int{}
	for n := 0; ; n++ {
		for _, found := range namedPart.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(digests, found[1]) {
				digests = append(digests, found[1])
			}
		}
		fmt.Fprintf(&b, "%s\n", text)
		if n == len(digests) {
			break
		}
		content := layout["blobs/"+strings.Replace(digests[n], ":", "/", 1)]
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != digests[n] {
			t.Fatalf("%s has the digest %s", digests[n], got)
		}
		text = string(content)
		if !json.Valid(content) {
			var sum string
			text, sum = layerAsText(t, content)
			unpacked[sum] = n + 1
		}
	}
	all := b.String()
	for n, digest := range digests {
		all = strings.ReplaceAll(all, strings.TrimPrefix(digest, "sha256:"), fmt.Sprintf("#%d", n+1))
	}
	for sum, n := range unpacked {
		all = strings.ReplaceAll(all, sum, fmt.Sprintf("#%d unpacked", n))
	}
	// The size of the root certificates changes with the version of their module.
	return regexp.MustCompile(`"size":\s*\d+`).ReplaceAllString(all, "…")
}

func layerAsText(t *testing.T, layer []byte) (text, sum string) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(layer))
	must.Do(t, err)
	content, err := io.ReadAll(plain)
	must.Do(t, err)
	var lines []string
	for name, content := range files(t, content) {
		if x509.NewCertPool().AppendCertsFromPEM(content) {
			content = []byte("root certificates")
		}
		lines = append(lines, name+": "+string(content))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), fmt.Sprintf("%x", sha256.Sum256(content))
}

// A container engine starts /manager as an unprivileged user, with root certificates and no writable folder. The inventory is attached as
// an attestation like BuildKit's: it travels with the image, every user can read it, and no engine mistakes it for a platform.
func TestWhatIsInTheImage(t *testing.T) {
	golden.Compare(t, "testdata/image.txt", described(t, files(t, image(t))))
}

func TestTheSameProgramsMakeTheSameImage(t *testing.T) {
	if !bytes.Equal(image(t), image(t)) {
		t.Error("two images of the same programs differ")
	}
}

// The Dockerfile is for users of a container engine and has to make the same image.
func TestTheDockerfileMakesTheSameImage(t *testing.T) {
	dockerfile := string(read(t, "Dockerfile"))
	for _, line := range []string{"COPY LICENSE /licenses/LICENSE", "USER 65532:65532", `ENTRYPOINT ["/manager"]`, "CGO_ENABLED=0",
		"-X main.version=${VERSION}"} {
		if !strings.Contains(dockerfile, line) {
			t.Errorf("the Dockerfile has no %q", line)
		}
	}
	image := strings.NewReplacer("v1.2.3", "${VERSION}", "abc", "${REVISION}").Replace(string(read(t, "test/packages/testdata/image.txt")))
	for _, label := range regexp.MustCompile(`"(org\.opencontainers\.image\.\w+)":"([^"]*)"`).FindAllStringSubmatch(image, -1) {
		// Docker writes the time into the image itself.
		if want := label[1] + `="` + label[2] + `"`; !strings.Contains(dockerfile, want) && !strings.HasSuffix(label[1], ".created") {
			t.Errorf("the Dockerfile does not set the label %s", want)
		}
	}
}

// A tag can move, so an image built from a tag may not be the reviewed one. Dependabot updates the digests.
func TestTheDockerfileNamesItsBaseImagesByDigest(t *testing.T) {
	dockerfile := string(read(t, "Dockerfile"))
	bases := regexp.MustCompile(`(?m)^(?:FROM (?:--\S+ )?|# syntax=)(\S+)`).FindAllStringSubmatch(dockerfile, -1)
	if len(bases) != 2 {
		t.Fatalf("the Dockerfile is built from %v", bases)
	}
	for _, base := range bases {
		if !regexp.MustCompile(`@sha256:[0-9a-f]{64}$`).MatchString(base[1]) {
			t.Errorf("%s has no digest", base[1])
		}
	}
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindSubmatch(read(t, "go.mod"))
	if len(toolchain) < 2 || !strings.HasPrefix(bases[0][1], "golang:"+string(toolchain[1])+"@") {
		t.Errorf("%s is not of the toolchain that go.mod names, %s", bases[0][1], toolchain)
	}
}

var required = regexp.MustCompile(`(?m)^\t(sigs\.k8s\.io/(?:controller-runtime|cluster-api)|k8s\.io/client-go) (v\S+)$`)

// The inventory lists all modules of the program that runs in a cluster, with their versions and licences.
func TestTheInventoryListsWhatTheProgramIsBuiltFrom(t *testing.T) {
	folder := t.TempDir()
	manager, err := filepath.Abs(filepath.Join(root, "bin", "manager"))
	must.Do(t, err)
	if _, err := os.Stat(manager); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	run(t, "inventory", "-version=v1.2.3", "-out="+folder, manager)
	content := readAt(t, filepath.Join(folder, "kubemend.spdx.json"))
	var document struct {
		SPDXVersion string `json:"spdxVersion"`
		Packages    []struct {
			ID       string `json:"SPDXID"`
			Name     string `json:"name"`
			Version  string `json:"versionInfo"`
			Declared string `json:"licenseDeclared"`
			Sums     []struct {
				Algorithm string `json:"algorithm"`
				Value     string `json:"checksumValue"`
			} `json:"checksums"`
		} `json:"packages"`
		Relationships []struct {
			To string `json:"relatedSpdxElement"`
		} `json:"relationships"`
	}
	if err := json.Unmarshal(content, &document); err != nil || document.SPDXVersion != "SPDX-2.3" {
		t.Fatalf("this is %q: %v", document.SPDXVersion, err)
	}
	licences := readAt(t, filepath.Join(folder, "THIRD-PARTY-LICENSES.txt"))
	versions, related, sums := map[string]string{}, map[string]bool{}, map[string]string{}
	for _, r := range document.Relationships {
		related[r.To] = true
	}
	for _, p := range document.Packages {
		versions[p.Name] = p.Version
		if p.Declared == "" || !related[p.ID] {
			t.Errorf("%s: licence %q, related: %t", p.Name, p.Declared, related[p.ID])
		}
		for _, sum := range p.Sums {
			sums[p.Name] += sum.Algorithm + ":" + sum.Value
		}
		heading := "\n" + p.Name + " " + p.Version + ": "
		if p.Name != module && p.Name != "manager" && !strings.Contains(string(licences), heading) {
			t.Errorf("%s: its licence is not there", p.Name)
		}
	}
	wanted := required.FindAllStringSubmatch(string(read(t, "go.mod")), -1)
	if len(wanted) != 3 {
		t.Fatalf("go.mod requires %v", wanted)
	}
	for _, m := range wanted {
		if versions[m[1]] != m[2] {
			t.Errorf("%s is of version %q, and required in %s", m[1], versions[m[1]], m[2])
		}
		if len(sums[m[1]]) != len("SHA256:")+2*sha256.Size {
			t.Errorf("the sum of %s is %q", m[1], sums[m[1]])
		}
	}
	if versions["github.com/onsi/ginkgo/v2"] != "" {
		t.Error("what only tests need is listed")
	}
	shipped := readAt(t, manager)
	must.Is(t, fmt.Sprintf("SHA256:%x", sha256.Sum256(shipped)), sums["manager"], "the sum of the program is")
	if versions[module] != "v1.2.3" || versions["std"] == "" {
		t.Errorf("kubemend is of version %q, the standard library of %q", versions[module], versions["std"])
	}
}

const module = "github.com/kubemend/kubemend"
