// Command render does with a chart what Helm does, by Helm's own code: it renders it, as `helm template`, or packs it, as `helm package`.
//
// Helm's program itself would take minutes to build, most of it for talking to clusters and registries.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	folder := flag.String("chart", "charts/kubemend", "folder of the chart")
	namespace := flag.String("namespace", "kubemend-system", "namespace of the release")
	values := flag.String("values", "", "file with values; if empty, the chart's own")
	version := flag.String("package", "", "pack the chart as this version, with or without a v, instead of rendering it")
	out := flag.String("out", "out", "folder of the packed chart")
	flag.Parse()
	if err := run(*folder, *namespace, *values, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(folder, namespace, values, version, out string) error {
	c, err := loader.Load(folder)
	if err != nil {
		return fmt.Errorf("load the chart: %w", err)
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("check the chart: %w", err)
	}
	if version != "" {
		return pack(c, version, out)
	}
	return render(c, namespace, values)
}

// pack names the image of that version: without a tag among the values, the chart takes its application's version.
func pack(c *chart.Chart, version, out string) error {
	c.Metadata.Version, c.Metadata.AppVersion = strings.TrimPrefix(version, "v"), version
	path, err := chartutil.Save(c, out)
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	fmt.Println(path)
	return nil
}

func render(c *chart.Chart, namespace, path string) error {
	given := common.Values{}
	if path != "" {
		var err error
		if given, err = common.ReadValuesFile(path); err != nil {
			return fmt.Errorf("read the values: %w", err)
		}
	}
	release := common.ReleaseOptions{Name: "kubemend", Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(c, given, release, nil) // also holds them to the schema
	if err != nil {
		return fmt.Errorf("take the values: %w", err)
	}
	files, err := engine.Render(c, values)
	if err != nil {
		return fmt.Errorf("render the chart: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Printf("---\n# Source: %s\n%s", name, files[name])
		}
	}
	return nil
}
