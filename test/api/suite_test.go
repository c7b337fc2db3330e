// Package api tests what only an API server knows: schemas, rules in CEL, webhooks, conversion, rights, policies, and what a
// release ships in the hands of the tools that it is for, from its installation over upgrades to its removal.
//
// Three control planes, one after the other: one in which a manager that is installed as it ships needs every right that it
// has, one beside Cluster API that `kubectl apply` installs, upgrades and removes releases on, and a bare one for clusterctl.
// cert-manager is replaced by the rig's certificate, and no pod of the Deployment runs: where a manager has to answer, it is
// the built one, as the ServiceAccount that ships.
//
// What time, order and counts decide is not asked here: the scenes in memory are exact about these.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/suite"
)

const (
	root         = "../.."
	specPatience = suite.SpecPatience

	// first is the oldest release that can be upgraded from. Its manifests are kept as they were: see testdata.
	first = "v0.1.0"
)

// What all specs share.
var (
	// repository is a folder of releases as clusterctl reads them: ours below addon-kubemend, and what clusterctl init asks for besides.
	repository string
	// this is what the release of this commit is called.
	this string
)

func TestAPI(t *testing.T) {
	suite.Run(t, "API", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join(root, "bin", "manager")).To(BeAnExistingFile(), "run make build")
	repository = GinkgoT().TempDir()
	this = nextVersion()
	run(ctx, root, "make", "release-manifests", "VERSION="+this, "OUT="+repository)
	Expect(os.CopyFS(filepath.Join(repository, "addon-kubemend", first), os.DirFS(filepath.Join("testdata", first)))).To(Succeed())
}, NodeTimeout(specPatience))

// nextVersion is the one that clusterctl's settings have for what is not yet released.
func nextVersion() string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(root, "clusterctl-settings.json"))
	Expect(err).NotTo(HaveOccurred())
	var settings struct {
		Config struct {
			NextVersion string `json:"nextVersion"`
		} `json:"config"`
	}
	Expect(json.Unmarshal(content, &settings)).To(Succeed())
	Expect(settings.Config.NextVersion).NotTo(BeEmpty())
	return settings.Config.NextVersion
}

// released is a file of a release.
func released(version, file string) string {
	return filepath.Join(repository, "addon-kubemend", version, file)
}

// run runs a program and returns what it writes. It gets no settings of a `make` that may have started these tests.
func run(ctx context.Context, folder, program string, args ...string) []byte {
	GinkgoHelper()
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = folder
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MAKE") && !strings.HasPrefix(variable, "MFLAGS") && !strings.HasPrefix(variable, "IMAGE=") {
			command.Env = append(command.Env, variable)
		}
	}
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred(), said.String())
	return out
}

// kustomized is what a folder is built into.
func kustomized(ctx context.Context, folder string) []byte {
	GinkgoHelper()
	return run(ctx, root, filepath.Join(".tools", "bin", "kustomize"), "build", folder)
}

func read(file string) []byte {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	return content
}
