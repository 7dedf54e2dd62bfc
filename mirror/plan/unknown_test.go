package plan

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC54UnknownAnnotations: a source with an annotation of ours that it cannot have is frozen, and the error lists
// those that it can have.
func TestC54UnknownAnnotations(t *testing.T) {
	for _, key := range []string{"namespace-prefixes", "Namespace-Prefix", "exclude-namespace", "prune", "checksums"} {
		cm := plantest.Source("platform", "settings")
		cm.Annotations = map[string]string{Domain + "/" + key: "team-a"}
		want := "annotation " + Domain + "/" + key + ": is not known; a source can have " +
			PrefixAnnotation + ", " + SelectorAnnotation + ", " + RolloutAnnotation + ", " + PausedAnnotation
		if got := NewRules(testOptions()).ParseSource(cm).Frozen; got == nil || got.Error() != want {
			t.Errorf("got error %v, want %s", got, want)
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
	annotations := map[string]string{"namespace-prefixes": "", "x" + Domain + "/namespace-prefixes": "",
		Domain + ".example/x": "", Domain: ""}
	for _, key := range keys {
		annotations[key] = "true"
	}
	if err := checkKnown(annotations); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
