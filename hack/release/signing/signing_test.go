// Package signing tries the commands of the release workflow for cosign without a network: with a new key, the output of `make release`,
// and a registry in this process. It does not test keyless signatures and the transparency log, which need Sigstore's servers.
package signing

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	release = flag.String("release", "", "folder that make release has written")
	program = flag.String("cosign", "", "cosign")
)

// signer runs cosign with its own key, in its own folder.
type signer struct {
	t      *testing.T
	folder string
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	if *release == "" || *program == "" {
		t.Skip("run make release-try")
	}
	s := &signer{t: t, folder: t.TempDir()}
	// The configuration uses no transparency log and no timestamp authority of Sigstore, and trusts none.
	for _, args := range [][]string{{"generate-key-pair"}, {"signing-config", "create", "--out=none.json"}, {"trusted-root", "create", "--out=absent.json"}} {
		s.must(args...)
	}
	return s
}

func (s *signer) run(args ...string) (string, error) {
	cmd := exec.CommandContext(s.t.Context(), *program, args...)
	cmd.Dir, cmd.Env = s.folder, append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+s.folder)
	said, err := cmd.CombinedOutput()
	s.t.Logf("cosign %s\n%.1500s", strings.Join(args, " "), said)
	return string(said), err
}

func (s *signer) must(args ...string) string {
	s.t.Helper()
	said, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return said
}

func (s *signer) refuses(why string, args ...string) {
	s.t.Helper()
	if said, err := s.run(args...); err == nil || !strings.Contains(said, why) {
		s.t.Errorf("cosign %s: %v, and says %s; want it to fail with: %s", strings.Join(args, " "), err, said, why)
	}
}

var (
	sign   = []string{"--yes", "--key=cosign.key", "--signing-config=none.json"}
	verify = []string{"--key=cosign.pub", "--trusted-root=absent.json", "--insecure-ignore-tlog"}
)

func with(command string, common []string, args ...string) []string {
	return append(append([]string{command}, common...), args...)
}

func TestTheChecksumsAreSignedAndCoverEveryFile(t *testing.T) {
	s := newSigner(t)
	sums, err := os.ReadFile(filepath.Join(*release, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"good", "changed"} {
		if file == "changed" {
			sums[0] ^= 1
		}
		if err := os.WriteFile(filepath.Join(s.folder, file), sums, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sums[0] ^= 1
	s.must(with("sign-blob", sign, "--bundle=bundle.json", "good")...)
	s.must(with("verify-blob", verify, "--bundle=bundle.json", "good")...)
	s.refuses("invalid signature", with("verify-blob", verify, "--bundle=bundle.json", "changed")...)

	listed := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[file] = sum
	}
	entries, err := os.ReadDir(*release)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(*release, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(content)); listed[e.Name()] != sum && e.Name() != "SHA256SUMS" {
			t.Errorf("%s has the sum %s, and SHA256SUMS says %q", e.Name(), sum, listed[e.Name()])
		}
	}
}

func TestTheImageIsSignedByItsDigestAndAnotherIsRefused(t *testing.T) {
	s := newSigner(t)
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	index, _ := image(t)
	named := func(index v1.ImageIndex) string {
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.NewDigest(strings.TrimPrefix(server.URL, "http://") + "/kubemend@" + digest.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.WriteIndex(ref, index); err != nil {
			t.Fatal(err)
		}
		return ref.String()
	}
	shipped, changed := named(index), named(mutate.Annotations(index, map[string]string{"org.opencontainers.image.revision": "another"}).(v1.ImageIndex))

	s.must(with("sign", sign, shipped)...)
	s.must(with("verify", verify, shipped)...)
	s.refuses("no signatures found", with("verify", verify, changed)...)

	inventory, err := filepath.Abs(filepath.Join(*release, "kubemend.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	s.must(with("attest", sign, "--type=spdxjson", "--predicate="+inventory, shipped)...)
	s.must(with("verify-attestation", verify, "--type=spdxjson", shipped)...)
	s.refuses("no matching attestations", with("verify-attestation", verify, "--type=spdxjson", changed)...)

	// A signature by another key is refused.
	s.must("generate-key-pair", "--output-key-prefix=other")
	s.refuses("could not verify envelope", with("verify", []string{"--key=other.pub", "--trusted-root=absent.json", "--insecure-ignore-tlog"}, shipped)...)
}

// Users without a registry have the layout. Its index is signed as a file, and refers to everything else by digest.
func TestEveryByteOfTheImageLayoutIsSigned(t *testing.T) {
	s := newSigner(t)
	index, folder := image(t)
	blob := func(digest v1.Hash, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(folder, "blobs", digest.Algorithm, digest.Hex)
	}
	change := func(file string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)/2] ^= 1
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	top := blob(index.Digest())
	s.must(with("sign-blob", sign, "--bundle=bundle.json", top)...)
	s.must(with("verify-blob", verify, "--bundle=bundle.json", top)...)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	platform, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(platform); err != nil {
		t.Errorf("the image is not what its digests say: %v", err)
	}
	layers, err := platform.Layers()
	if err != nil {
		t.Fatal(err)
	}
	change(blob(layers[len(layers)-1].Digest()))
	if err := validate.Image(platform); err == nil {
		t.Error("a program in which a byte was changed is taken for the one that was signed")
	}
	change(top)
	s.refuses("invalid signature", with("verify-blob", verify, "--bundle=bundle.json", top)...)
}

// image returns the index of the release's image, and the folder that the archive was unpacked to.
func image(t *testing.T) (index v1.ImageIndex, folder string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(*release, "kubemend-image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		part, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, filepath.Clean("/"+header.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, part, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	named, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err = top.ImageIndex(named.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, folder
}
