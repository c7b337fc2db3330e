package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// pageColumns is how wide the document is at most, as all pages are.
const pageColumns = 100

// paged is a document of which no line is wider than the columns, as far as it can be broken: text is wrapped, and a table that is wider becomes
// several, each with the first columns of the whole.
func paged(document string) string {
	var out strings.Builder
	lines := slices.Collect(strings.Lines(document))
	for i := 0; i < len(lines); {
		end := i + 1
		switch kind := lineKind(lines[i]); kind {
		case tableLine:
			for end < len(lines) && lineKind(lines[end]) == tableLine {
				end++
			}
			out.WriteString(narrowed(lines[i:end]))
		case textLine, itemLine:
			for end < len(lines) && lineKind(lines[end]) == textLine {
				end++
			}
			out.WriteString(wrapped(lines[i:end], kind == itemLine))
		default:
			out.WriteString(lines[i])
		}
		i = end
	}
	return out.String()
}

// What a line of the document is.
const (
	otherLine = iota // nothing, a heading, or a mark around a part
	textLine
	itemLine
	tableLine
)

func lineKind(line string) int {
	switch {
	case strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"), strings.HasPrefix(line, "<!--"):
		return otherLine
	case strings.HasPrefix(line, "|"):
		return tableLine
	case strings.HasPrefix(line, "- "):
		return itemLine
	}
	return textLine
}

// wrapped is a paragraph, or the item of a list, in lines of its own. What would begin another item at the beginning of a line stays behind the word before.
func wrapped(lines []string, item bool) string {
	indent := ""
	if item {
		indent = "  "
	}
	var out strings.Builder
	width := 0
	for i, word := range strings.Fields(strings.Join(lines, " ")) {
		long := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width+1+long > pageColumns && !slices.Contains([]string{"-", "+", "*", "#"}, word):
			out.WriteString("\n" + indent)
			width = len(indent)
		default:
			out.WriteByte(' ')
			width++
		}
		out.WriteString(word)
		width += long
	}
	return out.String() + "\n"
}

// narrowed is a table, or the least number of tables that it has to be divided into.
func narrowed(lines []string) string {
	rows := make([][]string, 0, len(lines))
	for _, line := range lines {
		rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"))
	}
	keys := 1 + max(0, slices.Index(rows[min(1, len(rows)-1)], "---")) // they end with the first column that is text
	figures := len(rows[0]) - keys
	for parts := 1; parts <= figures; parts++ {
		tables := make([]string, 0, parts)
		widest := 0
		for part := range parts {
			from, to := keys+figures*part/parts, keys+figures*(part+1)/parts
			var table strings.Builder
			for _, row := range rows {
				line := "|" + strings.Join(slices.Concat(row[:keys], row[from:to]), "|") + "|"
				widest = max(widest, utf8.RuneCountInString(line))
				table.WriteString(line + "\n")
			}
			tables = append(tables, table.String())
		}
		if widest <= pageColumns || parts == figures {
			return strings.Join(tables, "\n")
		}
	}
	return strings.Join(lines, "")
}
