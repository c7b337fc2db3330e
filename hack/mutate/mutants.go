package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The results for a mutant.
const (
	killed     = "killed"
	lived      = "lived"
	timedOut   = "timed out"
	notReached = "not reached"
	notViable  = "not compiling"
)

// A mutant is a change of one operator. Its name consists of the file, the function, the kind of the change, and the line with the operator
// in brackets. It has no line number, which every edit of the file would change.
type mutant struct {
	id           int
	name, status string
	file         string
	line         int
}

// Kinds of changes.
const (
	negation  = "CONDITIONALS_NEGATION" // == and !=, < and >=, > and <=
	boundary  = "CONDITIONALS_BOUNDARY" // < and <=, > and >=
	base      = "ARITHMETIC_BASE"       // + and -, * and /, % to *
	increment = "INCREMENT_DECREMENT"   // ++ and --
	negative  = "INVERT_NEGATIVES"      // -x to x
)

// arithmetic are the helper functions that replace an operator.
var arithmetic = map[token.Token]string{
	token.ADD: "mutantAdd", token.SUB: "mutantSub", token.MUL: "mutantMul", token.QUO: "mutantQuo", token.REM: "mutantRem",
}

// A mutator finds the mutants of one file, and rewrites the file so that it contains all of them. The number of a mutant selects it at run
// time. Lines keep their numbers.
type mutator struct {
	path    string // the path in the names of mutants
	content []byte
	fset    *token.FileSet
	file    *ast.File
	// failures counts by line how often the line did not compile. After the first time the line gets no mutants of arithmetic, which often
	// are those of strings. After the second time it gets no mutants.
	failures map[int]int
	// constants turns constants into variables, where that compiles, so that they can be mutated.
	constants bool
	mutants   []*mutant
	edits     []edit
}

// An edit inserts text at a position, or replaces the text up to end.
type edit struct {
	at, end int
	text    string
	// depth orders insertions at one position: the outer expression begins first and ends last.
	depth int
}

func newMutator(path string, failures map[int]int, constants bool) (*mutator, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a source: %w", err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, content, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read a source: %w", err)
	}
	return &mutator{path: filepath.ToSlash(path), content: content, fset: fset, file: file, failures: failures, constants: constants}, nil
}

// rewrite returns the file with its mutants, numbered from first on.
func (m *mutator) rewrite(first int) []byte {
	depth, constant := 0, 0
	var ends []func()
	ast.Inspect(m.file, func(n ast.Node) bool {
		if n == nil {
			depth--
			ends[len(ends)-1]()
			ends = ends[:len(ends)-1]
			return false
		}
		depth++
		end := func() {}
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				if m.lone(n) {
					m.edits = append(m.edits, edit{at: m.offset(n.TokPos), end: m.offset(n.TokPos) + len("const"), text: "var"})
				} else {
					constant++
					end = func() { constant-- }
				}
			}
		case *ast.ArrayType: // the length of an array is constant
			constant++
			end = func() { constant-- }
		case *ast.BinaryExpr:
			if constant == 0 {
				m.binary(n, first, depth)
			}
		case *ast.UnaryExpr:
			if constant == 0 && n.Op == token.SUB {
				if id, ok := m.add(first, negative, n.OpPos, "-"); ok {
					at := m.offset(n.OpPos)
					m.edits = append(m.edits, edit{at: at, end: at + 1, text: fmt.Sprintf("mutantNeg(%d, ", id), depth: depth})
					m.insert(n.End(), ")", -depth)
				}
			}
		case *ast.IncDecStmt:
			if id, ok := m.add(first, increment, n.TokPos, n.Tok.String()); ok {
				at := m.offset(n.TokPos)
				operator := map[token.Token]string{token.INC: "+=", token.DEC: "-="}[n.Tok]
				x := m.text(n.X)
				m.edits = append(m.edits, edit{at: at, end: at + 2, text: fmt.Sprintf(" %s mutantOne(%d, %s)", operator, id, x), depth: depth})
			}
		}
		ends = append(ends, end)
		return true
	})
	return m.apply()
}

// lone reports whether decl is a single constant with a computed value, which can become a variable.
func (m *mutator) lone(decl *ast.GenDecl) bool {
	if !m.constants || decl.Lparen.IsValid() || len(decl.Specs) != 1 || m.failures[m.fset.Position(decl.Pos()).Line] > 0 {
		return false
	}
	spec, ok := decl.Specs[0].(*ast.ValueSpec)
	if !ok || len(spec.Values) != 1 {
		return false
	}
	_, ok = spec.Values[0].(*ast.BinaryExpr)
	return ok
}

