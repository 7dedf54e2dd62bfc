package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Namespaces that come, go, refuse and decline: cases C28 to C32.

// TestC28NamespaceBeingDeleted deletes a namespace in the middle of its filling, and one that takes its time: no
// error is told, nothing is written into it, and its deletion is not held up.
func TestC28NamespaceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "slow", "b")
	slow, b := w.ns("slow"), w.ns("b")
	p := w.start("--resync-period=200ms")
	var sources []*corev1.ConfigMap
	for i := range 10 {
		sources = append(sources, w.createSource(w.home, fmt.Sprintf("settings-%d", i)))
		w.waitInLine(sources[i], slow, b)
	}

	// One that is deleted while it is filled. Its end is waited for below, as they go side by side.
	var brief []string
	for i := range 5 {
		brief = append(brief, w.createNamespace(w.ns(fmt.Sprintf("brief-%d", i)), nil).Name)
		if i%2 == 0 {
			w.waitSome(brief[i])
		}
		w.deleteNamespace(brief[i])
	}

	// One that is held up by somebody's finalizer.
	w.holdNamespace(slow, "example.com/hold")
	w.deleteNamespace(slow)
	for _, source := range sources {
		w.waitGone(source.Name, slow)
	}
	w.passes(1, b)
	mark := w.auditMark()
	for i := range sources {
		sources[i] = w.edit(w.home, sources[i].Name, withData(map[string]string{"key": "two"}))
		w.waitInLine(sources[i], b)
	}
	w.waitInLine(w.createSource(w.home, "latest"), b)
	w.passes(2, b)
	for _, e := range w.requestsSince(mark) {
		if e.Object.Namespace == slow {
			t.Errorf("a request to a namespace that is being deleted: %v", e)
		}
	}
	w.holdNamespace(slow)
	for _, namespace := range append(brief, slow) {
		w.waitNamespaceGone(namespace)
	}
	w.passes(2, b)
	for _, source := range sources {
		if reasons := w.reasons(w.home, source.Name); reasons["WriteFailed"] > 0 {
			t.Errorf("events on %s: %v", source.Name, reasons)
		}
	}
	w.stop(p)
	busy := []string{" reflector.go:", " watches.go:", " events.go:"} // who may complain of a machine that has no time
	for line := range strings.Lines(p.Log()) {
		if strings.HasPrefix(line, "E") && !slices.ContainsFunc(busy, func(file string) bool { return strings.Contains(line, file) }) {
			t.Errorf("an error in the log: %s", line)
		}
	}
}

// holdNamespace sets the finalizers of a namespace.
func (w *world) holdNamespace(name string, finalizers ...string) {
	w.Helper()
	retry(w, func() error {
		ns, err := w.admin.CoreV1().Namespaces().Get(w.ctx, name, metav1.GetOptions{})
		if err == nil {
			ns.Finalizers = finalizers
			_, err = w.admin.CoreV1().Namespaces().Update(w.ctx, ns, metav1.UpdateOptions{})
		}
		return err
	})
}

// waitSome waits until there is a copy in the namespace.
func (w *world) waitSome(namespace string) {
	w.Helper()
	w.eventually("a copy in "+namespace, func() error {
		if w.seen.ConfigMap(namespace, "settings-0") == nil && w.seen.ConfigMap(namespace, "settings-9") == nil {
			return errors.New("none yet")
		}
		return nil
	})
}

// TestC29NamespaceRecreated deletes namespaces and creates them anew as soon as the API server takes it, twice: each is
// filled, whatever was in the way in the old one. (That takes five seconds each time: the cluster's own patience.)
func TestC29NamespaceRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := w.createMany(8)
	w.create(names[0], "in-the-way")
	w.start("--resync-period=0")
	sources := []*corev1.ConfigMap{w.createSource(w.home, "in-the-way")}
	w.waitEvent(w.home, "in-the-way", "Foreign")
	for i := range 5 {
		sources = append(sources, w.createSource(w.home, fmt.Sprintf("settings-%d", i)))
		w.waitInLine(sources[i+1], names...)
	}
	for range 2 {
		for _, name := range names {
			w.deleteNamespace(name)
		}
		anew := 0
		w.eventually("the namespaces are there anew", func() error {
			for ; anew < len(names); anew++ {
				_, err := w.admin.CoreV1().Namespaces().Create(w.ctx,
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[anew]}}, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		})
		for _, source := range sources {
			w.waitInLine(source, names...)
		}
	}
	w.expectReasons(w.home, "settings-0", map[string]int{"Mirrored": 1})
}

