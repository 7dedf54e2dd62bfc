package policies

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// The components of deploy that are not policies.

// ofGroup returns the objects of an API group, or all but those.
func ofGroup(m shipped.Manifests, group string, not bool) shipped.Manifests {
	return slices.DeleteFunc(slices.Clone(m), func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(o.GetAPIVersion(), group+"/") == not
	})
}

// ExpectAccepted hands objects to the API server, which validates them strictly and keeps none. It does not know the kinds of
// the Prometheus operator, of which there should be so many.
func ExpectAccepted(t *testing.T, m shipped.Manifests, operators int) {
	t.Helper()
	known := ofGroup(m, "monitoring.coreos.com", true)
	if got := len(m) - len(known); got != operators {
		t.Errorf("%d objects for the Prometheus operator, want %d", got, operators)
	}
	var all bytes.Buffer
	for _, o := range known {
		if err := json.NewEncoder(&all).Encode(o.Object); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := suite.Shared(t).Cluster.KubectlCommand(t.Context(), "apply", "--dry-run=server", "--validate=strict", "--filename=-")
	kubectl.Stdin = &all
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
