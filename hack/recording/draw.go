package main

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"time"
)

// The size of the terminal and of its characters.
const (
	columns = 116
	rows    = 30

	charWidth, lineHeight = 7.2, 17.0
	margin, bar           = 14.0, 26.0
)

// How long the animation waits: at most for a pause in the output, at least between lines, and at the end before it starts again.
const (
	longest  = 1500 * time.Millisecond
	shortest = 220 * time.Millisecond
	last     = 6 * time.Second
)

// commentary matches a line of the demo: time, actor, text.
var commentary = regexp.MustCompile(`^( *[+-][0-9.]+s  )(\S.*?)( {2,}.*)?$`)

// shown returns when each line appears in the animation, and how long the animation takes. Long pauses are shortened.
func shown(lines []line) (at []time.Duration, whole time.Duration) {
	for i, l := range lines {
		if i > 0 {
			pause := l.at - lines[i-1].at
			whole += min(max(pause, shortest), longest)
		}
		at = append(at, whole)
	}
	return at, whole + last
}

// draw returns an SVG with all lines below each other, which moves up by a line whenever the next one appears.
func draw(title string, lines []line) []byte {
	at, whole := shown(lines)
	width, height := columns*charWidth+2*margin, rows*lineHeight+2*margin+bar
	var out bytes.Buffer
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="%s">`,
		width, height, width, height, html.EscapeString(title))
	p(`<!-- Made by hack/recording from the .cast beside it. -->`)
	p(`<style>`)
	p(`text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d0d7de;white-space:pre}`)
	p(`.h{fill:#fff;font-weight:bold}.t{fill:#8b949e}.a{fill:#79c0ff}`)
	p(`#s{animation:s %.2fs step-end infinite}`, whole.Seconds())
	p(`@keyframes s{`)
	for i := range lines {
		p(`%.3f%%{transform:translateY(%.0fpx)}`, 100*at[i].Seconds()/whole.Seconds(), up(i+1))
	}
	p(`}`)
	p(`@media (prefers-reduced-motion:reduce){#s{animation:none}}`)
	p(`</style>`)
	p(`<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`)
	p(`<text class="t" x="%.0f" y="%.0f">$ %s</text>`, margin, bar-6, html.EscapeString(title))
	p(`<svg x="%.0f" y="%.0f" width="%.0f" height="%.0f">`, margin, bar+margin/2, columns*charWidth, rows*lineHeight+margin/2)
	p(`<g id="s" transform="translate(0 %.0f)">`, up(len(lines)))
	for i, l := range lines {
		if l.text != "" {
			p(`<text y="%.0f">%s</text>`, float64(i+1)*lineHeight-4, coloured(lines, i))
		}
	}
	p(`</g></svg></svg>`)
	return out.Bytes()
}

// up returns the offset of the lines when n of them are visible: the last of these is at the bottom.
func up(n int) float64 { return float64(rows-n) * lineHeight }

// coloured returns one line with colours.
func coloured(lines []line, i int) string {
	text := lines[i].text
	if m := commentary.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf(`<tspan class="t">%s</tspan><tspan class="a">%s</tspan>%s`,
			html.EscapeString(m[1]), html.EscapeString(m[2]), html.EscapeString(m[3]))
	}
	isHeading := i+1 < len(lines) && text != "" && len(lines[i+1].text) == len(text) && regexp.MustCompile(`^-+$`).MatchString(lines[i+1].text)
	if isHeading {
		return `<tspan class="h">` + html.EscapeString(text) + `</tspan>`
	}
	return html.EscapeString(text)
}
