package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Are is the verb for n things.
func Are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// Count is how many things there are.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Number is Count with the verb.
func Number(n int, thing string) string { return Count(n, thing) + " " + Are(n) }

// Clause is a sentence as it goes on in another one: without the capital at its beginning, if it begins with a word that is not a name.
func Clause(sentence string) string {
	first, _, _ := strings.Cut(sentence, " ")
	if slices.Contains(openings, first) {
		return strings.ToLower(sentence[:1]) + sentence[1:]
	}
	return sentence
}

// joined are those of the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// openings are the words, other than names, that sentences of holds begin with.
var openings = []string{"A", "An", "As", "How", "It", "No", "Remediation", "The", "There", "Whether"}

// Brief is a duration as people write it: 10m, not 10m0s.
func Brief(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
