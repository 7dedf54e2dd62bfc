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
	like := slices.MaxFunc(knownAnnotations, func(a, b string) int { return likeness(key, a) - likeness(key, b) })
	return fmt.Errorf("annotation %s: is not known to this version; the known one most like it is %s", key, like)
}

// likeness returns how many letters two keys have in common at the beginning and at the end.
func likeness(a, b string) int {
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	a, b = a[common:], b[common:]
	for i := 1; i <= min(len(a), len(b)) && a[len(a)-i] == b[len(b)-i]; i++ {
		common++
	}
	return common
}
