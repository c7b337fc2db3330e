// Command render does what Helm does with a chart, with Helm's own code: `helm lint`, `helm template` with the notes as a comment, or `helm
// package`.
//
// Helm itself would take minutes to build, mostly because of its clients for clusters and registries.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	folder := flag.String("chart", "charts/kubemend", "folder of the chart")
	namespace := flag.String("namespace", "kubemend-system", "namespace of the release")
	values := flag.String("values", "", "file with values; if empty, the chart's own")
	var p packing
	flag.StringVar(&p.version, "package", "", "pack the chart as this version, instead of rendering it")
	flag.StringVar(&p.image, "image", "", "image that the packed chart takes, without a tag; if empty, that of its values")
	flag.StringVar(&p.out, "out", "out", "folder of the packed chart")
	flag.Parse()
	if err := run(*folder, *namespace, *values, p); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(folder, namespace, values string, p packing) error {
	c, err := loader.Load(folder)
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("check the chart: %w", err)
	}
	if p.version != "" {
		return p.pack(c)
	}
	return render(c, folder, namespace, values)
}

// packing has the settings of pack.
type packing struct{ version, image, out string }

// pack sets the version of the chart. If the values have no tag, the chart uses the image of that version.
func (p packing) pack(c *chart.Chart) error {
	c.Metadata.Version, c.Metadata.AppVersion = strings.TrimPrefix(p.version, "v"), p.version
	if _, err := semver.StrictNewVersion(c.Metadata.Version); err != nil {
		c.Metadata.Version = "0.0.0-dev-" + c.Metadata.Version // the name of a commit
	}
	if p.image != "" {
		if err := rename(c, p.image); err != nil {
			return err
		}
	}
	path, err := chartutil.Save(c, p.out)
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	fmt.Println(path)
	return nil
}

// rename changes the image in the raw values.yaml, because that file is packed and not the parsed values.
func rename(c *chart.Chart, image string) error {
	values, is := c.Values["image"].(map[string]any)
	if !is {
		return errors.New("the chart has no value image.repository")
	}
	old := fmt.Appendf(nil, "repository: %v\n", values["repository"])
	for _, f := range c.Raw {
		if f.Name == chartutil.ValuesfileName && bytes.Contains(f.Data, old) {
			f.Data = bytes.Replace(f.Data, old, fmt.Appendf(nil, "repository: %s\n", image), 1)
			return nil
		}
	}
	return fmt.Errorf("the chart's file of values has no line %q", old)
}

// read reads the user's values, or no values if path is empty.
func read(path string) (common.Values, error) {
	if path == "" {
		return common.Values{}, nil
	}
	values, err := common.ReadValuesFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	return values, nil
}

// check lints the chart. Linting changes values.
func check(folder, namespace string, values common.Values) error {
	for _, message := range lint.RunAll(folder, values, namespace).Messages {
		if message.Severity >= support.WarningSev {
			return fmt.Errorf("lint the chart: %w", message)
		}
	}
	return nil
}

func render(c *chart.Chart, folder, namespace, path string) error {
	linted, err := read(path)
	if err != nil {
		return err
	}
	given, err := read(path)
	if err != nil {
		return err
	}
	release := common.ReleaseOptions{Name: "kubemend", Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(c, given, release, nil) // this also checks the schema
	if err != nil {
		return fmt.Errorf("take the values: %w", err)
	}
	if err := check(folder, namespace, linted); err != nil {
		return err
	}
	files, err := engine.Render(c, values)
	if err != nil {
		return fmt.Errorf("render the chart: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "/NOTES.txt") {
			fmt.Printf("# %s\n", strings.ReplaceAll(files[name], "\n", "\n# "))
		}
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Printf("---\n# Source: %s\n%s", name, files[name])
		}
	}
	return nil
}
