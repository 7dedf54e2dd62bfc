// Package contract shows of the contract what only a real API server can: that it takes each write, refuses what its
// preconditions, its admission and its limits refuse, and what the process costs that runs beside it. The rest is
// proved in virtual time, in package mirror. e2e/CASES.md lists where.
package contract

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func TestMain(m *testing.M) { suite.Main(m) }

// TestEachKindOfWrite has the controller do all that it can do, once as it is and once without WatchList, whose
// fallback lists. The API server and the policies take each write, and there is no other write to a copy. By the audit
// log it is refused nothing, and no permission of the shipped roles is idle. Cases C12, C19 and C22.
func TestEachKindOfWrite(t *testing.T) {
	t.Parallel()
	var requests []cluster.Event
	for _, watchList := range []string{"true", "false"} {
		w := suite.New(t, "a", "b", "c")
		leases := w.Admin.CoordinationV1().Leases(w.Installed.Namespace)
		w.CleanUp(leases.Delete(w.Context(), "mirror-controller", metav1.DeleteOptions{}))
		bind := fmt.Appendf(nil, `{"metadata": {"annotations": {"%s/leader-elect-resource-namespace": %q}}}`,
			plan.Domain, w.Installed.Namespace)
		_, err := w.Admin.RbacV1().ClusterRoleBindings().Patch(w.Context(), w.Account(), types.MergePatchType, bind,
			metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		waitMayLead(w)
		p := w.StartWith(shipped.RunOptions{
			Env:  []string{"KUBE_FEATURE_WatchListClient=" + watchList},
			Args: append([]string{"--leader-elect"}, suite.Leased(time.Hour)...),
		})
		writeEachKind(w, p)
		w.Stop(p)
		requests = append(requests, w.Requests()...)
		for _, e := range w.Requests() {
			if e.User.Username != w.Installed.User {
				t.Errorf("request of another user than the ServiceAccount: %v", e)
			}
			// A policy may judge by an older state of a namespace, and the write is tried again.
			if e.Response.Code == http.StatusForbidden && !strings.Contains(e.Response.Message, suite.Refusal) {
				t.Errorf("a permission is missing: %v", e)
			}
		}
	}
	policies.ExpectUsed(t, suite.New(t).ShippedRules(), requests)
}

// waitMayLead waits until the policies let the controller of the world have the
// Lease: they notice late where it is.
func waitMayLead(w *suite.World) {
	w.Helper()
	cfg := w.Cluster.Admin()
	cfg.Impersonate.UserName = w.Installed.User
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		w.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "mirror-controller"}}
	w.Until("the policies allow the Lease", func() error {
		_, err := client.CoordinationV1().Leases(w.Installed.Namespace).Create(w.Context(), lease,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// writeEachKind brings about each kind of request: create, update and
// delete copies, read what is in the way, a source that is gone and a namespace
// that opted out, and write events, one of them twice. Events Restored are best
// effort, so nothing waits for one: package policies has the API server take
// one.
func writeEachKind(w *suite.World, p *shipped.Process) {
	w.Helper()
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	const held = "held"
	paused := suite.WithAnnotation(plan.PausedAnnotation, "true")
	w.CreateSource(w.Home, held, suite.WithAnnotation(plan.PrefixAnnotation, a), paused)
	w.WaitEvent(w.Home, held, plan.ReasonHeld)
	resumed := w.Edit(w.Home, held, suite.WithoutAnnotation(plan.PausedAnnotation))

	w.Create(b, "settings", suite.WithLabel("team", "red"))
	w.Create(c, "settings", suite.SetImmutable)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a)
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign, b, c)
	for _, namespace := range []string{b, c} {
		w.Edit(namespace, "settings", handOver(w)...)
	}
	w.WaitInSync(source, a, b, c)
	w.Edit(a, "settings", suite.WithKey("key", "edited"))
	w.WaitInSync(source, a)
	w.Edit(a, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(source, a)
	w.WaitInSync(w.Edit(w.Home, "settings", suite.SetImmutable), a, b, c)
	if cm := w.Live(b, "settings"); cm.Labels["team"] != "red" {
		w.Errorf("got labels %v, want those of others kept", cm.Labels)
	}
	w.WaitInSync(w.ReplaceAtOnce(p, "settings", suite.SetImmutable, suite.WithKey("key", "other")), a, b, c)
	w.WaitEvent(w.Home, held, plan.ReasonMirrored, "version "+resumed.ResourceVersion)
	// What holds again is reported again, in the same words.
	w.Edit(w.Home, held, paused, suite.WithKey("key", "two"))
	w.Await("one event, twice", func() bool {
		return slices.ContainsFunc(w.Seen.EventsOn(w.Home, held), func(e *corev1.Event) bool {
			return e.Count > 1
		})
	})
	w.OptOut(plan.OptOutValue, "a")
	w.WaitGone("settings", a)
	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.WaitGone("settings", b, c)
	w.ExpectWrites("settings",
		"create "+a, "update "+b, "delete "+c, "create "+c, // adopted; what is immutable is created again
		"update "+a, "update "+a, // restored
		"update "+a, "update "+b, "update "+c, // made immutable
		"delete "+a, "delete "+b, "delete "+c, "create "+a, "create "+b, "create "+c, // other data
		"delete "+a, "delete "+b, "delete "+c) // opted out; unlabelled
}

// handOver is what an owner does to an object in the way.
func handOver(w *suite.World) []suite.Option {
	return []suite.Option{suite.WithAnnotation(plan.AdoptAnnotation, "true"), suite.WithLabel(w.Label, plan.CopyValue)}
}

// TestC13ReplacedBeforeTheCall changes the object between the controller's decision and its write: the write is
// refused by its preconditions, and what is there now is left alone.
func TestC13ReplacedBeforeTheCall(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	w.Start()
	hook := w.StartWebhook(a, nil)
	put := func(w *suite.World, name string) *corev1.ConfigMap { return w.Create(a, name) }
	replace := func(w *suite.World, name string) *corev1.ConfigMap {
		w.Delete(a, name)
		return put(w, name)
	}
	release := func(w *suite.World, name string) *corev1.ConfigMap {
		return w.Edit(a, name, func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	}
	publish := func(w *suite.World, name string) { w.CreateSource(w.Home, name) }
	unpublish := func(w *suite.World, name string) { w.Edit(w.Home, name, suite.WithoutLabel(w.Label)) }
	change := func(w *suite.World, name string) { w.Edit(w.Home, name, suite.WithKey("key", "two")) }
	exchange := func(w *suite.World, name string) {
		w.Delete(w.Home, name)
		w.CreateSource(w.Home, name, suite.SetImmutable, suite.WithKey("key", "two"))
	}
	for name, c := range map[string]struct {
		decided   func(w *suite.World, name string) // what makes the controller write
		operation admissionv1.Operation
		meanwhile func(w *suite.World, name string) *corev1.ConfigMap
	}{
		"delete-replaced":   {unpublish, admissionv1.Delete, replace},
		"delete-released":   {unpublish, admissionv1.Delete, release},
		"update-replaced":   {change, admissionv1.Update, replace},
		"update-released":   {change, admissionv1.Update, release},
		"recreate-replaced": {exchange, admissionv1.Delete, replace},
		"recreate-released": {exchange, admissionv1.Delete, release},
		"create":            {publish, admissionv1.Create, put},
	} {
		w.Row(name, func(w *suite.World) {
			if c.operation != admissionv1.Create {
				source := suite.WithKey("key", "one")
				if strings.HasPrefix(name, "recreate") {
					source = suite.SetImmutable
				}
				w.WaitInSync(w.CreateSource(w.Home, name, source), a)
			}
			reached, proceed := hook.Hold(c.operation)
			c.decided(w, name)
			w.Wait("the write", reached)
			theirs := c.meanwhile(w, name)
			proceed()
			w.WaitRequests("the write is refused", 1, func(e cluster.Event) bool {
				same := e.Object.Name == name && strings.EqualFold(e.Verb, string(c.operation))
				// It is cut if this test was so slow.
				return same && (e.Response.Code == http.StatusConflict || suite.Cut(e))
			})
			w.Settle(a)
			w.Untouched(theirs)
		})
	}
}

// TestC08UnlabelledUnderFullQuota strips the label of a copy in a namespace whose quota is used up, by the copy
// among others. The API server refuses the create there before it says that an object exists; it is restored all
// the same, and a foreign object is reported as foreign.
func TestC08UnlabelledUnderFullQuota(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "ours", "foreign")
	ours, foreign := w.NS("ours"), w.NS("foreign")
	mine := w.Create(foreign, "settings")
	w.FillQuota(foreign, 2)
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, ours)
	before := w.Copies("settings", ours)
	w.FillQuota(ours, 2)
	w.Edit(ours, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(source, ours)
	w.SameObjects(before)
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
	w.Untouched(mine)
}

// TestC29NamespaceRecreated deletes namespaces while all are written to, one of them when it has just been created,
// and creates them anew as soon as the API server takes it: each is filled, and nothing that the API server says
// meanwhile counts as an error. Case C28.
func TestC29NamespaceRecreated(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	names := w.CreateMany(9)
	recreated := names[:8] // one stays, so that there is always a target
	p := w.Start("--resync-period=0")
	sources := make([]*corev1.ConfigMap, 5)
	for i := range sources {
		sources[i] = w.CreateSource(w.Home, fmt.Sprint("settings-", i))
		w.WaitInSync(sources[i], names...)
	}
	brief := w.CreateNamespace(w.NS("brief"), nil).Name
	for _, name := range append([]string{brief}, recreated...) {
		w.DeleteNamespace(name)
	}
	for i, source := range sources {
		sources[i] = w.Edit(w.Home, source.Name, suite.WithKey("key", "two"))
	}
	anew := 0
	w.Until("the namespaces are there anew", func() error {
		for ; anew < len(recreated); anew++ {
			_, err := w.Admin.CoreV1().Namespaces().Create(w.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: recreated[anew]}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, source := range sources {
		w.WaitInSync(source, names...)
	}
	w.WaitNamespaceGone(brief)
	for _, source := range sources {
		if reasons := w.Reasons(w.Home, source.Name); reasons[plan.ReasonWriteFailed] > 0 {
			t.Errorf("events on %s: %v", source.Name, reasons)
		}
	}
	w.Stop(p)
	for line := range strings.Lines(p.Log()) {
		// On a slow machine a call may be cut while its answer arrives, which client-go logs.
		isCut := strings.Contains(line, " request.go:") && strings.Contains(line, context.Canceled.Error())
		if strings.HasPrefix(line, "E") && !isCut {
			t.Errorf("an error in the log: %s", line)
		}
	}
}

// TestC40Idle kills a controller, and writes what makes no difference: empty maps in place of absent ones, keys in
// another order, immutable absent or false, metadata that does not travel. The next controller compares everything
// again and again, and sends no request but those of its watches, and those for the sources of Settle.
// Cases C18 and C21.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(10)
	flags := []string{"--copy-label=team", "--copy-annotation=note", "--resync-period=100ms"}
	p := w.Start(flags...)
	rows := []struct {
		name    string
		content suite.Option
		again   string // the same, in JSON
	}{
		{"empty", suite.WithData(nil), `"data": {}, "binaryData": {}, "immutable": false`},
		{"text", suite.WithData(map[string]string{"a": "1", "b": "2"}), `"binaryData": {}, "data": {"b": "2", "a": "1"}`},
		{"binary", func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData = nil, map[string][]byte{"a": {1}, "b": {}} },
			`"immutable": null, "binaryData": {"b": "", "a": "AQ=="}`},
		{"fixed", func(cm *corev1.ConfigMap) { suite.SetImmutable(cm); cm.Data = nil }, `"immutable": true, "data": {}`},
	}
	var copies []*corev1.ConfigMap
	for _, r := range rows {
		source := w.CreateSource(w.Home, r.name, r.content, suite.WithLabel("team", "red"), suite.WithAnnotation("note", "x"))
		w.WaitInSync(source, targets...)
		copies = append(copies, w.Copies(r.name, targets...)...)
	}
	w.Settle(targets[0])
	p.Kill()
	for _, r := range rows {
		replaceJSON(w, r.name, r.again)
	}
	mark := w.AuditMark()
	w.Start(flags...)
	w.Settle(targets[0]) // when it has dealt with a new source, it has done everything
	w.Settle(targets[0])
	for _, e := range w.RequestsSince(mark) {
		switch {
		case e.Verb == "watch", e.Verb == "list", e.Object.Resource == "events": // a list begins a watch
		case strings.HasPrefix(e.Object.Name, "settle-"):
		case e.Verb == "get" && e.Object.Resource == "namespaces" && e.Object.Name == targets[0]: // it deletes the copy there
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	w.Untouched(copies...)
}

// replaceJSON replaces a source by what is written in JSON, in that order, and adds metadata that does not travel.
func replaceJSON(w *suite.World, name, content string) {
	w.Helper()
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", %s, "metadata": {"name": %q,
		"labels": {%q: "true", "team": "red"}, "annotations": {"note": "x", "after": "y"}}}`, content, name, w.Label)
	err := w.Admin.CoreV1().RESTClient().Put().Namespace(w.Home).Resource("configmaps").Name(name).
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.Context()).Error()
	if err != nil {
		w.Fatal(err)
	}
}
