package fences

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocksAreRead(t *testing.T) {
	text := "# One.\n```sh not-run\nkubectl get -f a \\\n  b | grep \"$X y\" # no\n```\n## Two\n- item\n  ```yaml\n  a:\n    b: 1\n  ```\n```\nplain\n```\n"
	got, err := Of("p.md", text)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{"p.md", 2, "sh", []string{"not-run"}, "kubectl get -f a \\\n  b | grep \"$X y\" # no\n", "One."},
		{"p.md", 8, "yaml", []string{}, "a:\n  b: 1\n", "Two"},
		{"p.md", 12, "", []string{}, "plain\n", "Two"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	commands, err := got[0].Commands()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Command{{3, []string{"kubectl", "get", "-f", "a", "b"}}, {4, []string{"grep", Unknown + " y"}}}, commands); diff != "" {
		t.Error(diff)
	}
	if _, err := Of("p.md", "```sh\n"); err == nil {
		t.Error("a fence that is never closed is no error")
	}
	if _, err := (&Block{Text: "echo 'a\n"}).Commands(); err == nil {
		t.Error("what no shell reads is no error")
	}
}
