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
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a contributor gets wrong by hand is said with the line and what to do.
func TestParseSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an id without a source":          {"## Where the ids come from\n### A\n| W1 | It fails. |\n", "RULES.md:3: an id needs three cells"},
		"an id that is explained twice":   {"## Where the ids come from\n### A\n| W1 | a | b |\n| W1 | c | d |\n", "RULES.md:4: W1 is explained in line 3 already"},
		"a statement that nothing holds":  {"## What the documents say\n- 0.1: It is true.\n", "RULES.md:2: seed 0.1 is neither held by a test nor different"},
		"a statement twice":               {"## What the documents say\n- 0.1: A.\n  - `a › TestIt`\n- 0.1: B.\n  - `a › TestIt`\n", "RULES.md:4: seed 0.1 is in line 2 already"},
		"a proof without its folder":      {"## What the documents say\n- 0.1: A.\n  - `TestIt`\n", "RULES.md:3: this is neither a test nor a difference"},
		"a difference without its reason": {"## What the documents say\n- 0.1: A.\n  - different, see \"b\"\n", "RULES.md:3: this is neither a test nor a difference"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.text)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
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
