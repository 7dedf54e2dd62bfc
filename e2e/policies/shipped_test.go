package policies

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestEachPermissionIsUsed lets the controller do everything it can do, once as it is and once without WatchList, whose
// fallback lists. By the audit log of the API server it is refused nothing, and no permission of the shipped roles is
// idle.
func TestEachPermissionIsUsed(t *testing.T) {
	t.Parallel()
	var requests []cluster.Event
	for _, watchList := range []string{"true", "false"} {
		w := suite.New(t, "a", "b")
		patch := fmt.Sprintf(`{"metadata": {"annotations": {"%s/leader-elect-resource-namespace": %q}}}`,
			plan.Domain, w.Installed.Namespace)
		_, err := w.Admin.RbacV1().ClusterRoleBindings().Patch(w.Context(), w.Account(), types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		leases := w.Admin.CoordinationV1().Leases(w.Installed.Namespace)
		w.CleanUp(leases.Delete(w.Context(), "mirror-controller", metav1.DeleteOptions{}))
		p := w.StartWith(shipped.RunOptions{
			Env:  []string{"KUBE_FEATURE_WatchListClient=" + watchList},
			Args: []string{"--leader-elect"},
		})
		doEverything(w)
		w.Stop(p)
		for _, e := range w.Requests() {
			if e.User.Username != w.Installed.User {
				t.Errorf("request of another user than the ServiceAccount: %v", e)
			}
			// A policy may judge by an older state of a namespace, and the write is tried again.
			if e.Response.Code == 403 && !strings.Contains(e.Response.Message, suite.Refusal) {
				t.Errorf("a permission is missing: %v", e)
			}
		}
		requests = append(requests, w.Requests()...)
	}
	ExpectUsed(t, suite.New(t).ShippedRules(), requests)
}

// doEverything brings about each kind of request: create, update, patch and delete copies, read what is in the
// way, a source that is gone and a namespace that opted out, and write events, one of them twice and one on a copy.
func doEverything(w *suite.World) {
	w.Helper()
	w.Create(w.NS("b"), "settings") // foreign
	src := w.CreateSource(w.Home, "settings")
	w.WaitInSync(src, w.NS("a"))
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
	w.WaitEvent(w.Home, "settings", plan.ReasonMirrored)
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"})), w.NS("a"))
	w.WaitReasons(w.Home, "settings", map[string]int{plan.ReasonForeign: 1, plan.ReasonMirrored: 2})
	src = w.Edit(w.Home, "settings", suite.WithData(src.Data)) // and so the text is that of the first Mirrored
	w.WaitInSync(src, w.NS("a"))
	w.WaitReasons(w.Home, "settings", map[string]int{plan.ReasonForeign: 1, plan.ReasonMirrored: 3})
	w.Edit(w.NS("a"), "settings", suite.WithData(nil))
	w.WaitEvent(w.NS("a"), "settings", plan.ReasonRestored)
	w.WaitInSync(src, w.NS("a"))
	w.Edit(w.NS("a"), "settings", suite.WithLabel("team", "red"), suite.WithData(nil)) // and so the repair is a patch
	w.WaitInSync(src, w.NS("a"))
	w.LabelNamespace(w.NS("a"), w.Label, plan.OptOutValue)
	w.WaitGone("settings", w.NS("a"))
	w.LabelNamespace(w.NS("a"), w.Label, "")
	w.WaitInSync(src, w.NS("a"))
	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.WaitGone("settings", w.NS("a"))
}

// TestPodIsRestricted asks the API server to take the Pod of the shipped Deployment into the shipped namespace, which
// enforces the Pod Security Standard restricted, and one as root.
func TestPodIsRestricted(t *testing.T) {
	t.Parallel()
	site := suite.Shared(t)
	create := func(change func(*corev1.SecurityContext)) error {
		deployment, err := site.Installed.Manifests.Deployment()
		if err != nil {
			t.Fatal(err)
		}
		spec := deployment.Spec.Template.Spec
		change(spec.Containers[0].SecurityContext)
		_, err = site.Admin.CoreV1().Pods(deployment.Namespace).Create(t.Context(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: spec}, dryCreate)
		return err
	}
	if err := create(func(*corev1.SecurityContext) {}); err != nil {
		t.Error(err)
	}
	err := create(func(c *corev1.SecurityContext) { c.RunAsUser = new(int64(0)) })
	if !strings.Contains(fmt.Sprint(err), `violates PodSecurity "restricted`) {
		t.Errorf("got error %v, want that root violates restricted", err)
	}
}
