package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "rewrite generated documents")

// Users read the flags in docs/flags.md; it says what the program says.
func TestFlagsAreDocumented(t *testing.T) {
	const path = "docs/flags.md"
	got := flagsDocument()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is stale; run make generate", path)
	}
}

func flagsDocument() string {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	defaults().addFlags(fs)
	var b strings.Builder
	b.WriteString("# Flags of the manager\n\nGenerated from the program by `make generate`. Durations are written like `90s` or `5m`.\n\n")
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		usage := strings.NewReplacer("\n", "<br>", "|", "\\|").Replace(f.Usage)
		fmt.Fprintf(&b, "| `--%s` | `%s` | %s |\n", f.Name, f.DefValue, usage)
	})
	return b.String()
}

func TestAFlagThatCannotBeIsRefusedWithWhatWasExpected(t *testing.T) {
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	defaults().addFlags(fs)
	err := fs.Parse([]string{"--unclaimed-machine-health-checks=fight"})
	if err == nil || !strings.Contains(err.Error(), "observe, act, ignore") {
		t.Errorf("got %v, want an error that names what can be said", err)
	}
}
