package contract

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Namespaces whose copies the API server rejects: case C30.

// TestC30Rejected has the API server reject copies in one namespace: all others are served, that one is retried ever more
// slowly, reported with the reason, and filled when the rejection ends.
func TestC30Rejected(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		refuse func(w *suite.World, namespace string) (run shipped.RunOptions, lift func())
		reason string
	}{
		"quota":   {suite.RefuseByQuota, "exceeded quota: no-more"},
		"webhook": {refuseByWebhook, "not on my watch"},
		"RBAC":    {refuseByRBAC, "cannot create resource"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "bad", "good-1", "good-2")
			bad, good := w.NS("bad"), []string{w.NS("good-1"), w.NS("good-2")}
			run, lift := c.refuse(w, bad)
			run.Args = append(run.Args, "--resync-period=0", "--metrics-bind-address=127.0.0.1:0")
			p := w.StartWith(run)
			began := time.Now()
			source := w.CreateSource(w.Home, "settings")
			w.WaitInSync(source, good...)
			if note := w.WaitEvent(w.Home, "settings", "WriteFailed"); !strings.Contains(note, bad) || !strings.Contains(note, c.reason) {
				t.Errorf("the event does not say where and why: %s", note)
			}
			w.WaitRequests("it is tried again", 3, func(e cluster.Event) bool {
				return e.Object.Namespace == bad && e.Response.Code == http.StatusForbidden
			})
			source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
			w.WaitInSync(source, good...)
			w.Settle(good...)
			w.Until("the metrics say so", func() error {
				got, err := w.Scrape(p)
				writes := got[`mirror_writes_total{operation="create",result="rejected"}`]
				copies := got[`mirror_copies{state="rejected"}`]
				if err == nil && (writes < 3 || copies != 1) {
					err = fmt.Errorf("they are %v", got)
				}
				return err
			})
			w.Absent("settings", bad)
			w.ExpectPaced(began, 2, 2, suite.RequestsFor(w.Requests(), bad, "settings")) // new content is tried at once

			lift()
			w.WaitInSync(source, append(good, bad)...)
			w.Eventually("the event that all is well", w.Noted("settings", "Mirrored", " to 3 namespaces"))
			if n := w.Reasons(w.Home, "settings")["WriteFailed"]; n != 1 {
				t.Errorf("%d events about one rejection, want 1", n)
			}
		})
	}
}

func refuseByWebhook(w *suite.World, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	hook := w.StartWebhook(namespace, func(*admissionv1.AdmissionRequest) error { return errors.New("not on my watch") })
	return run, hook.Allow
}

// refuseByRBAC runs the controller as an account that may write in all namespaces of the world but one.
func refuseByRBAC(w *suite.World, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	account := w.NewAccount("confined", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	})
	grant := func(namespace string) {
		w.Grant(account, namespace, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "delete"}},
		})
	}
	grant(w.NS("good-1"))
	grant(w.NS("good-2"))
	run.Kubeconfig = account.Kubeconfig
	return run, func() { grant(namespace) }
}
