package checks

import (
	"os"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestReservedNames compares the lists of reserved names in the policies and in the reference with the one in the code.
func TestReservedNames(t *testing.T) {
	inPolicy := "['" + strings.Join(plan.ReservedNames, "', '") + "']"
	inText := ": `" + strings.Join(plan.ReservedNames, "`, `") + "`."
	for file, want := range map[string]string{
		"components/admission/confined/policy.yaml":   inPolicy,
		"components/admission/publishers/policy.yaml": inPolicy,
		"components/protect-copies/policy.yaml":       inPolicy,
		"docs/reference.md":                           inText,
	} {
		content, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(strings.Fields(string(content)), " "); !strings.Contains(text, want) {
			t.Errorf("%s does not contain the list %s", file, want)
		}
	}
}
