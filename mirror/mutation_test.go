package mirror

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

func init() { // each cache logs a warning that the detector is on; errors still go to stderr
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

// TestC39MutationIsNoticed: a process that modifies an object of the controller's cache panics, in each test of this
// package and in each history.
func TestC39MutationIsNoticed(t *testing.T) {
	const modifies = "MODIFIES"
	modify := map[string]func(scene){
		"a source": func(s scene) { s.controller.cache.View("settings").Sources[0].ConfigMap.Data["key"] = "modified" },
		"a namespace": func(s scene) {
			for ns := range s.controller.cache.Namespaces() {
				ns.Labels["modified"] = "true"
			}
		},
	}
	if do := modify[os.Getenv(modifies)]; do != nil { // in a process of its own
		runScene(t, append(teams(1, "team-"), source()), func(_ *testing.T, s scene) {
			time.Sleep(time.Minute)
			do(s)
			time.Sleep(time.Minute)
		})
		return
	}
	for what := range modify {
		t.Run(what, func(t *testing.T) {
			process := exec.Command(os.Args[0], "-test.run", "^TestC39MutationIsNoticed$")
			process.Env = append(os.Environ(), modifies+"="+what)
			out, err := process.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "ALTERED!") {
				t.Errorf("nobody noticed that %s was modified: %v\n%s", what, err, out)
			}
		})
	}
}
