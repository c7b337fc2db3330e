package main

import "strings"

// begin and end are the marks around a part of the document; the first part has none.
func (p part) begin() string { return "<!-- " + p.name + ": begin -->\n" }
func (p part) end() string   { return "<!-- " + p.name + ": end -->\n" }

// merged is a document with the parts that were measured in place of those that it had.
func (r *report) merged(document string) string {
	sections := map[string]string{}
	for _, p := range parts() {
		sections[p.name] = p.section(r)
	}
	return merged(document, sections)
}

// merged is a document with these sections in place of those that it had. It keeps its own section of a part for which there is none.
func merged(document string, sections map[string]string) string {
	first, others := parts()[0], parts()[1:]
	head := sections[first.name]
	if head == "" {
		head = document
		for _, p := range others {
			head, _, _ = strings.Cut(head, p.begin())
		}
	}
	var out strings.Builder
	out.WriteString(strings.TrimRight(head, "\n") + "\n")
	for _, p := range others {
		content := sections[p.name]
		if content == "" {
			_, rest, _ := strings.Cut(document, p.begin())
			content, _, _ = strings.Cut(rest, p.end())
		}
		if content != "" {
			out.WriteString("\n" + p.begin() + content + p.end())
		}
	}
	return paged(out.String())
}
