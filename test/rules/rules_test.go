package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = `# Title

## How to read

- Not a rule.

## Where the ids come from

Words.

### Elsewhere

Ids in ` + "`a`,\n`test/b/c_test.go`" + `.

The source is ` + "`this`" + `.

| id | what it says | source |
|---|---|---|
| W1 | It fails. | a page |

## What the documents say

Words.

### seed 000: a page

From a project.

- 0.1: It is true,
  in part.
  - ` + "`test/b › Outer › a spec`" + `
  - different, see "a row": it would
    do harm.

## test/b

One sentence.

- A rule that has
  two lines.
  - ` + "`TestIt/with a part`" + `
  - was ` + "`test/c › Outer › a spec`" + `

### Outer › inner:

- A table.
  - ` + "`has, \"all\": entries`" + `
- ` + "`a spec that is its rule`" + `
`

func TestParse(t *testing.T) {
	got, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	want := Page{
		Families: []Family{{Line: 11, Name: "Elsewhere", Places: []string{"a", "test/b/c_test.go"}, IDs: map[string]int{"W1": 20}}},
		Seeds:    map[string]int{"seed 000": 26, "seed 0.1": 30},
		Statements: []Statement{{
			Line: 30, ID: "seed 0.1", Text: "It is true, in part.",
			Held:    []Proof{{Folder: "test/b", Test: Test{Line: 32, Name: "Outer › a spec"}}},
			Differs: []Difference{{Line: 33, Row: "a row", Why: "it would do harm."}},
		}},
		Sections: []Section{{Line: 36, Folder: "test/b", Rules: []Rule{
			{Line: 40, Text: "A rule that has two lines.", Held: []Test{{Line: 42, Name: "TestIt/with a part", Go: true}}, Was: []string{"test/c › Outer › a spec"}},
			{Line: 47, Text: "A table.", Held: []Test{{Line: 48, Name: `Outer › inner: › has, "all": entries`}}},
			{Line: 49, Text: "`a spec that is its rule`", Held: []Test{{Line: 49, Name: "Outer › inner: › a spec that is its rule"}}},
		}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a contributor gets wrong by hand is said with the line and what to do.
func TestParseSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a rule without a test":            {"## test/b\n- A rule.\n", "RULES.md:2: nothing holds this rule"},
		"a section without rules":          {"## test/b\nWords.\n", "RULES.md:1: test/b has no rules"},
		"a test without backquotes":        {"## test/b\n- A rule.\n  - TestIt\n", "RULES.md:3: this is no test"},
		"a test on two lines":              {"## test/b\n- A rule.\n  - `TestIt/a\n    b`\n", "RULES.md:3: this is no test"},
		"a spec without a container":       {"## test/b\n- A rule.\n  - `a spec`\n", "RULES.md:3: this spec has no container"},
		"a former spec without a package":  {"## test/b\n- A rule.\n  - `TestIt`\n  - was `Outer › a spec`\n", "RULES.md:4: this is no former spec"},
		"words between rules":              {"## test/b\n- A rule.\n  - `TestIt`\n\nWords.\n", "RULES.md:5: this is neither a heading nor a rule"},
		"words after a test":               {"## test/b\n- A rule.\n  - `TestIt`\n  and so on\n", "RULES.md:4: a rule is one sentence"},
		"an id without a source":           {"## Where the ids come from\n### A\n| W1 | It fails. |\n", "RULES.md:3: an id needs three cells"},
		"an id that is explained twice":    {"## Where the ids come from\n### A\n| W1 | a | b |\n| W1 | c | d |\n", "RULES.md:4: W1 is explained in line 3 already"},
		"a statement that nothing holds":   {"## What the documents say\n- 0.1: It is true.\n", "RULES.md:2: seed 0.1 is neither held by a test nor different"},
		"a statement twice":                {"## What the documents say\n- 0.1: A.\n  - `a › TestIt`\n- 0.1: B.\n  - `a › TestIt`\n", "RULES.md:4: seed 0.1 is in line 2 already"},
		"a proof without its folder":       {"## What the documents say\n- 0.1: A.\n  - `TestIt`\n", "RULES.md:3: this is neither a test nor a difference"},
		"a difference without its reason":  {"## What the documents say\n- 0.1: A.\n  - different, see \"b\"\n", "RULES.md:3: this is neither a test nor a difference"},
		"a heading that names no folder":   {"## test/b\n- A rule.\n  - `TestIt`\n## Tests of C\n- `x`\n", ""},
		"a container that is used by none": {"## test/b\n### Outer\n- A rule.\n  - `TestIt`\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.text)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	specs := []string{"Outer › inner: › a spec that is its rule", `Outer › inner: › has, "all": entries › one`, `Outer › inner: › has, "all": entries › two`}
	got, err := Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := got.Of("test/b")
	for name, c := range map[string]struct {
		specs []string
		want  []string
	}{
		"none":          {specs: specs},
		"a spec gone":   {specs: specs[1:], want: []string{"RULES.md:49: test/b has no spec"}},
		"a table gone":  {specs: specs[:1], want: []string{"RULES.md:48: test/b has no spec"}},
		"a new spec":    {specs: append([]string{"Outer › other"}, specs...), want: []string{`RULES.md:36: the spec "Outer › other" is not below "## test/b"`}},
		"a longer name": {specs: append([]string{specs[0] + " now"}, specs[1:]...), want: []string{"RULES.md:49: ", "RULES.md:36: the spec "}},
	} {
		t.Run(name, func(t *testing.T) {
			found := s.Differences(c.specs)
			if len(found) != len(c.want) {
				t.Fatalf("got %q, want %q", found, c.want)
			}
			for i := range found {
				if !strings.Contains(found[i], c.want[i]) {
					t.Errorf("got %q, want %q", found[i], c.want[i])
				}
			}
		})
	}
}

func TestTheLongestFolderDecidesOnTheFamilies(t *testing.T) {
	p := Page{Families: []Family{{Name: "one", Places: []string{"test/b", "test/f"}}, {Name: "other", Places: []string{"test/b/c_test.go", "test/d", "test/f"}}}}
	for file, want := range map[string]string{
		"test/b/a_test.go": "one", "test/b/c_test.go": "other", "test/b/e/f_test.go": "one", "test/d/a_test.go": "other", "test/dd/a_test.go": "",
		"test/a_test.go": "", "test/f/a_test.go": "one other",
	} {
		var names []string
		for _, f := range p.FamiliesOf(file) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}