// TestC29AdmissionBehind has the API server refuse creates in a namespace that is there anew as if it were still being
// deleted, which admission may believe for a moment: the copy is made soon after, and nobody is told of a failure.
func TestC29AdmissionBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "anew", "b")
	anew, b := w.ns("anew"), w.ns("b")
	var refusals atomic.Int32
	w.startWebhook(anew, func(r *admissionv1.AdmissionRequest) error {
		if r.Operation != admissionv1.Create || refusals.Add(1) > 3 {
			return nil
		}
		err := apierrors.NewForbidden(corev1.Resource("configmaps"), r.Name, errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	})
	w.start("--resync-period=0")
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, anew, b)
	w.waitEvent(w.home, "settings", "Mirrored")
	w.expectReasons(w.home, "settings", map[string]int{"Mirrored": 1})
	if n := refusals.Load(); n <= 3 {
		t.Errorf("%d creates came to the webhook: nothing was refused", n)
	}
}

// TestC30Refused has one namespace refuse what all others take: these are served, the one is tried again with patience,
// reported with the reason, and filled when the refusal ends.
func TestC30Refused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		refuse func(w *world, namespace string) (run shipped.RunOptions, lift func())
		reason string
	}{
		"quota":   {refuseByQuota, "exceeded quota: no-more"},
		"policy":  {refuseByPolicy, "not in this house"},
		"webhook": {refuseByWebhook, "not on my watch"},
		"rights":  {refuseByRights, "cannot create resource"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "bad", "good-1", "good-2")
			bad, good := w.ns("bad"), []string{w.ns("good-1"), w.ns("good-2")}
			run, lift := c.refuse(w, bad)
			run.Args = append(run.Args, "--resync-period=0")
			w.startWith(run)
			source := w.createSource(w.home, "settings")
			w.waitInLine(source, good...)
			if note := w.waitEvent(w.home, "settings", "WriteFailed"); !strings.Contains(note, bad) || !strings.Contains(note, c.reason) {
				t.Errorf("the event does not say where and why: %s", note)
			}
			w.waitRequests("it is tried again", 3, func(e cluster.Event) bool {
				return e.Object.Namespace == bad && e.Response.Code == http.StatusForbidden
			})
			source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
			w.waitInLine(source, good...)
			w.settle(good...)
			w.absent("settings", bad)

			lift()
			w.waitInLine(source, append(good, bad)...)
			w.expectFew(20, w.requests(), bad, "settings")
			w.eventually("it is told that all is well", w.noted("settings", "Mirrored", "3 copies in line"))
			if n := w.reasons(w.home, "settings")["WriteFailed"]; n != 1 {
				t.Errorf("%d events about one refusal, want 1", n)
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

// refuseByRights runs the controller as an account that may write in all namespaces of the world but one.
func refuseByRights(w *world, namespace string) (run shipped.RunOptions, lift func()) {
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

// TestC31OptOut sets the label by which a namespace declines all copies, before it is filled, after, and while no
// controller runs, and takes it away again.
func TestC31OptOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	declined := w.createNamespace(w.ns("declined"), map[string]string{w.label: "false"}).Name
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, a, b)
	mine := w.create(a, "mine")
	copies := w.copies("settings", b)
	w.settle(a, b)
	w.absent("settings", declined)

	w.labelNamespace(a, w.label, "false")
	w.waitGone("settings", a)
	w.createSource(w.home, "mine")
	w.waitInLine(w.createSource(w.home, "second"), b)
	w.edit(w.home, "mine", withoutLabel(w.label))
	w.settle(b)
	w.absent("second", a, declined)
	w.untouched(mine)
	w.labelNamespace(declined, w.label, "")
	w.labelNamespace(a, w.label, "true") // says nothing about a namespace
	w.waitInLine(source, a, declined)

	w.stop(p)
	w.labelNamespace(a, w.label, "false")
	p = w.start()
	w.waitGone("settings", a)
	w.settle(b)
	w.stop(p)
	w.labelNamespace(a, w.label, "")
	w.start()
	w.waitInLine(source, a)
	w.allUntouched(append(copies, mine))
}

// TestC31Selector narrows a source by a label selector on namespaces, and has namespaces begin and cease to match.
func TestC31Selector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.labelNamespace(a, "tier", "front")
	w.labelNamespace(b, "tier", "back")
	w.start()
	source := w.createSource(w.home, "settings", withAnnotation(plan.SelectorAnnotation, "tier=front"))
	w.waitInLine(source, a)
	w.settle(a, b, c)
	w.absent("settings", b, c)
	narrowed := func(selector, prefixes string, want ...string) {
		t.Helper()
		options := []option{withAnnotation(plan.SelectorAnnotation, selector), withAnnotation(plan.PrefixAnnotation, prefixes)}
		if prefixes == "" {
			options[1] = withoutAnnotation(plan.PrefixAnnotation)
		}
		w.edit(w.home, "settings", options...)
		w.waitInLine(source, want...)
		for _, namespace := range []string{a, b, c} {
			if !slices.Contains(want, namespace) {
				w.waitGone("settings", namespace)
			}
		}
	}
	narrowed("tier in (front, back)", "", a, b)
	narrowed("!tier", "", c)
	narrowed("", "", a, b, c)
	narrowed("tier", b, b)
	narrowed("tier,tier!=back", "", a)

	copies := w.copies("settings", a)
	w.labelNamespace(c, "tier", "front")
	w.waitInLine(source, c)
	w.labelNamespace(c, "tier", "back")
	w.waitGone("settings", c)
	d := w.createNamespace(w.ns("d"), map[string]string{"tier": "front"}).Name
	w.waitInLine(source, d)
	w.labelNamespace(d, "tier", "")
	w.waitGone("settings", d)
	w.allUntouched(copies)
}

