package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// locate finds the source of every module, which go build has downloaded.
func locate(ctx context.Context, modules []*module) error {
	args := []string{"mod", "download", "-json"}
	wanted := map[string]*module{}
	for _, m := range modules {
		if m.path != "std" {
			args = append(args, m.path+"@"+m.version)
			wanted[m.path] = m
			continue
		}
		root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("find the standard library: %w", err)
		}
		m.folder = strings.TrimSpace(string(root))
	}
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return fmt.Errorf("find the source of the modules: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var answer struct{ Path, Dir string }
		err := decoder.Decode(&answer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read where the modules are: %w", err)
		}
		wanted[answer.Path].folder = answer.Dir
	}
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// readLicences reads every licence and notice in the root of the module. It returns an error for a module without a known licence; a
// maintainer has to check that one.
func (m *module) readLicences() error {
	entries, err := os.ReadDir(m.folder)
	if err != nil {
		return fmt.Errorf("read the licences of %s: %w", m.path, err)
	}
	var kinds []string
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(m.folder, e.Name()))
		if err != nil {
			return fmt.Errorf("read the licences of %s: %w", m.path, err)
		}
		m.texts = append(m.texts, licenceText{e.Name(), string(content)})
		kinds = append(kinds, licencesIn(string(content))...)
	}
	slices.Sort(kinds)
	m.licence = strings.Join(slices.Compact(kinds), " AND ")
	if m.licence == "" {
		return fmt.Errorf("%s %s, in %s, has no licence that is known here", m.path, m.version, m.folder)
	}
	return nil
}

// known are the accepted licences, recognised by words that no other licence in the list contains.
var known = []struct {
	name  string
	words string
	not   string
}{
	{"Apache-2.0", "apache license version 2.0", ""},
	{"MPL-2.0", "mozilla public license version 2.0", ""},
	{"MIT", "permission is hereby granted free of charge to any person obtaining a copy", ""},
	{"ISC", "permission to use copy modify andor distribute this software for any purpose", ""},
	{"BSD-3-Clause", "to endorse or promote products derived from this software", ""},
	{"BSD-2-Clause", "redistributions of source code must retain the above copyright notice", "to endorse or promote products derived from"},
}

var (
	punctuation = regexp.MustCompile(`[^a-z0-9. ]+`)
	spaces      = regexp.MustCompile(`\s+`)
)

func licencesIn(text string) []string {
	plain := punctuation.ReplaceAllString(spaces.ReplaceAllString(strings.ToLower(text), " "), "")
	plain = spaces.ReplaceAllString(plain, " ")
	var found []string
	for _, k := range known {
		if strings.Contains(plain, k.words) && (k.not == "" || !strings.Contains(plain, k.not)) {
			found = append(found, k.name)
		}
	}
	return found
}

// notices returns the texts of all licences, as the licences require.
func notices(name string, modules []*module) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s contains parts of the following modules, under the licences that follow.\n", name)
	for _, m := range modules {
		for _, text := range m.texts {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%s\n\n%s\n", line, m.path, m.version, text.name, line, strings.TrimSpace(text.content))
		}
	}
	return b.Bytes()
}

var line = strings.Repeat("-", 80)
