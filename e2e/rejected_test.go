package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// Namespaces whose copies the API server rejects: case C30.

// TestC30Rejected has the API server reject copies in one namespace: all others are served, that one is retried ever more
// slowly, reported with the reason, and filled when the rejection ends.
func TestC30Rejected(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		refuse func(w *world, namespace string) (run shipped.RunOptions, lift func())
		reason string
	}{
		"quota":   {refuseByQuota, "exceeded quota: no-more"},
		"policy":  {refuseByPolicy, "not in this house"},
		"webhook": {refuseByWebhook, "not on my watch"},
		"RBAC":    {refuseByRBAC, "cannot create resource"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "bad", "good-1", "good-2")
			bad, good := w.ns("bad"), []string{w.ns("good-1"), w.ns("good-2")}
			run, lift := c.refuse(w, bad)
			run.Args = append(run.Args, "--resync-period=0", "--metrics-bind-address=127.0.0.1:0")
			p := w.startWith(run)
			began := time.Now()
			source := w.createSource(w.home, "settings")
			w.waitInSync(source, good...)
			if note := w.waitEvent(w.home, "settings", "WriteFailed"); !strings.Contains(note, bad) || !strings.Contains(note, c.reason) {
				t.Errorf("the event does not say where and why: %s", note)
			}
			w.waitRequests("it is tried again", 3, func(e cluster.Event) bool {
				return e.Object.Namespace == bad && e.Response.Code == http.StatusForbidden
			})
			source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
			w.waitInSync(source, good...)
			w.settle(good...)
			w.until("the metrics say so", func() error {
				got, err := w.scrape(p)
				if err == nil && (got[`mirror_writes_total{operation="create",result="rejected"}`] < 3 || got[`mirror_copies{state="failed"}`] != 1) {
					err = fmt.Errorf("they are %v", got)
				}
				return err
			})
			w.absent("settings", bad)
			w.expectPaced(began, 2, 2, requestsFor(w.requests(), bad, "settings")) // new content is tried at once

			lift()
			w.waitInSync(source, append(good, bad)...)
			w.eventually("the event that all is well", w.noted("settings", "Mirrored", "Synced to 3 namespaces"))
			if n := w.reasons(w.home, "settings")["WriteFailed"]; n != 1 {
				t.Errorf("%d events about one rejection, want 1", n)
			}
		})
	}
}

func refuseByQuota(w *world, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	w.eventually("the cluster's certificate is there, so that the count is known", func() error {
		if w.seen.ConfigMap(namespace, "kube-root-ca.crt") == nil {
			return errors.New("not yet")
		}
		return nil
	})
	const name, what = "no-more", "count/configmaps"
	quotas := w.admin.CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(w.ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.until("the quota is counted", func() error {
		quota, err := quotas.Get(w.ctx, name, metav1.GetOptions{})
		if used := quota.Status.Used[what]; err == nil && used.Value() != 1 {
			err = errors.New("not yet")
		}
		return err
	})
	w.untilProbesAre(refusedProbes, namespace)
	return run, func() { w.cleanUp(quotas.Delete(w.ctx, name, metav1.DeleteOptions{})) }
}

func refuseByPolicy(w *world, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	name, forbidden := "refuse-"+namespace, metav1.StatusReasonForbidden
	api := w.admin.AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(w.ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: onlyNamespace(namespace),
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: writesOfConfigMaps}},
			},
			MatchConditions: w.controllersAndProbes(),
			Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: "not in this house", Reason: &forbidden}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = api.ValidatingAdmissionPolicyBindings().Create(w.ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
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
		w.cleanUp(api.ValidatingAdmissionPolicyBindings().Delete(w.background(), name, metav1.DeleteOptions{}))
		w.cleanUp(api.ValidatingAdmissionPolicies().Delete(w.background(), name, metav1.DeleteOptions{}))
	}
	w.Cleanup(lift)
	w.untilProbesAre(refusedProbes, namespace)
	return run, lift
}

func refuseByWebhook(w *world, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	hook := w.startWebhook(namespace, func(*admissionv1.AdmissionRequest) error { return errors.New("not on my watch") })
	return run, hook.allow
}

// refuseByRBAC runs the controller as an account that may write in all namespaces of the world but one.
func refuseByRBAC(w *world, namespace string) (run shipped.RunOptions, lift func()) {
	w.Helper()
	account := w.newAccount("confined", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	})
	grant := func(namespace string) {
		w.grant(account, namespace, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "delete"}},
		})
	}
	grant(w.ns("good-1"))
	grant(w.ns("good-2"))
	run.Kubeconfig = account.kubeconfig
	return run, func() { grant(namespace) }
}

// TestC30BrokenWebhook puts a webhook before a namespace that cannot be called: the API server answers with an
// error of its own, which does not say that it rejects. It is reported all the same, and the others are served.
func TestC30BrokenWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "good", "bad")
	good, bad := w.ns("good"), w.ns("bad")
	nobody, none := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone
	hooks := w.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(w.ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: bad},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    bad + ".broken.example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &nobody},
			Rules:                   []admissionregistrationv1.RuleWithOperations{writesOfConfigMaps},
			NamespaceSelector:       onlyNamespace(bad),
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove := func() { w.cleanUp(hooks.Delete(w.background(), bad, metav1.DeleteOptions{})) }
	w.Cleanup(remove)
	w.untilProbesAre(refusedProbes, bad)
	w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, good)
	w.waitEvent(w.home, "settings", mirror.ReasonWriteFailed)
	remove()
	w.waitInSync(source, good, bad)
}
