package plan

import (
	"fmt"
	"slices"
	"strings"
)

// knownAnnotations are all annotations of our Domain that a ConfigMap may have.
var knownAnnotations = []string{
	PrefixAnnotation, SelectorAnnotation, AdoptAnnotation,
	SourceAnnotation, CopyAnnotation, ChecksumAnnotation, InstanceAnnotation, CopiedAnnotation,
}

// checkKnown returns an error if an annotation of our Domain is not known: a typing error, or of a newer version, may narrow the
// targets. The error names the first such key and the known one that is most like it.
func checkKnown(annotations map[string]string) error {
	var unknown []string
	for key := range annotations {
		if strings.HasPrefix(key, Domain+"/") && !slices.Contains(knownAnnotations, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	key := slices.Min(unknown)
	like := slices.MinFunc(knownAnnotations, func(a, b string) int { return distance(key, a) - distance(key, b) })
	return fmt.Errorf("annotation %s: is not known to this version; the known one most like it is %s", key, like)
}

// distance returns how many letters have to be inserted, removed or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // to the first letters of b, from the first i letters of a
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
