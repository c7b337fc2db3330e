// Command inventory writes an SPDX document with the checksums of programs and the modules they were built from, and the texts of all
// licences.
//
// It reads the modules from the programs, because a go.mod also lists modules that only tests need.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	name := flag.String("name", "kubemend", "name of the program")
	version := flag.String("version", "dev", "version of the program")
	seconds := flag.Int64("created", 0, "when, in seconds since 1970; usually the time of the commit")
	out := flag.String("out", "out", "folder to write to")
	flag.Parse()
	if err := run(context.Background(), *name, *version, time.Unix(*seconds, 0).UTC(), *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, version string, created time.Time, out string, programs []string) error {
	modules, err := builtFrom(programs)
	if err != nil {
		return err
	}
	if err := locate(ctx, modules); err != nil {
		return err
	}
	var unknown []error
	for _, m := range modules {
		if err := m.readLicences(); err != nil {
			unknown = append(unknown, err)
		}
	}
	if err := errors.Join(unknown...); err != nil {
		return err
	}
	listed, err := document(name, version, created, programs, modules)
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{name + ".spdx.json": listed, "THIRD-PARTY-LICENSES.txt": notices(name, modules)} {
		if err := os.WriteFile(filepath.Join(out, file), content, 0o644); err != nil { //nolint:gosec // users of the release read them
			return fmt.Errorf("write the inventory: %w", err)
		}
	}
	fmt.Printf("%d modules\n", len(modules))
	return nil
}

// A module is a part of a program. The standard library is a module with the path std.
type module struct {
	path, version, folder string
	sum                   string // as in go.sum
	licence               string // SPDX expression
	texts                 []licenceText
}

type licenceText struct{ name, content string }

// builtFrom returns the modules of all programs, sorted, without the project's own module.
func builtFrom(programs []string) ([]*module, error) {
	if len(programs) == 0 {
		return nil, errors.New("no program to look into")
	}
	found := map[string]*module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("read what %s was built from: %w", program, err)
		}
		found["std"] = &module{path: "std", version: strings.TrimPrefix(info.GoVersion, "go")}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			found[d.Path] = &module{path: d.Path, version: d.Version, sum: d.Sum}
		}
	}
	var modules []*module
	for _, m := range found {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return modules, nil
}
