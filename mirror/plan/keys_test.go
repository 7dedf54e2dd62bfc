package plan

import (
	"os"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC54KnownAnnotations: each annotation of keys.go is known, and so are keys of other domains.
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
	known := slices.Sorted(slices.Values(slices.Concat(ourAnnotations, sourceAnnotations)))
	if !slices.Equal(keys, known) {
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

// TestC42NoObjectCanCarryTheMark: the API server refuses each mark as an annotation. An annotation that it accepts is
// not taken for one.
func TestC42NoObjectCanCarryTheMark(t *testing.T) {
	refused := func(key string) bool {
		return len(apivalidation.ValidateAnnotations(texts{key: ""}, field.NewPath("metadata", "annotations"))) > 0
	}
	for _, mark := range []string{payloadMark, contentMark, selfMark, othersMark} {
		t.Run(mark, func(t *testing.T) {
			if !refused(mark) {
				t.Error("got it accepted as an annotation by the API server, want it refused")
			}
		})
	}
	r, src := testRules(), plantest.Source("platform", "settings")
	for _, key := range []string{"payload", "a/payload", "payload/payload", "mirror-controller.github.io/payload"} {
		t.Run(key, func(t *testing.T) {
			if refused(key) {
				t.Error("got it refused by the API server, want it accepted: it forges nothing")
			}
			have := plantest.Copy(r, src, "team-a", plantest.Data("key", "edited"),
				plantest.Annotation(key, string(payloadDigest(src))))
			want := payloadDigest(&corev1.ConfigMap{Data: have.Data})
			r.Strip(have)
			if got := payloadDigest(have); got != want || have.Data != nil {
				t.Errorf("got digest %x, data %v, want digest %x of its content", got, have.Data, want)
			}
		})
	}
}
