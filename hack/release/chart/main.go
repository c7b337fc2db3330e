// Command chart writes the Helm chart from the output of kustomize for config/standalone, so that the two cannot differ.
//
// Users can change the holes in holes.go and the values in values.go; everything else is as in the manifests.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	manifests := flag.String("manifests", "", "what kustomize builds of config/standalone")
	observability := flag.String("observability", "", "what kustomize builds of config/observability")
	flags := flag.String("flags", "docs/reference/flags.md", "the list of the manager's flags")
	out := flag.String("out", "charts/kubemend", "folder of the chart")
	flag.Parse()
	if err := run(*manifests, *observability, *flags, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(manifests, observability, flags, out string) error {
	objects, err := readObjects(manifests)
	if err != nil {
		return err
	}
	observing, err := readObjects(observability)
	if err != nil {
		return err
	}
	objects = append(objects, observing...)
	known, err := readFlags(flags)
	if err != nil {
		return err
	}
	values, err := valuesOf(objects)
	if err != nil {
		return err
	}
	files, err := templates(objects) // last, since it replaces values by holes
	if err != nil {
		return err
	}
	if files["values.schema.json"], err = schema(values, known); err != nil {
		return err
	}
	if files["values.yaml"], err = document(values); err != nil {
		return err
	}
	if files["README.md"], err = readme(values); err != nil {
		return err
	}
	return write(out, files)
}

// write replaces the generated files and keeps those written by hand.
func write(out string, files map[string][]byte) error {
	old, err := filepath.Glob(filepath.Join(out, "templates", "*.yaml"))
	if err != nil {
		return fmt.Errorf("list the old templates: %w", err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an old template: %w", err)
		}
	}
	for name, content := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return fmt.Errorf("make the folder of the chart: %w", err)
		}
		if err := os.WriteFile(path, append(bytes.TrimSpace(content), '\n'), 0o600); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
	}
	return nil
}
