package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Pages that show output which nothing prints any more are worse than none.
func TestThePagesShowWhatIsPrinted(t *testing.T) {
	var printed strings.Builder
	for _, pattern := range []string{"../page/testdata/*.txt", "../page/testdata/*/*.txt", "../simulate/testdata/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			printed.Write(content)
		}
	}
	for _, page := range []string{"status.md", "simulate.md"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "cli", page))
		if err != nil {
			t.Fatal(err)
		}
		shown := blocks(string(content))
		if len(shown) == 0 {
			t.Errorf("%s shows no output", page)
		}
		for _, block := range shown {
			if !strings.Contains(printed.String(), block) {
				t.Errorf("%s shows what no golden file has; copy it from there anew:\n%s", page, block)
			}
		}
	}
}

// blocks are the fenced blocks of a page that are of no language, or of text: those are output. A block that names its golden file is compared
// with that in test/fences.
func blocks(page string) []string {
	var all []string
	var block []string
	inside, output := false, false
	for line := range strings.SplitSeq(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```") && !inside:
			inside, output, block = true, line == "```" || line == "```text", nil
		case strings.HasPrefix(line, "```"):
			if inside = false; output {
				all = append(all, strings.Join(block, "\n"))
			}
		case inside:
			block = append(block, line)
		}
	}
	return all
}
