package contract

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
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
		"policy":  {refuseByPolicy, "not in this house"},
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
				if err == nil && (got[`mirror_writes_total{operation="create",result="rejected"}`] < 3 || got[`mirror_copies{state="failed"}`] != 1) {
					err = fmt.Errorf("they are %v", got)
				}
				return err
			})
			w.Absent("settings", bad)
			w.ExpectPaced(began, 2, 2, suite.RequestsFor(w.Requests(), bad, "settings")) // new content is tried at once

			lift()
			w.WaitInSync(source, append(good, bad)...)
			w.Eventually("the event that all is well", w.Noted("settings", "Mirrored", "Synced to 3 namespaces"))
			if n := w.Reasons(w.Home, "settings")["WriteFailed"]; n != 1 {
				t.Errorf("%d events about one rejection, want 1", n)
			}
		})
	}
}

func refuseByPolicy(w *suite.World, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	name, forbidden := "refuse-"+namespace, metav1.StatusReasonForbidden
	api := w.Admin.AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(w.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: suite.OnlyNamespace(namespace),
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: suite.WritesOfConfigMaps}},
			},
			MatchConditions: w.ControllersAndProbes(),
			Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: "not in this house", Reason: &forbidden}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = api.ValidatingAdmissionPolicyBindings().Create(w.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	lift = func() {
		w.CleanUp(api.ValidatingAdmissionPolicyBindings().Delete(w.Background(), name, metav1.DeleteOptions{}))
		w.CleanUp(api.ValidatingAdmissionPolicies().Delete(w.Background(), name, metav1.DeleteOptions{}))
	}
	w.Cleanup(lift)
	w.UntilProbesAre(suite.RefusedProbes, namespace)
	return run, lift
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
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
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

// TestC30BrokenWebhook puts a webhook before a namespace that cannot be called: the API server answers with an
// error of its own, which does not say that it rejects. It is reported all the same, and the others are served.
func TestC30BrokenWebhook(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "good", "bad")
	good, bad := w.NS("good"), w.NS("bad")
	nobody, none := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone
	hooks := w.Admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(w.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: bad},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    bad + ".broken.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &nobody},
			Rules:                   []admissionregistrationv1.RuleWithOperations{suite.WritesOfConfigMaps},
			NamespaceSelector:       suite.OnlyNamespace(bad),
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove := func() { w.CleanUp(hooks.Delete(w.Background(), bad, metav1.DeleteOptions{})) }
	w.Cleanup(remove)
	w.UntilProbesAre(suite.RefusedProbes, bad)
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, good)
	w.WaitEvent(w.Home, "settings", mirror.ReasonWriteFailed)
	remove()
	w.WaitInSync(source, good, bad)
}
