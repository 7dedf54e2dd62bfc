// Package testnames finds the tests that there are in the source.
package testnames

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// declared is the declaration of a test.
var declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// In returns the files of the tests in a folder, by their names.
func In(folder string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, test := range declared.FindAllStringSubmatch(string(content), -1) {
			if test[1] != "TestMain" {
				all[test[1]] = file
			}
		}
	}
	return all, nil
}

// Folders returns the folders of a module that have tests, as go test takes them.
func Folders(module string) ([]string, error) {
	all := map[string]bool{}
	err := filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != module && isApart(path) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			folder, err := filepath.Rel(module, filepath.Dir(path))
			if err != nil {
				return err
			}
			all["./"+folder] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(all)), err
}

// isApart reports whether a folder in that of a module has no package of it.
func isApart(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	name := filepath.Base(folder)
	return err == nil || name == "testdata" || name == "bin" || strings.HasPrefix(name, ".")
}

// Matching returns those of a module's folders that have a test which a pattern
// for -run of go test chooses, with some of its rows or all.
func Matching(module, pattern string, folders []string) ([]string, error) {
	chosen, err := regexp.Compile(withoutRows(pattern))
	if err != nil {
		return nil, fmt.Errorf("-run %s: %w", pattern, err)
	}
	var matching []string
	for _, folder := range folders {
		tests, err := In(filepath.Join(module, folder))
		if err != nil {
			return nil, err
		}
		for test := range tests {
			if chosen.MatchString(test) {
				matching = append(matching, folder)
				break
			}
		}
	}
	return matching, nil
}

// withoutRows returns what of a pattern is about tests: what comes after a slash
// is about rows, up to the next alternative.
func withoutRows(pattern string) string {
	var tests strings.Builder
	depth := 0 // of brackets
	inRow := false
	for _, char := range pattern {
		switch char {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '/':
			inRow = inRow || depth == 0
		case '|':
			inRow = inRow && depth > 0
		}
		if !inRow {
			tests.WriteRune(char)
		}
	}
	return tests.String()
}
