package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestInstall installs install.yaml as a user would. The controller is ready, with no permissions on the node and with
// what a Pod gets to know of its cluster, and the policies confine it. Its metrics are behind the Service, the command of
// an alert shows them, and kubectl mirror check finds nothing to do.
func TestInstall(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	w.install(1)
	w.measured("install.yaml applied, to ready", time.Since(began), 15*time.Second)
	w.publish("settings", "installed")

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
	if !strings.Contains(mounts, "/run/secrets/kubernetes.io/serviceaccount tmpfs ro,") {
		t.Errorf("it has no projected token:\n%s", mounts)
	}
	log := w.sh("kubectl -n mirror-system logs deployment/mirror-controller")
	if !strings.Contains(log, `server="https://10.96.0.1:443"`) {
		t.Errorf("it does not say that it has the configuration of a Pod:\n%s", log)
	}

	w.sh("kubectl apply -f deploy/components/monitoring/service.yaml")
	w.untilSucceeds("kubectl get --raw /api/v1/namespaces/mirror-system/services/mirror-controller-metrics:metrics" +
		"/proxy/metrics | grep '^mirror_build_info{'")
	ofAlert := w.sh("grep -m 1 /proxy/metrics deploy/components/monitoring/alerts.yaml")
	w.sh(strings.ReplaceAll(ofAlert, "{{ $labels.namespace }}", "mirror-system"))
	if out := w.sh("kubectl mirror check"); !strings.Contains(out, " 0 to do, 0 not checked, 0 not probed.") {
		t.Errorf("kubectl mirror check:\n%s", out)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
