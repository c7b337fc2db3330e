package text

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Screen is a stream that a person reads on a terminal. Much of what is written to it comes out of clusters, files and errors, where
// anybody may have put anything: a kubelet chooses the reason of a condition. A Screen writes control characters, and those that turn the
// direction of text, as Go would spell them, such as \x1b, so that no text can clear a screen, hide a verdict or fill a clipboard (as in
// CVE-2021-25743 of kubectl). Of escape sequences it lets through what a Painter has made.
type Screen struct{ raw io.Writer }

// OnScreen returns a Screen over out, or out itself if it is one.
func OnScreen(out io.Writer) *Screen {
	if s, ok := out.(*Screen); ok {
		return s
	}
	return &Screen{raw: out}
}

// Raw is the stream below a Screen, for JSON, YAML and records; any other stream is returned as it is.
func Raw(out io.Writer) io.Writer {
	if s, ok := out.(*Screen); ok {
		return s.raw
	}
	return out
}

// Write writes p as a person may see it. It returns the length of p unless the stream below fails.
func (s *Screen) Write(p []byte) (int, error) {
	if _, err := s.raw.Write(visible(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

const escape = "\x1b["

// ink is the parameter by which a Screen knows the sequences of a Painter from those of others. It is another one in each process, so that
// it cannot be written into a cluster beforehand. A terminal that saw it would pass over it.
var ink = escape + strconv.FormatUint(binary.NativeEndian.Uint64([]byte(rand.Text())), 10) + ";"

// visible is p without anything that a terminal would obey, but for colours of a Painter, line ends and tabs.
func visible(p []byte) []byte {
	if !bytes.ContainsFunc(p, func(r rune) bool { return r >= utf8.RuneSelf || obeyed(r) }) {
		return p
	}
	var out bytes.Buffer
	for len(p) > 0 {
		if painted, ok := bytes.CutPrefix(p, []byte(ink)); ok {
			out.WriteString(escape)
			p = painted
			continue
		}
		r, size := utf8.DecodeRune(p)
		switch {
		case r == utf8.RuneError && size == 1:
			_, _ = fmt.Fprintf(&out, `\x%02x`, p[0])
		case obeyed(r):
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.Write(p[:size])
		}
		p = p[size:]
	}
	return out.Bytes()
}

// obeyed reports whether a terminal may do something else with r than show it: C0 and C1 control characters, line and paragraph separators,
// and the characters that turn the direction of text (Unicode's property Bidi_Control).
func obeyed(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
