package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// readSurvivors reads the list of mutants that may survive: the name of each on a line, and the reason indented below. Lines that begin
// with # are comments.
func readSurvivors(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of survivors: %w", err)
	}
	listed, name := map[string]string{}, ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		reason, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case indented && name != "":
			listed[name] = strings.TrimSpace(listed[name] + " " + reason)
		default:
			name = line
			listed[name] = ""
		}
	}
	for name, reason := range listed {
		if reason == "" {
			return nil, fmt.Errorf("%s: no reason for %q", path, name)
		}
	}
	return listed, nil
}

// compare prints how many mutants of the package were killed, and returns the differences from the list for the files whose path matches
// only. A mutant that timed out counts as killed only if the list says that it loops, because others can time out on a busy computer.
func (t target) compare(mutants []*mutant, listed map[string]string, only *regexp.Regexp) error {
	var problems []error
	count := map[string]int{}
	survived := map[string]bool{}
	for _, m := range mutants {
		status := m.status
		if status == lived || status == timedOut {
			survived[m.name] = true
			reason, known := listed[m.name]
			if !known {
				problems = append(problems, fmt.Errorf("%s and is not listed: %s (line %d)", status, m.name, m.line))
			}
			if status == timedOut && strings.HasPrefix(reason, "loops: ") {
				status = killed
			}
		}
		if status == notReached {
			fmt.Printf("%s: %s (line %d)\n", status, m.name, m.line)
		}
		count[status]++
	}
	for name := range listed {
		path, _, _ := strings.Cut(name, ":")
		if strings.HasPrefix(path, t.folder+"/") && only.MatchString(path) && !survived[name] {
			problems = append(problems, fmt.Errorf("listed and does not survive: %s", name))
		}
	}
	reached := count[killed] + count[lived] + count[timedOut]
	share := 100 * float64(count[killed]) / float64(max(reached, 1))
	fmt.Printf("%-32s %4d mutants, %3d not compiling, %3d not reached; %d of %d reached ones killed, %d timed out: %.1f %%, at least %.0f %%\n",
		t.folder, len(mutants), count[notViable], count[notReached], count[killed], reached, count[timedOut], share, t.least)
	if share < t.least {
		problems = append(problems, fmt.Errorf("%s: %.1f %% of the mutants that tests reach are killed, %.0f %% must be", t.folder, share, t.least))
	}
	return errors.Join(problems...)
}
