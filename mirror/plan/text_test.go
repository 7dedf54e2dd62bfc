package plan

import (
	"strings"
	"testing"
)

// TestClip: a text never has more bytes than asked for, nor half a character.
func TestClip(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"shorter":                    {"1234567", "1234567"},
		"as long":                    {"12345678", "12345678"},
		"longer":                     {"123456789", "12345…"},
		"a character at the end":     {"123456é", "123456é"},
		"a character at the cut":     {"1234é789", "1234…"},
		"a character before the cut": {"123é6789", "123é…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Clip(tc.text, 8); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestWithoutMiddle keeps the begin and the end of an error.
func TestWithoutMiddle(t *testing.T) {
	begin, end := strings.Repeat("a", 147), strings.Repeat("c", 300)
	for name, tc := range map[string]struct{ text, want string }{
		"450 bytes": {begin + "bbb" + end, begin + "bbb" + end},
		"451 bytes": {begin + "bbbb" + end, begin + "…" + end},
	} {
		t.Run(name, func(t *testing.T) {
			if got := withoutMiddle(tc.text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