func (m *mutator) binary(n *ast.BinaryExpr, first, depth int) {
	operator := n.Op.String()
	if helper := arithmetic[n.Op]; helper != "" {
		if isText(n.X) || isText(n.Y) {
			return
		}
		if id, ok := m.add(first, base, n.OpPos, operator); ok {
			at := m.offset(n.OpPos)
			m.insert(n.Pos(), fmt.Sprintf("%s(%d, ", helper, id), depth)
			m.edits = append(m.edits, edit{at: at, end: at + len(operator), text: ","})
			m.insert(n.End(), ")", -depth)
		}
		return
	}
	before, after := "", ""
	switch n.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if id, ok := m.add(first, boundary, n.OpPos, operator); ok {
			before, after = fmt.Sprintf("mutantEdge(%d, ", id), fmt.Sprintf(", %s == %s)", m.text(n.X), m.text(n.Y))
		}
		fallthrough
	case token.EQL, token.NEQ:
		if id, ok := m.add(first, negation, n.OpPos, operator); ok {
			m.insert(n.Pos(), fmt.Sprintf("mutantNot(%d, ", id)+before, depth)
			m.insert(n.End(), after+")", -depth)
		}
	}
}

// isText reports whether n contains a string. Strings have no other operator than +.
func isText(n ast.Expr) bool {
	switch n := n.(type) {
	case *ast.BasicLit:
		return n.Kind == token.STRING || n.Kind == token.CHAR
	case *ast.BinaryExpr:
		return n.Op == token.ADD && (isText(n.X) || isText(n.Y))
	case *ast.ParenExpr:
		return isText(n.X)
	}
	return false
}

func (m *mutator) add(first int, kind string, pos token.Pos, operator string) (int, bool) {
	position := m.fset.Position(pos)
	name := fmt.Sprintf("%s: %s: %s", m.path, kind, m.describe(position, operator))
	one := &mutant{id: first + len(m.mutants), name: name, file: m.path, line: position.Line, status: lived}
	m.mutants = append(m.mutants, one)
	if failed := m.failures[position.Line]; failed > 1 || failed > 0 && kind == base {
		one.status = notViable
		return 0, false
	}
	return one.id, true
}

// describe returns the function and the line with the operator in brackets.
func (m *mutator) describe(position token.Position, operator string) string {
	line := strings.Split(string(m.content), "\n")[position.Line-1]
	before, after := line[:position.Column-1], line[position.Column-1+len(operator):]
	function := "package"
	for _, decl := range m.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && m.fset.Position(f.Pos()).Line <= position.Line && position.Line <= m.fset.Position(f.End()).Line {
			function = f.Name.Name
		}
	}
	return function + ": " + strings.TrimSpace(before+"["+operator+"]"+after)
}

func (m *mutator) offset(pos token.Pos) int { return m.fset.Position(pos).Offset }

// text returns the source of n on one line.
func (m *mutator) text(n ast.Expr) string {
	text := m.content[m.offset(n.Pos()):m.offset(n.End())]
	return string(bytes.Join(bytes.Fields(text), []byte(" ")))
}

func (m *mutator) insert(pos token.Pos, text string, depth int) {
	m.edits = append(m.edits, edit{at: m.offset(pos), end: m.offset(pos), text: text, depth: depth})
}

func (m *mutator) apply() []byte {
	slices.SortStableFunc(m.edits, func(a, b edit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.depth - b.depth
	})
	var out bytes.Buffer
	done := 0
	for _, e := range m.edits {
		out.Write(m.content[done:e.at])
		out.WriteString(e.text)
		done = e.end
	}
	out.Write(m.content[done:])
	return out.Bytes()
}

// helpers returns a file for package name with the functions that the mutants call.
func helpers(name string, mutants int) []byte {
	return []byte(strings.NewReplacer("package mutated", "package "+name, "999999", strconv.Itoa(mutants)).Replace(helpersFile))
}

// It writes the numbers of the evaluated mutants to the file that the variable MUTANTS_REACHED names.
const helpersFile = `package mutated

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

var (
	mutantChosen, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsReached  [999999 + 1]atomic.Bool
	mutantLog       = mutantOpen()
)

func mutantOpen() *os.File {
	log, err := os.OpenFile(os.Getenv("MUTANTS_REACHED"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil
	}
	return log
}

func mutantIs(n int) bool {
	if mutantLog != nil && !mutantsReached[n].Swap(true) {
		fmt.Fprintln(mutantLog, n)
	}
	return mutantChosen == n
}

func mutantNot(n int, v bool) bool { return v != mutantIs(n) }

func mutantEdge(n int, v, equal bool) bool { return v != (mutantIs(n) && equal) }

func mutantNeg[T mutantNumber](n int, x T) T {
	if mutantIs(n) {
		return x
	}
	return -x
}

func mutantOne[T mutantNumber](n int, _ T) T {
	var one T = 1
	if mutantIs(n) {
		return -one
	}
	return one
}

func mutantAdd[T mutantNumber](n int, x, y T) T {
	if mutantIs(n) {
		return x - y
	}
	return x + y
}

func mutantSub[T mutantNumber](n int, x, y T) T {
	if mutantIs(n) {
		return x + y
	}
	return x - y
}

func mutantMul[T mutantNumber](n int, x, y T) T {
	if mutantIs(n) {
		return x / y
	}
	return x * y
}

func mutantQuo[T mutantNumber](n int, x, y T) T {
	if mutantIs(n) {
		return x * y
	}
	return x / y
}

func mutantRem[T mutantNumber](n int, x, y T) T {
	if mutantIs(n) {
		return x * y
	}
	return T(int64(x) % int64(y))
}
`
