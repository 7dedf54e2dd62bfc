package checks

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
)

// finding is what kube-score says about an object.
type finding struct{ check, summary string }

// accepted is a finding that stays, in the installations that are named.
type accepted struct {
	finding
	in  []string
	why string
}

var both = []string{byDefault, everything}

// acceptedFindings are all findings of kube-score. The test fails at a new finding, and at one that is gone.
var acceptedFindings = []accepted{
	{finding{"container-resources", "CPU limit is not set"}, both,
		"a limit slows a fan-out down while cores idle; under contention the request decides"},
	{finding{"container-resource-requests-equal-limits", "CPU requests does not match limits"}, both,
		"as above"},
	{finding{"container-cpu-requests-equal-limits", "CPU requests does not match limits"}, both,
		"as above"},
	{finding{"container-resource-requests-equal-limits", "Memory requests does not match limits"}, both,
		"the request is for a usual cluster, the limit for a large one: equal, one of them would be wrong"},
	{finding{"container-memory-requests-equal-limits", "Memory requests does not match limits"}, both,
		"as above"},
	{finding{"container-ephemeral-storage-request-and-limit", "Ephemeral Storage request is not set"}, both,
		"it has no volumes and cannot write to its root: only its log counts, which the kubelet rotates"},
	{finding{"container-ephemeral-storage-request-and-limit", "Ephemeral Storage limit is not set"}, both,
		"as above, and with a limit the Pod could be evicted for a long log"},
	{finding{"container-image-pull-policy", "ImagePullPolicy is not set to Always"}, both,
		"with Always no Pod starts while the registry is away, and images should be named by digest anyway"},
	{finding{"container-security-context-user-group-id", "The container is running with a low user ID"}, both,
		"the image says which user it is, runAsNonRoot that it is not root; OpenShift refuses a number that is not of its choice"},
	{finding{"pod-networkpolicy", "The pod does not have a matching NetworkPolicy"}, []string{byDefault},
		"who may reach it, and where the API server is, differs from cluster to cluster: a component has it"},
	{finding{"deployment-has-host-podantiaffinity", "Deployment does not have a host podAntiAffinity set"}, []string{everything},
		"topologySpreadConstraints spread over nodes and zones"},
}

// TestKubeScore compares what kube-score finds, with its optional checks too, with what is accepted.
func TestKubeScore(t *testing.T) {
	for _, i := range installations {
		wanted := map[finding]bool{}
		for _, a := range acceptedFindings {
			wanted[a.finding] = slices.Contains(a.in, i.name)
			if a.why == "" {
				t.Errorf("%v: accepted without a reason", a.finding)
			}
		}
		t.Run(i.name, func(t *testing.T) {
			found := score(t, documents(t, i.render(t)))
			for f := range found {
				if !wanted[f] {
					t.Errorf("%s: %q: fix it, or accept it with a reason", f.check, f.summary)
				}
			}
			for f, want := range wanted {
				if want && !found[f] {
					t.Errorf("%s: %q: no longer found, take it off the list", f.check, f.summary)
				}
			}
		})
	}
}

// score returns what kube-score finds in the objects, annotations that would silence it or not.
func score(t *testing.T, objects []byte) map[finding]bool {
	t.Helper()
	var problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program(t, *kubeScore), "score", "--output-format=json", "--kubernetes-version=v1.37",
		"--all-default-optional", "--disable-ignore-checks-annotations", "-")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(objects), &problems
	out, err := cmd.Output() // it fails if it has found something
	var scored []struct {
		Name   string `json:"object_name"`
		Checks []struct {
			Check   struct{ ID string }
			Grade   int
			Skipped bool
			// Comments tell of one check that did not pass, or of none.
			Comments []struct{ Summary string }
		}
	}
	if parseErr := json.Unmarshal(out, &scored); parseErr != nil || len(scored) == 0 {
		t.Fatalf("kube-score: %v, %v: %s%s", err, parseErr, problems.Bytes(), out)
	}
	found := map[finding]bool{}
	for _, object := range scored {
		for _, c := range object.Checks {
			if c.Skipped || c.Grade == gradeAllOK {
				continue
			}
			for _, comment := range c.Comments {
				found[finding{c.Check.ID, comment.Summary}] = true
			}
			if len(c.Comments) == 0 {
				found[finding{c.Check.ID, ""}] = true
			}
		}
	}
	return found
}

// gradeAllOK is the grade of a check that found nothing.
const gradeAllOK = 10
