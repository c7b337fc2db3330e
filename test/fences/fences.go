// Package fences reads the fenced code blocks of the documentation: commands, manifests and outputs.
package fences

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A Block is a fenced code block of a page.
type Block struct {
	Page     string // relative to the root of the project
	Line     int    // the line of the opening fence
	Language string // the first word after the opening fence
	Words    []string
	Text     string
	Section  string // the heading above the block
}

// The words after the language. They are not rendered.
const (
	NotRun   = "not-run"  // for sh: no test runs the block
	Fragment = "fragment" // for yaml: the block is part of an object, or no object of Kubernetes
	Sample   = "sample"   // for text: another program prints it, or it depends on versions
)

// Has reports whether the opening fence has this word after the language.
func (b *Block) Has(word string) bool { return slices.Contains(b.Words, word) }

// At returns the page and line of the block.
func (b *Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Ref names a section of a page.
func Ref(page, section string) string { return page + "#" + section }

// Pages returns README.md and all pages below docs, relative to the root of the project.
func Pages(root string) ([]string, error) {
	found := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Ext(path) != ".md":
			return nil
		}
		page, err := filepath.Rel(root, path)
		found = append(found, filepath.ToSlash(page))
		return err
	})
	return found, err
}

// Read returns the blocks of a page.
func Read(root, page string) ([]Block, error) {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		return nil, err
	}
	return Of(page, string(content))
}

// Of returns the blocks of a text, which is the content of a page.
func Of(page, text string) ([]Block, error) {
	var (
		all             []Block
		open            *Block
		indent, section string
		number          int
	)
	for line := range strings.Lines(text) {
		number++
		bare := strings.TrimLeft(line, " ")
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			language, words, _ := strings.Cut(info, " ")
			open = &Block{Page: page, Line: number, Language: language, Words: strings.Fields(words), Section: section}
			indent = line[:len(line)-len(bare)]
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent)
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the fence is never closed", open.At())
	}
	return all, nil
}

// A Command is one call of a program. Unknown replaces the output of variables and other commands in its words.
type Command struct {
	Line  int // the line in the page
	Words []string
}

// Unknown replaces text that only the shell knows.
const Unknown = "UNKNOWN"

// Parse parses a block of sh.
func (b *Block) Parse() (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(b.Text), b.At())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.At(), err)
	}
	return file, nil
}

// Commands returns all calls of programs in a block of sh, including those in pipes, loops and substitutions.
func (b *Block) Commands() ([]Command, error) {
	file, err := b.Parse()
	if err != nil {
		return nil, err
	}
	var all []Command
	syntax.Walk(file, func(n syntax.Node) bool {
		if call, is := n.(*syntax.CallExpr); is && len(call.Args) > 0 {
			c := Command{Line: b.Line + int(call.Pos().Line())}
			for _, arg := range call.Args {
				c.Words = append(c.Words, literal(arg.Parts))
			}
			all = append(all, c)
		}
		return true
	})
	return all, nil
}

// Written returns the files that a block of sh redirects output to or names as the output of a command.
func (b *Block) Written() ([]string, error) {
	file, err := b.Parse()
	if err != nil {
		return nil, err
	}
	var files []string
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Redirect:
			if n.Op == syntax.RdrOut || n.Op == syntax.AppOut {
				files = append(files, literal(n.Word.Parts))
			}
		case *syntax.CallExpr:
			for i, arg := range n.Args[:max(0, len(n.Args)-1)] {
				if word := literal(arg.Parts); word == "-o" || word == "--output" {
					files = append(files, literal(n.Args[i+1].Parts))
				}
			}
		}
		return true
	})
	return files, nil
}

func literal(parts []syntax.WordPart) string {
	var word bytes.Buffer
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			word.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			word.WriteString(p.Value)
		case *syntax.DblQuoted:
			word.WriteString(literal(p.Parts))
		default:
			word.WriteString(Unknown)
		}
	}
	return word.String()
}
