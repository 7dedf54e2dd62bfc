package plan

import (
	"fmt"
	"strings"
)

func quote(s string) string { return fmt.Sprintf("%q", s) }

// maxQuoted is how many bytes of a value a text quotes.
const maxQuoted = 200

// Clip shortens a text to so many bytes, with an ellipsis at its end.
func Clip(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest-len("…")], "") + "…"
}

// withoutMiddle shortens an error that may quote a long value: the cause is at its begin or at its end.
func withoutMiddle(text string) string {
	const head, tail = 150, 300
	if len(text) <= head+tail {
		return text
	}
	return Clip(text, head) + strings.ToValidUTF8(text[len(text)-tail:], "")
}
