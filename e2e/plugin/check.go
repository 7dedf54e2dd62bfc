package plugin

import (
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// StartChecked runs the controller, and has the Deployment report its Pod ready.
func (w *Installed) StartChecked() *shipped.Process {
	w.Helper()
	p := w.Start()
	w.Report(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas, s.ReadyReplicas, s.Replicas = 1, 1, 1 })
	w.Until("somebody leads", func() error {
		if got := w.Checked(w.Cluster.AdminKubeconfig()); !strings.Contains(got.out, "leader  ok") {
			return fmt.Errorf("got\n%s\n%s", got.out, got.err)
		}
		return nil
	})
	return p
}

// Report changes the status of the Deployment, in place of the controllers that this cluster does without.
func (w *Installed) Report(change func(*appsv1.DeploymentStatus)) {
	w.Helper()
	deployments := w.Admin.AppsV1().Deployments(w.Namespace)
	d, err := deployments.Get(w.Context(), w.FullName, metav1.GetOptions{})
	if err == nil {
		d.Status.ObservedGeneration = d.Generation
		change(&d.Status)
		_, err = deployments.UpdateStatus(w.Context(), d, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// as returns a user who asks about the installation.
func (w *Installed) as(kubeconfig string) *user {
	return &user{w.World, kubeconfig, []string{"--controller=" + w.Namespace + "/" + w.FullName},
		[]string{anonymous(w.World, w.FullName), "mirror-controller", anonymous(w.World, w.Namespace), "mirror-system"}}
}

// Checked runs kubectl mirror check on the installation.
func (w *Installed) Checked(kubeconfig string, args ...string) answer {
	w.Helper()
	got := w.as(kubeconfig).ask("check " + strings.Join(args, " "))
	host, err := os.Hostname()
	if err != nil {
		w.Fatal(err)
	}
	got.out = strings.ReplaceAll(got.out, host+" ", "mirror-controller-6d4cf56db6-zx8lq ")
	return got
}

// lacks returns the lines that are missing.
func (a answer) lacks(want ...string) (missing []string) {
	for _, line := range want {
		if !strings.Contains("\n"+a.out, "\n"+line) {
			missing = append(missing, line)
		}
	}
	return missing
}

// ExpectLines fails the test if the answer does not have a line for each of these, which have a name, a result and the
// beginning of a text.
func ExpectLines(t *testing.T, got answer, code int, want ...string) {
	t.Helper()
	if missing := got.lacks(want...); got.code != code || len(missing) > 0 {
		t.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s",
			got.code, got.out, code, strings.Join(missing, "\n"), got.err)
	}
}
