package main

import "strings"

// The marks around the parts that follow the first one. What is outside of the marks of a part is of another run, if only that part was
// measured.
const (
	cyclesBegin, cyclesEnd   = "<!-- power cycles: begin -->\n", "<!-- power cycles: end -->\n"
	nodesBegin, nodesEnd     = "<!-- node checks: begin -->\n", "<!-- node checks: end -->\n"
	fleetBegin, fleetEnd     = "<!-- fleet: begin -->\n", "<!-- fleet: end -->\n"
	hostileBegin, hostileEnd = "<!-- hostile: begin -->\n", "<!-- hostile: end -->\n"
	cliBegin, cliEnd         = "<!-- command line: begin -->\n", "<!-- command line: end -->\n"
)

// merged is a document with what was measured in the place of what it had.
func (r report) merged(document string) string {
	return merged(document, r.checksMarkdown(), r.cyclesMarkdown(), r.nodesMarkdown(), r.fleetMarkdown(), r.hostileMarkdown(), r.cliMarkdown())
}

// merged is a document with the parts that were measured in the place of those it had. An empty part was not measured.
func merged(document, checks, cycles, nodes, fleet, hostile, cli string) string {
	head, _, _ := strings.Cut(document, cyclesBegin)
	head, _, _ = strings.Cut(head, nodesBegin)
	head, _, _ = strings.Cut(head, fleetBegin)
	head, _, _ = strings.Cut(head, hostileBegin)
	head, _, _ = strings.Cut(head, cliBegin)
	if checks != "" {
		head = checks
	}
	var out strings.Builder
	out.WriteString(strings.TrimRight(head, "\n") + "\n")
	for _, part := range []struct{ begin, end, measured string }{
		{cyclesBegin, cyclesEnd, cycles}, {nodesBegin, nodesEnd, nodes}, {fleetBegin, fleetEnd, fleet},
		{hostileBegin, hostileEnd, hostile}, {cliBegin, cliEnd, cli},
	} {
		content := part.measured
		if content == "" {
			_, rest, _ := strings.Cut(document, part.begin)
			content, _, _ = strings.Cut(rest, part.end)
		}
		if content != "" {
			out.WriteString("\n" + part.begin + content + part.end)
		}
	}
	return out.String()
}
