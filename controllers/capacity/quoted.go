package capacity

import (
	"strings"
	"unicode"
)

// Texts of others are bounded where they are quoted: a tenant may have written megabytes into a condition, an annotation or an error, or
// what a terminal obeys.
const mostQuoted = 2048

// oneLine is a message of several lines in one, without the bullets, and bounded.
func oneLine(message string) string {
	message = bounded(message, 2*mostQuoted)
	var parts []string
	for line := range strings.Lines(message) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "* "); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	text = strings.ReplaceAll(text, ":; ", ": ") // a line that introduces others ends with a colon
	return strings.TrimSuffix(bounded(visible(text), mostQuoted), ".")
}

// bounded is text of at most so many bytes. Where something is left out it ends with an ellipsis.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis // a character may be cut
}

// visible is text in which each character that is obeyed and not shown is replaced.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
