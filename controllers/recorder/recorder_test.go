package recorder

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestATextIsCutToWhatAnEventMayHold(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a short one stays":                     {"host off", "host off"},
		"one that just fits stays":              {strings.Repeat("a", 1024), strings.Repeat("a", 1024)},
		"a long one says that there was more":   {strings.Repeat("a", 1025), strings.Repeat("a", 1021) + "..."},
		"no character is cut into half":         {strings.Repeat("a", 1020) + "éé" + strings.Repeat("a", 9), strings.Repeat("a", 1020) + "..."},
		"what was not valid before may go away": {strings.Repeat("a", 1020) + "\xff" + strings.Repeat("a", 9), strings.Repeat("a", 1020) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			got := cut(tc.text)
			if got != tc.want {
				t.Errorf("cut(%d bytes) = %q (%d bytes), want %d bytes", len(tc.text), got, len(got), len(tc.want))
			}
			if len(got) > longest || !utf8.ValidString(got) {
				t.Errorf("no event may hold %d bytes, valid %t", len(got), utf8.ValidString(got))
			}
		})
	}
}
