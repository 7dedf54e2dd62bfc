package plan

import (
	"fmt"
	"slices"
	"strings"
)

// knownAnnotations are all annotations of our Domain that a ConfigMap may have.
var knownAnnotations = []string{
	PrefixAnnotation, SelectorAnnotation, RolloutAnnotation, PausedAnnotation, AdoptAnnotation,
	SourceAnnotation, CopyAnnotation, ChecksumAnnotation, InstanceAnnotation, CopiedAnnotation,
}

// sourceAnnotations are those that narrow or hold the targets of a source.
var sourceAnnotations = []string{PrefixAnnotation, SelectorAnnotation, RolloutAnnotation, PausedAnnotation}

// checkKnown returns an error if an annotation of our Domain is not known: a typing error, or of a newer version, may
// narrow or hold the targets. The error names the first such key, and the annotations that a source can have.
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
	return fmt.Errorf("annotation %s: is not known; a source can have %s",
		slices.Min(unknown), strings.Join(sourceAnnotations, ", "))
}
