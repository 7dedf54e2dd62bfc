package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// serve returns the address of an API server that shows one ConfigMap and nothing else.
func serve(t *testing.T, cm *corev1.ConfigMap) string {
	cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/namespaces/"+cm.Namespace+"/configmaps/"+cm.Name {
			_ = json.NewEncoder(w).Encode(cm)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: r.URL.Path + " is forbidden"})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestSeen asks about one ConfigMap as a user who may get it and do nothing else, with and without the settings of the
// controller.
func TestSeen(t *testing.T) {
	o := plan.NewOptions()
	rules, source := plan.NewRules(&o), plantest.Source("platform", "settings")
	adopt := plantest.Annotation(plan.AdoptAnnotation, plan.AdoptValue)
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want string
	}{
		"a source":             {source.DeepCopy(), "asks to be mirrored"},
		"a copy":               {plantest.Copy(rules, source, "team-a"), "is a copy of platform/settings, by its annotations, of instance default.\nIts content matches"},
		"an edited copy":       {plantest.Copy(rules, source, "team-a", plantest.Data("key", "edited")), "Its content does not match its checksum"},
		"foreign":              {plantest.ConfigMap("team-a", "settings"), "kubectl annotate -n team-a configmap settings mirror-controller.github.io/adopt=true\n"},
		"foreign, handed over": {plantest.ConfigMap("team-a", "settings", adopt), "To take it back: "},
		"foreign, held":        {plantest.ConfigMap("team-a", "settings", plantest.Finalizer), "cannot be handed over"},
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, tc.cm)
			for _, settings := range []string{"", "--namespace-prefix=team-"} {
				for command, exit := range map[string]int{"status": exitError, "explain": exitYes} {
					args := append([]string{command, tc.cm.Namespace + "/settings", "--server=" + address}, strings.Fields(settings)...)
					code, stdout, stderr := runFor(t, args...)
					if code != exit || !strings.Contains(stdout, tc.want) || !strings.Contains(stderr, "mirror-controller-viewer") {
						t.Errorf("%q: got exit code %d, %q and %q, want %d, and in it %q", args, code, stdout, stderr, exit, tc.want)
					}
				}
			}
		})
	}
}
