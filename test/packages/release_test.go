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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// files are the regular files of an archive.
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

// descriptor is how a part of an image names another one.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Annotations map[string]string `json:"annotations"`
	Platform    struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// manifest is an index, or an image, as far as these tests read it.
type manifest struct {
	Manifests []descriptor `json:"manifests"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

type imageConfig struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Config       struct {
		User       string            `json:"User"`
		Entrypoint []string          `json:"Entrypoint"`
		Env        []string          `json:"Env"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// blob is a part of an image, which has to be what its digest says.
func blob[T any](t *testing.T, layout map[string][]byte, digest string) T {
	t.Helper()
	content := raw(t, layout, digest)
	var part T
	if err := json.Unmarshal(content, &part); err != nil {
		t.Fatalf("read %s: %v", digest, err)
	}
	return part
}

func raw(t *testing.T, layout map[string][]byte, digest string) []byte {
	t.Helper()
	content := layout["blobs/"+strings.Replace(digest, ":", "/", 1)]
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != digest {
		t.Fatalf("%s has the digest %s", digest, got)
	}
	return content
}

const inventoried = `{"spdxVersion":"SPDX-2.3"}`

// image makes one of two programs, one for each platform, and returns the archive.
func image(t *testing.T) []byte {
	t.Helper()
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	for name, content := range map[string]string{"amd64": "for amd64", "arm64": "for arm64", "LICENSE": "for LICENSE", "spdx.json": inventoried} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "image", "-name=registry.example.org/mend", "-version=v1.2.3", "-revision=abc", "-created=1767265200", "-licenses="+path("LICENSE"),
		"-inventory="+path("spdx.json"), "-out="+path("image.tar"), "amd64="+path("amd64"), "arm64="+path("arm64"))
	content, err := os.ReadFile(path("image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A container engine starts what the manifests say: /manager, as an unprivileged user, with certificates and with nothing to write to.
func TestTheImageHasTheProgramOfEachPlatform(t *testing.T) {
	layout := files(t, image(t))
	var top manifest
	if err := json.Unmarshal(layout["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{
		"io.containerd.image.name": "registry.example.org/mend:v1.2.3", "org.opencontainers.image.ref.name": "v1.2.3",
	}, top.Manifests[0].Annotations); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	index := blob[manifest](t, layout, top.Manifests[0].Digest)
	if len(index.Manifests) != 4 {
		t.Fatalf("the image has %d entries; want one for each of two platforms, and what is in each", len(index.Manifests))
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		described := index.Manifests[i]
		one := blob[manifest](t, layout, described.Digest)
		config := blob[imageConfig](t, layout, one.Config.Digest)
		if described.Platform.OS != "linux" || described.Platform.Architecture != architecture || config.Architecture != architecture || config.OS != "linux" {
			t.Errorf("image %d is for %+v, and says %s/%s", i, described.Platform, config.OS, config.Architecture)
		}
		if c := config.Config; c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/manager" {
			t.Errorf("%s runs %q as %s", architecture, c.Entrypoint, c.User)
		}
		root := rootFS(t, layout, one, config)
		if got := string(root["manager"]); got != "for "+architecture {
			t.Errorf("the program for %s is that %s", architecture, got)
		}
		if got := string(root["licenses/LICENSE"]); got != "for LICENSE" {
			t.Errorf("its licence is %q", got)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(root["etc/ssl/certs/ca-certificates.crt"]) {
			t.Error("it has no root certificates")
		}
		want := map[string]string{
			"title": "kubemend", "description": config.Config.Labels["org.opencontainers.image.description"], "licenses": "Apache-2.0",
			"source": "https://github.com/kubemend/kubemend", "version": "v1.2.3", "revision": "abc", "created": "2026-01-01T11:00:00Z",
		}
		for name, value := range want {
			if got := config.Config.Labels["org.opencontainers.image."+name]; got != value || got == "" {
				t.Errorf("label %s is %q, want %q", name, got, value)
			}
		}
	}
}

// What is in the image goes wherever the image goes, in the form in which BuildKit attaches it: every user of the image can
// read it, and no engine takes it for a platform.
func TestTheImageHasAnInventoryForEachPlatform(t *testing.T) {
	layout := files(t, image(t))
	var top manifest
	if err := json.Unmarshal(layout["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	entries := blob[manifest](t, layout, top.Manifests[0].Digest).Manifests
	for i, attached := range entries[2:] {
		if diff := cmp.Diff(map[string]string{
			"vnd.docker.reference.type": "attestation-manifest", "vnd.docker.reference.digest": entries[i].Digest,
		}, attached.Annotations); diff != "" || attached.Platform.OS != "unknown" || attached.Platform.Architecture != "unknown" {
			t.Errorf("entry %d is for %+v, with annotations (-want +got):\n%s", i, attached.Platform, diff)
		}
		one := blob[manifest](t, layout, attached.Digest)
		config := blob[imageConfig](t, layout, one.Config.Digest)
		if config.OS != "unknown" || config.Architecture != "unknown" || len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != one.Layers[0].Digest {
			t.Errorf("it is described as %+v", config)
		}
		if diff := cmp.Diff(descriptor{
			MediaType: "application/vnd.in-toto+json", Digest: one.Layers[0].Digest, Annotations: map[string]string{"in-toto.io/predicate-type": "https://spdx.dev/Document"},
		}, one.Layers[0]); diff != "" {
			t.Errorf("the statement (-want +got):\n%s", diff)
		}
		says := blob[map[string]any](t, layout, one.Layers[0].Digest)
		if diff := cmp.Diff(map[string]any{
			"_type": "https://in-toto.io/Statement/v0.1", "predicateType": "https://spdx.dev/Document", "predicate": map[string]any{"spdxVersion": "SPDX-2.3"},
			"subject": []any{map[string]any{
				"name": "registry.example.org/mend:v1.2.3", "digest": map[string]any{"sha256": strings.TrimPrefix(entries[i].Digest, "sha256:")},
			}},
		}, says); diff != "" {
			t.Errorf("it says (-want +got):\n%s", diff)
		}
	}
}

// rootFS is what all layers together hold.
func rootFS(t *testing.T, layout map[string][]byte, one manifest, config imageConfig) map[string][]byte {
	t.Helper()
	root := map[string][]byte{}
	for i, layer := range one.Layers {
		r, err := gzip.NewReader(bytes.NewReader(raw(t, layout, layer.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d is %s, and said to be %s", i, got, config.RootFS.DiffIDs[i])
		}
		for name, content := range files(t, content) {
			root[name] = content
		}
	}
	return root
}

func TestTheSameProgramsMakeTheSameImage(t *testing.T) {
	if !bytes.Equal(image(t), image(t)) {
		t.Error("two images of the same programs differ")
	}
}

// The Dockerfile is for users of a container engine, and says the same.
func TestTheDockerfileMakesTheSameImage(t *testing.T) {
	dockerfile := string(read(t, "Dockerfile"))
	for _, line := range []string{"COPY LICENSE /licenses/LICENSE", "USER 65532:65532", `ENTRYPOINT ["/manager"]`, "CGO_ENABLED=0", "-X main.version=${VERSION}"} {
		if !strings.Contains(dockerfile, line) {
			t.Errorf("the Dockerfile has no %q", line)
		}
	}
	layout := files(t, image(t))
	var top manifest
	if err := json.Unmarshal(layout["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	one := blob[manifest](t, layout, blob[manifest](t, layout, top.Manifests[0].Digest).Manifests[0].Digest)
	for label := range blob[imageConfig](t, layout, one.Config.Digest).Config.Labels {
		// Docker writes the time into the image itself.
		if !strings.Contains(dockerfile, label+"=") && !strings.HasSuffix(label, ".created") {
			t.Errorf("the Dockerfile sets no label %s", label)
		}
	}
}

// A tag moves: an image that is built from one is not the reviewed one. Dependabot moves the digests.
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

// The inventory says what runs in a cluster: all modules of the program, with their versions and licences.
func TestTheInventoryListsWhatTheProgramIsBuiltFrom(t *testing.T) {
	folder := t.TempDir()
	manager, err := filepath.Abs(filepath.Join(root, "bin", "manager"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(manager); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	run(t, "inventory", "-version=v1.2.3", "-out="+folder, manager)
	content, err := os.ReadFile(filepath.Join(folder, "kubemend.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
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
	licences, err := os.ReadFile(filepath.Join(folder, "THIRD-PARTY-LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
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
		if heading := "\n" + p.Name + " " + p.Version + ": "; p.Name != module && p.Name != "manager" && !strings.Contains(string(licences), heading) {
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
	shipped, err := os.ReadFile(manager)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("SHA256:%x", sha256.Sum256(shipped)); sums["manager"] != want {
		t.Errorf("the sum of the program is %q, want %s", sums["manager"], want)
	}
	if versions[module] != "v1.2.3" || versions["std"] == "" {
		t.Errorf("kubemend is of version %q, the standard library of %q", versions[module], versions["std"])
	}
}

const module = "github.com/kubemend/kubemend"
