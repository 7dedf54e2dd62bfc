package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestInstall installs install.yaml as a user would. The controller is ready, with no permissions on the node and with what
// a Pod gets to know of its cluster, and the policies confine it. Its metrics are behind the Service, and kubectl mirror check
// finds nothing to do.
func TestInstall(t *testing.T) {
	w := newWorld(t)
	w.remove()
	began := time.Now()
	w.install()
	w.figure("install.yaml applied, to ready", time.Since(began), 15*time.Second)
	w.expectMirrors("installed")

	pod := w.pods()[0]
	process := fmt.Sprintf("/proc/%d/", w.process(pod))
	status := read(t, process+"status")
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, "\n"+want+"\n") {
			t.Errorf("the process does not have %q:\n%s", want, status)
		}
	}
	mounts := read(t, process+"mounts")
	if root, _, _ := strings.Cut(mounts, "\n"); !strings.Contains(root, " / ") || !strings.Contains(root, " ro,") {
		t.Errorf("its root can be written: %s", root)
	}
	if !strings.Contains(mounts, " /run/secrets/kubernetes.io/serviceaccount tmpfs ro,") &&
		!strings.Contains(mounts, " /var/run/secrets/kubernetes.io/serviceaccount tmpfs ro,") {
		t.Errorf("it has no projected token:\n%s", mounts)
	}
	w.waitMetric("pods/"+pod.Name+":8080", "mirror_confined 1\n")
	if log := w.sh("kubectl -n mirror-system logs deployment/mirror-controller"); !strings.Contains(log, `server="https://10.96.0.1:443"`) {
		t.Errorf("it does not say that it has the configuration of a Pod:\n%s", log)
	}

	w.sh("kubectl apply -f deploy/components/monitoring/service.yaml")
	w.waitMetric("services/mirror-controller-metrics:metrics", "mirror_build_info{")
	out := w.sh("kubectl mirror check")
	if !strings.Contains(out, " 0 to do, 0 not checked.") {
		t.Errorf("kubectl mirror check:\n%s", out)
	}
}

// waitMetric waits until there is a line that begins so in the metrics that the API server gets from a Pod, or by a Service.
func (w *world) waitMetric(from, line string) {
	w.Helper()
	w.until(line+" in the metrics", func() error {
		metrics, err := w.try(w.ctx, repository, "kubectl get --raw /api/v1/namespaces/mirror-system/"+from+"/proxy/metrics")
		if err == nil && !strings.Contains(metrics, "\n"+line) {
			err = fmt.Errorf("not among %d bytes from %s", len(metrics), from)
		}
		return err
	})
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
