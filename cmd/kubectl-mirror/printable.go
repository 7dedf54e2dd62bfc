package main

import (
	"strings"
	"unicode"
)

// printable replaces what a terminal could take for more than text: a tenant may write an error of a webhook.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
