package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strings"
)

// widen adds to a coverage profile what the tests execute and Go does not count: the conditions of the cases of a switch that is reached, and
// constants and variables of the package. gremlins tries no mutant that the profile says is not covered. module is the path that the names of
// the profile begin with, and the root of the module is the working directory.
func widen(profile, module string) error {
	content, err := os.ReadFile(profile) //nolint:gosec // gremlins names it
	if err != nil {
		return fmt.Errorf("read the coverage: %w", err)
	}
	files, err := parseProfile(string(content))
	if err != nil {
		return err
	}
	var added strings.Builder
	for name, covered := range files {
		s, err := readSource(strings.TrimPrefix(name, module+"/"))
		if err != nil {
			return err
		}
		for _, b := range s.executed(covered) {
			fmt.Fprintf(&added, "%s:%d.%d,%d.%d 1 1\n", name, b.from.line, b.from.column, b.to.line, b.to.column)
		}
	}
	if err := os.WriteFile(profile, append(content, added.String()...), 0o644); err != nil { //nolint:gosec // as go test writes it
		return fmt.Errorf("write the coverage: %w", err)
	}
	return nil
}

// A place is one in a file.
type place struct{ line, column int }

func (p place) before(q place) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}

// A block is code that the tests execute.
type block struct{ from, to place }

// parseProfile returns the blocks of each file that the tests execute.
func parseProfile(content string) (map[string][]block, error) {
	files := map[string][]block{}
	for line := range strings.Lines(content) {
		name, rest, found := strings.Cut(strings.TrimSpace(line), ".go:")
		if !found {
			continue // the mode
		}
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.from.line, &b.from.column, &b.to.line, &b.to.column, &statements, &count); err != nil {
			return nil, fmt.Errorf("read the coverage: %q: %w", line, err)
		}
		if count > 0 {
			files[name+".go"] = append(files[name+".go"], b)
		}
	}
	return files, nil
}

// executed are the blocks of s that a profile does not have.
func (s source) executed(covered []block) []block {
	at := func(pos token.Pos) place {
		position := s.fset.Position(pos)
		return place{position.Line, position.Column}
	}
	var blocks []block
	for _, decl := range s.file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && (d.Tok == token.CONST || d.Tok == token.VAR) {
			blocks = append(blocks, block{at(d.Pos()), at(d.End())})
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		statement, ok := n.(*ast.SwitchStmt)
		if !ok {
			return true
		}
		start := at(statement.Switch)
		if slices.ContainsFunc(covered, func(b block) bool { return !start.before(b.from) && start.before(b.to) }) {
			for _, clause := range statement.Body.List {
				if c, ok := clause.(*ast.CaseClause); ok {
					blocks = append(blocks, block{at(c.Case), at(c.Colon)})
				}
			}
		}
		return true
	})
	return blocks
}
