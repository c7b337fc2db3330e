package test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	root   = ".."
	module = "github.com/kubemend/kubemend"
)

// walk names all files of the project to visit, but for hidden folders and what is built.
func walk(t *testing.T, visit func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case file != "." && strings.HasPrefix(entry.Name(), ".") || file == "bin" || file == "out":
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir():
			visit(filepath.ToSlash(file))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// content is the text of a file, which is named by its path from the top of the project.
func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parse reads a Go file: the source, or what is at the path if that is nil.
func parse(t *testing.T, path string, source any) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// textsOf are the strings of a Go file, and its comments if they are documentation, as they are written.
func textsOf(source string, documented bool) []string {
	var texts []string
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), []byte(source), nil, scanner.ScanComments)
	for {
		_, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return texts
		case kind == token.STRING || kind == token.COMMENT && documented:
			texts = append(texts, text)
		}
	}
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}
