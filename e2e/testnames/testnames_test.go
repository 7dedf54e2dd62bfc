package testnames

import (
	"slices"
	"testing"
)

// TestMatching chooses among the tests of this package and of another one, as
// -run of go test does.
func TestMatching(t *testing.T) {
	folders, err := Folders("..")
	if err != nil || !slices.Contains(folders, "./testnames") || slices.Contains(folders, "./tools") {
		t.Fatalf("got folders %q, %v, want those with tests", folders, err)
	}
	const here = "./testnames"
	for pattern, isHere := range map[string]bool{
		"TestMatching":                      true,
		"Match":                             true,
		"^TestMatching$":                    true,
		"^TestMatch$":                       false,
		"TestNone|TestMatching":             true,
		"(None|Match)ing":                   true,
		"TestMatching/a row":                true,
		"TestNone/TestMatching":             false,
		"TestNone/row|TestMatching/row/row": true,
		"Test[M/]atching":                   true,
		"TestMain":                          false,
	} {
		t.Run(pattern, func(t *testing.T) {
			got, err := Matching("..", pattern, folders)
			if err != nil || slices.Contains(got, here) != isHere {
				t.Errorf("got %q, %v, want this folder: %v", got, err, isHere)
			}
		})
	}
	if got, err := Matching("..", "Test(", folders); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}
