package plan

import (
	"fmt"
	"strings"
)

// maxQuoted is how many bytes of a value a text quotes. The API server accepts
// 1,024 bytes in the text of an event, which may quote several values.
const maxQuoted = 200

// quoteAnnotation returns an annotation as key="value".
func quoteAnnotation(key, value string) string {
	return fmt.Sprintf("%s=%q", key, Clip(value, maxQuoted))
}

// Clip shortens a text to so many bytes, with an ellipsis at its end.
func Clip(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest-len("…")], "") + "…"
}

// withoutMiddle shortens an error that may quote a long value: the cause is at
// its begin or at its end. Both lengths are in bytes.
func withoutMiddle(text string) string {
	const head, tail = 150, 300
	if len(text) <= head+tail {
		return text
	}
	return Clip(text, head) + strings.ToValidUTF8(text[len(text)-tail:], "")
}
