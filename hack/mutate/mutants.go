package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The status of a mutant, in gremlins' words.
const (
	killed   = "KILLED"
	lived    = "LIVED"
	timedOut = "TIMED OUT"
)

// A mutant is a change of one operator. Its name says where it is without line numbers, which every edit would change: the file, the
// function, the kind of the change, and the line with the operator in brackets.
type mutant struct {
	name, status string
}

// readReport reads what gremlins has written about the package in the folder of the tree.
func readReport(report, tree, folder string) ([]mutant, error) {
	content, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	var result struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type, Status string
				Line, Column int
			}
		}
	}
	if err := json.Unmarshal(content, &result); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	var mutants []mutant
	for _, f := range result.Files {
		name := filepath.Join(folder, f.Name)
		s, err := readSource(filepath.Join(tree, name))
		if err != nil {
			return nil, err
		}
		for _, m := range f.Mutations {
			where, err := s.describe(m.Line, m.Column)
			if err != nil {
				return nil, fmt.Errorf("%s:%d:%d: %w", name, m.Line, m.Column, err)
			}
			mutants = append(mutants, mutant{name: fmt.Sprintf("%s: %s: %s", name, m.Type, where), status: m.Status})
		}
	}
	slices.SortFunc(mutants, func(a, b mutant) int { return strings.Compare(a.name, b.name) })
	return mutants, nil
}

// A source is a file of Go.
type source struct {
	content []byte
	lines   []string
	fset    *token.FileSet
	file    *ast.File
}

func readSource(path string) (source, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return source{}, fmt.Errorf("read a source: %w", err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, content, parser.SkipObjectResolution)
	if err != nil {
		return source{}, fmt.Errorf("read a source: %w", err)
	}
	return source{content: content, lines: strings.Split(string(content), "\n"), fset: fset, file: file}, nil
}

// describe names the operator at a place.
func (s source) describe(line, column int) (string, error) {
	if line < 1 || line > len(s.lines) || column < 1 || column > len(s.lines[line-1]) {
		return "", errors.New("there is no such place")
	}
	text := s.lines[line-1]
	before, rest := text[:column-1], text[column-1:]
	var scan scanner.Scanner
	scan.Init(token.NewFileSet().AddFile("", -1, len(rest)), []byte(rest), nil, 0)
	_, operator, _ := scan.Scan()
	after, found := strings.CutPrefix(rest, operator.String())
	if !found {
		return "", errors.New("there is no operator here")
	}
	return s.function(line) + ": " + strings.TrimSpace(before+"["+operator.String()+"]"+after), nil
}

// function is the name of the function that the line is in.
func (s source) function(line int) string {
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && s.fset.Position(f.Pos()).Line <= line && line <= s.fset.Position(f.End()).Line {
			return f.Name.Name
		}
	}
	return "package"
}
