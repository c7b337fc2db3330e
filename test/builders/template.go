package builders

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/yaml"
)

// Template renders a file of templates/ as `clusterctl generate yaml` does, with these variables and no others. One that
// the template does not have is an error: a slip in a name would leave the default in place.
func Template(file string, variables map[string]string) (*unstructured.Unstructured, error) {
	object, err := render(file, variables)
	if err != nil {
		return nil, fmt.Errorf("render template %s: %w", file, err)
	}
	return object, nil
}

func render(file string, variables map[string]string) (*unstructured.Unstructured, error) {
	path, err := templatePath(file)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	processor := yamlprocessor.NewSimpleProcessor()
	known, err := processor.GetVariables(content)
	if err != nil {
		return nil, err
	}
	for name := range variables {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("it has no variable %s, but %q", name, known)
		}
	}
	manifest, err := processor.Process(content, func(name string) (string, error) {
		if value, given := variables[name]; given {
			return value, nil
		}
		return "", errors.New("not given")
	})
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &object.Object); err != nil {
		return nil, err
	}
	return object, nil
}

// templatePath finds the folder templates/ from the working folder, which is the project's or one below it.
func templatePath(file string) (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(folder, "templates", file)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no folder templates/ with it, here or above")
		}
		folder = filepath.Dir(folder)
	}
}
