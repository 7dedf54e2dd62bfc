package checks

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/overlay"
)

// notFollowed are the rules of kube-score that the manifests do not follow.
var notFollowed = map[string]string{
	"container-resource-requests-equal-limits":      "the request is for a usual cluster, the limit for a large one",
	"container-memory-requests-equal-limits":        "as above",
	"container-cpu-requests-equal-limits":           "there is no CPU limit: it slows a fan-out down while cores idle",
	"container-ephemeral-storage-request-and-limit": "only its log takes storage; a limit could evict the Pod for a long log",
	"container-image-pull-policy":                   "with Always no Pod starts while the registry is away",
	"container-security-context-user-group-id":      "the image sets the user; OpenShift refuses a number that it did not choose",
	"deployment-has-host-podantiaffinity":           "topologySpreadConstraints spread over nodes and zones",
}

// TestKubeScore has kube-score find no fault with all components, by its optional rules too.
func TestKubeScore(t *testing.T) {
	var objects bytes.Buffer
	everything := overlay.Above("deploy/base", "", overlay.Components(t)...)
	for _, object := range overlay.Render(t, map[string]string{"top": everything}) {
		objects.WriteString("---\n")
		if err := json.NewEncoder(&objects).Encode(object.Object); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program(t, "kube-score"), "score", "--kubernetes-version=v1.37",
		"--output-format=json", "--all-default-optional", "--disable-ignore-checks-annotations",
		"--ignore-container-cpu-limit", "-")
	cmd.Stdin = &objects
	out, err := cmd.Output() // it fails if it has found something
	var scored []struct {
		Name   string `json:"object_name"`
		Checks []struct {
			Check    struct{ ID string }
			Grade    int
			Skipped  bool
			Comments []struct{ Summary string }
		}
	}
	if parseErr := json.Unmarshal(out, &scored); parseErr != nil || len(scored) == 0 {
		t.Fatalf("kube-score: %v, %v: %s", err, parseErr, out)
	}
	found := map[string]bool{}
	for _, object := range scored {
		for _, c := range object.Checks {
			const allOK = 10
			if c.Skipped || c.Grade == allOK {
				continue
			}
			found[c.Check.ID] = true
			if notFollowed[c.Check.ID] == "" {
				t.Errorf("%s: %s: %v: follow it, or say why not", object.Name, c.Check.ID, c.Comments)
			}
		}
	}
	for rule := range notFollowed {
		if !found[rule] {
			t.Errorf("%s is followed", rule)
		}
	}
}

// program returns the path of a tool that has to be built.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("make bin/%s builds it: %v", name, err)
	}
	return path
}