// TestC31Malformed has a source whose narrowing cannot be read: nothing is created, changed or pruned for it, its copies
// keep their place against a namesake, and an event says what is wrong. Mended, it goes on; deleted, its copies go.
func TestC31Malformed(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]option{
		"selector":           withAnnotation(plan.SelectorAnnotation, "tier in (front"),
		"empty prefix":       withAnnotation(plan.PrefixAnnotation, ""),
		"trailing comma":     withAnnotation(plan.PrefixAnnotation, "w,"),
		"prefix no one has":  withAnnotation(plan.PrefixAnnotation, "Team_"),
		"selector and value": withAnnotation(plan.SelectorAnnotation, "tier=front back"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b", "c")
			a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
			mend := []option{withoutAnnotation(plan.SelectorAnnotation), withoutAnnotation(plan.PrefixAnnotation)}
			p := w.start("--resync-period=200ms")
			source := w.createSource(w.home, "settings")
			w.waitInLine(source, a, b, c)
			w.waitYounger(source)

			w.edit(w.home, "settings", bad, withData(map[string]string{"key": "two"}))
			if note := w.waitEvent(w.home, "settings", "InvalidSelector"); !strings.Contains(note, "mirror-controller.github.io/namespace-") {
				t.Errorf("the event does not name the annotation: %s", note)
			}
			namesake := w.createSource(w.outside("other"), "settings")
			w.waitEvent(namesake.Namespace, "settings", "Superseded")
			edited := w.edit(a, "settings", withData(map[string]string{"key": "edited"}))
			w.labelNamespace(b, w.label, "false")
			fresh := w.createNamespace(w.ns("fresh"), nil).Name
			w.waitInLine(namesake, fresh) // it has no place there to keep
			kept := append(w.copies("settings", b, c), edited)
			w.passes(2, c)
			w.allUntouched(kept)
			w.stop(p)
			w.start("--resync-period=200ms")
			w.passes(2, c)
			w.allUntouched(kept)

			source = w.edit(w.home, "settings", mend...)
			w.waitInLine(source, a, c, fresh)
			w.waitGone("settings", b)
			w.edit(w.home, "settings", bad)
			w.passes(1, c)
			w.delete(w.home, "settings")
			w.waitInLine(namesake, a, c, fresh)
			w.edit(namesake.Namespace, "settings", bad)
			w.passes(1, c)
			w.edit(namesake.Namespace, "settings", withoutLabel(w.label))
			w.waitGone("settings", a, c, fresh)
		})
	}
}

// TestC32DuringFanOut creates a namespace in the middle of a fan-out to hundreds: it does not wait for the end.
func TestC32DuringFanOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(300)
	hook := w.startWebhook(targets[0], nil)
	w.start("--concurrent-writes=1")
	reached, proceed := hook.holdNext(admissionv1.Create)
	source := w.createSource(w.home, "settings")
	w.wait("the fan-out", reached)
	late := w.createNamespace(w.ns("z"), nil).Name
	w.eventually("the namespace is seen", func() error {
		if w.seen.Namespace(late) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	proceed()
	w.waitInLine(source, append(targets, late)...)
	order := w.waitWrites("settings", len(targets)+1)
	if at := slices.Index(order, "create "+late); at > len(order)/2 {
		t.Errorf("the new namespace came %dth of %d", at+1, len(order))
	}
}
