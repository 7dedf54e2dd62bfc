package plan

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC54UnknownAnnotations: a source with an annotation of ours that this version does not know is frozen, and the error names
// the known key that is most like it.
func TestC54UnknownAnnotations(t *testing.T) {
	for key, want := range map[string]string{
		"namespace-prefixes":  PrefixAnnotation,
		"namespaces-prefix":   PrefixAnnotation,
		"Namespace-Prefix":    PrefixAnnotation,
		"namespace-selectors": SelectorAnnotation,
		"namesapce-selectors": SelectorAnnotation, // two letters changed places
		"label-selector":      SelectorAnnotation,
		"adopted":             AdoptAnnotation,
		"checksums":           ChecksumAnnotation,
		"exclude-namespace":   InstanceAnnotation, // of the settings, which mean nothing here
	} {
		cm := plantest.Source("platform", "settings")
		cm.Annotations = map[string]string{Domain + "/" + key: "team-a"}
		got := NewRules(testOptions()).ParseSource(cm).Frozen
		if got == nil || !strings.Contains(got.Error(), Domain+"/"+key+": ") || !strings.HasSuffix(got.Error(), " "+want) {
			t.Errorf("%s: got error %v, want one that ends with %s", key, got, want)
		}
	}
}

// TestC54KnownAnnotations: each key of the contract is known, and so are keys of other domains.
func TestC54KnownAnnotations(t *testing.T) {
	text, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range regexp.MustCompile(`(?m)Annotation\s+= Domain \+ "(/.*)"$`).FindAllStringSubmatch(string(text), -1) {
		keys = append(keys, Domain+m[1])
	}
	slices.Sort(keys)
	if known := slices.Sorted(slices.Values(knownAnnotations)); !slices.Equal(keys, known) {
		t.Errorf("known are %v, want those of keys.go, %v", known, keys)
	}
	annotations := map[string]string{"namespace-prefixes": "", "x" + Domain + "/namespace-prefixes": "", Domain + ".example/x": "", Domain: ""}
	for _, key := range keys {
		annotations[key] = "true"
	}
	if err := checkKnown(annotations); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
