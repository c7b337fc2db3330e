// Command krew writes the manifest with which krew, the package manager for kubectl plugins, installs kubectl-mend from the given archives,
// one for each platform.
//
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest describes manifests and the length of their lines.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"
)

const (
	name     = "mend"
	homepage = "https://github.com/kubemend/kubemend"
	tagline  = "Explain and steer machine remediation"
	about    = `Says why a machine of Cluster API, a node or a bare-metal host is or is not
being remediated, and when the next thing happens: it asks the very functions
that the controllers of kubemend ask. It shows how all health checks stand and
what has happened, records a cluster for somebody who has no access to it, and
hands checks over from Cluster API core to kubemend, or back. A person has a
machine or a host remediated with it, and resets a repaired host.
It reads with your rights. Only claim, release, remediate and reset write, after
they have shown what will happen and asked.
`
	caveats = `It needs a management cluster of Cluster API. Take the version of the manager
of kubemend that runs there.
Commands are completed if kubectl finds kubectl_complete-mend in the PATH:
https://github.com/kubemend/kubemend/blob/main/docs/cli/README.md
`
)

func main() {
	version := flag.String("version", "", "version of the plugin, such as v0.1.0")
	url := flag.String("url", "", "where the archives can be downloaded from; a slash and the name of each follows")
	out := flag.String("out", name+".yaml", "manifest to write; krew expects that it is named after the plugin")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: krew [flags] ARCHIVE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*version, *url, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(version, url, out string, archives []string) error {
	if version == "" || url == "" || len(archives) == 0 {
		return errors.New("-version, -url and at least one archive are needed")
	}
	m := manifest{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}
	m.Metadata.Name = name
	m.Spec = spec{Version: semantic(version), Homepage: homepage, ShortDescription: tagline, Description: about, Caveats: caveats}
	for _, archive := range archives {
		p, err := platformOf(archive, url)
		if err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	slices.SortFunc(m.Spec.Platforms, func(a, b platform) int { return strings.Compare(a.URI, b.URI) })
	content, err := yaml.Marshal(m)
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := os.WriteFile(out, content, 0o644); err != nil { //nolint:gosec // users of the release read it
		return fmt.Errorf("write the manifest: %w", err)
	}
	fmt.Println(out)
	return nil
}

// semantic returns the version for krew. If the version is only the name of a commit, it returns a version before all releases.
func semantic(version string) string {
	if _, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v")); err == nil && strings.HasPrefix(version, "v") {
		return version
	}
	return "v0.0.0-dev-" + version
}

// platformOf returns how to install the plugin from an archive. The name of an archive ends with _OS_ARCHITECTURE and its format.
func platformOf(archive, url string) (platform, error) {
	base := filepath.Base(archive)
	parts := strings.Split(strings.TrimSuffix(strings.TrimSuffix(base, ".zip"), ".tar.gz"), "_")
	if len(parts) < 3 {
		return platform{}, fmt.Errorf("%s: its name does not say for which platform it is: expected NAME_VERSION_OS_ARCHITECTURE", base)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return platform{}, fmt.Errorf("read an archive: %w", err)
	}
	sum := sha256.Sum256(content)
	p := platform{URI: strings.TrimSuffix(url, "/") + "/" + base, SHA256: hex.EncodeToString(sum[:])}
	p.Selector.MatchLabels.OS, p.Selector.MatchLabels.Architecture = parts[len(parts)-2], parts[len(parts)-1]
	names, err := filesIn(base, content)
	if err != nil {
		return platform{}, fmt.Errorf("look into %s: %w", base, err)
	}
	for _, file := range names {
		p.Files = append(p.Files, move{From: file, To: "."})
		if strings.TrimSuffix(path.Base(file), ".exe") == "kubectl-"+name {
			p.Bin = file
		}
	}
	if p.Bin == "" {
		return platform{}, fmt.Errorf("%s has no program kubectl-%s in it, but %s", base, name, strings.Join(names, ", "))
	}
	return p, nil
}
