package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestModelOfTheAPIServer sends the same random requests to a real API server and to package apitest, on which the
// scenes and histories of package mirror rest, and compares all answers and what a watch shows: events, lists in pages,
// a watch that begins with all objects, and the end of a namespace.
func TestModelOfTheAPIServer(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	namespaces := []string{w.NS("a"), w.NS("b"), w.NS("closing"), w.NS("absent")}
	model := apitest.NewServer()
	for _, namespace := range namespaces[:3] {
		w.CreateNamespace(namespace, nil)
		model.Namespaces.Put(plantest.Namespace(namespace))
	}
	w.Create(namespaces[2], "held", editsOfModel["finalizer"]) // so that it is there until the cluster goes
	w.DeleteNamespace(namespaces[2])
	model.Terminate(namespaces[2])
	w.Await("the end of the namespace begins", func() bool {
		return w.Seen.Namespace(namespaces[2]).DeletionTimestamp != nil
	})

	servers := []*asked{newAsked(w, w.Admin), newAsked(w, model.Interface)}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		q := randomRequest(r, namespaces)
		real, modelled := servers[0].send(w, q), servers[1].send(w, q)
		if real != modelled {
			t.Fatalf("%+v:\nthe API server says %s\nthe model says      %s", q, real, modelled)
		}
	}
	compare := func(what string, show func(*asked, *suite.World, string) []string) {
		t.Helper()
		if d := diff.Diff(show(servers[0], w, namespaces[0]), show(servers[1], w, namespaces[0])); d != "" {
			t.Errorf("the API server (-) and the model (+) show %s:\n%s", what, d)
		}
	}
	compare("other events", (*asked).events)
	compare("other pages of a list", (*asked).pages)
	compare("other initial events", (*asked).initialEvents)

	ends := w.NS("ends")
	w.CreateNamespace(ends, nil)
	model.Namespaces.Put(plantest.Namespace(ends))
	for _, s := range servers {
		s.create(w, ends, "one")
	}
	w.DeleteNamespace(ends)
	model.Terminate(ends)
	if !model.Finalize(ends) {
		t.Error("something holds up the end of a namespace in the model")
	}
	w.WaitNamespaceGone(ends)
	q := requestTo{verb: "create", namespace: ends, name: "two", edit: "nothing"}
	if real, modelled := servers[0].send(w, q), servers[1].send(w, q); real != modelled {
		t.Errorf("after the end of a namespace the API server says %s, and the model says %s", real, modelled)
	}
	compare("another end of a namespace", (*asked).events)
}

// requestTo is a request about the ConfigMap of a name.
type requestTo struct {
	verb, namespace, name string
	version               int // which of the states of the object that were seen it refers to; 0: the last one
	withUID, withVersion  bool
	edit                  string
}

var editsOfModel = map[string]suite.Option{
	"data":      suite.WithData(map[string]string{"key": "other"}),
	"more data": suite.WithData(map[string]string{"key": "more", "other": ""}),
	"nothing":   func(*corev1.ConfigMap) {},
	"immutable": plantest.Immutable, "mutable": func(cm *corev1.ConfigMap) { cm.Immutable = nil },
	"source": labelled("true"), "copy": labelled("copy"), "label off": labelled(""),
	"annotation":     suite.WithAnnotation("mirror-controller.github.io/source", "platform/settings"),
	"finalizer":      func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/keep"} },
	"two finalizers": func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/keep", "example.com/too"} },
	"no finalizer":   func(cm *corev1.ConfigMap) { cm.Finalizers = nil },
	"annotations too long": func(cm *corev1.ConfigMap) {
		cm.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
	},
}

func labelled(value string) suite.Option {
	return func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"mirror-of-model": value} }
}

func randomRequest(r *rand.Rand, namespaces []string) requestTo {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	q := requestTo{
		verb:      one("create", "update", "update", "update", "delete", "get"),
		namespace: one(namespaces[0], one(namespaces...)), name: one("one", "two"),
		edit:    one(slices.Sorted(maps.Keys(editsOfModel))...),
		version: max(0, r.IntN(12)-8),
	}
	if q.verb != "create" {
		q.withUID, q.withVersion = r.IntN(2) == 0, r.IntN(2) == 0
	}
	return q
}

// asked is an API server, and what it has answered.
type asked struct {
	client kubernetes.Interface
	states map[string][]*corev1.ConfigMap // of each object, the last first
	seen   chan watch.Event               // by the watch
	lasts  int                            // objects that end what the watch has shown
}

func newAsked(w *suite.World, client kubernetes.Interface) *asked {
	events, err := outside.Watch(w.Context(), client, selectorOfModel)
	if err != nil {
		w.Fatal(err)
	}
	a := &asked{client: client, states: map[string][]*corev1.ConfigMap{}, seen: make(chan watch.Event, 1<<16)}
	go func() {
		for e := range events.ResultChan() {
			a.seen <- e
		}
	}()
	return a
}

const selectorOfModel = "mirror-of-model in (true,copy)"

// send sends a request, and returns the answer without what differs from one API server to another.
func (a *asked) send(w *suite.World, q requestTo) string {
	key := q.namespace + "/" + q.name
	base := suite.ConfigMap(q.namespace, q.name, suite.WithData(map[string]string{"key": "value"}))
	if states := a.states[key]; q.version < len(states) && q.verb != "create" {
		base = states[q.version].DeepCopy()
	}
	uid, version := cmp.Or(base.UID, "none"), cmp.Or(base.ResourceVersion, "1")
	base.UID, base.ResourceVersion, base.ManagedFields = "", "", nil
	var named metav1.Preconditions
	if q.withUID {
		named.UID, base.UID = &uid, uid
	}
	if q.withVersion {
		named.ResourceVersion, base.ResourceVersion = &version, version
	}
	editsOfModel[q.edit](base)
	var cm *corev1.ConfigMap
	var err error
	switch client := a.client.CoreV1().ConfigMaps(q.namespace); q.verb {
	case "create":
		cm, err = client.Create(w.Context(), base, metav1.CreateOptions{})
	case "update":
		cm, err = client.Update(w.Context(), base, metav1.UpdateOptions{})
	case "get":
		cm, err = client.Get(w.Context(), q.name, metav1.GetOptions{})
	case "delete":
		err = client.Delete(w.Context(), q.name, metav1.DeleteOptions{Preconditions: &named})
	}
	if err != nil {
		terminating := apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		return fmt.Sprint(apierrors.ReasonForError(err), " terminating=", terminating)
	}
	if cm == nil {
		return "done"
	}
	same := len(a.states[key]) > 0 && a.states[key][0].ResourceVersion == cm.ResourceVersion
	if !same {
		a.states[key] = slices.Insert(a.states[key], 0, cm)
	}
	return fmt.Sprint(common(cm), " same=", same)
}

// common is what two API servers have in common of an object.
func common(cm *corev1.ConfigMap) string {
	return fmt.Sprint(cm.Namespace, "/", cm.Name, " ", cm.Labels, cm.Annotations, cm.Finalizers, cm.Data, cm.BinaryData,
		" immutable=", suite.Immutable(cm), " deleting=", cm.DeletionTimestamp != nil)
}

// events returns what the watch has shown until now.
func (a *asked) events(w *suite.World, namespace string) (all []string) {
	a.lasts++
	last := fmt.Sprint("last-", a.lasts)
	a.create(w, namespace, last)
	tooLate := time.After(suite.Patience)
	for {
		select {
		case e := <-a.seen:
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				w.Fatalf("the watch shows %v", e)
			}
			if cm.Name == last {
				return all
			}
			all = append(all, fmt.Sprint(e.Type, " ", common(cm)))
		case <-tooLate:
			w.Fatal("the watch does not show the last object")
		}
	}
}

// pages returns the objects of a list in pages of two, in the order of their names, and which pages are larger or of
// another moment than the first. Between two pages an object is deleted, and a new one is created.
func (a *asked) pages(w *suite.World, namespace string) (all []string) {
	configMaps := a.client.CoreV1().ConfigMaps(namespace)
	for i := range 5 {
		a.create(w, namespace, fmt.Sprintf("page-%d", i))
	}
	var names []string
	o := metav1.ListOptions{LabelSelector: selectorOfModel, Limit: 2}
	version := ""
	for {
		page, err := a.client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(w.Context(), o)
		if err != nil {
			w.Fatal(err)
		}
		isSame := version == "" || page.ResourceVersion == version
		version = page.ResourceVersion
		if len(page.Items) > 2 || !isSame { // the last one of an API server may be empty
			all = append(all, fmt.Sprint("a page of ", len(page.Items), ", same version=", isSame))
		}
		for i := range page.Items {
			names = append(names, common(&page.Items[i]))
		}
		if page.Continue == "" {
			slices.Sort(names)
			return append(all, names...)
		}
		if o.Continue == "" {
			a.create(w, namespace, "between-pages")
			if err := configMaps.Delete(w.Context(), "page-4", metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
		}
		o.Continue = page.Continue
	}
}

// initialEvents returns what a watch shows that begins with all objects, in the order of their names, and what it shows
// after these.
func (a *asked) initialEvents(w *suite.World, namespace string) (all []string) {
	shown, err := a.client.CoreV1().ConfigMaps(metav1.NamespaceAll).Watch(w.Context(), metav1.ListOptions{
		LabelSelector: selectorOfModel, SendInitialEvents: new(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		w.Fatal(err)
	}
	defer shown.Stop()
	tooLate := time.After(suite.Patience)
	next := func() watch.Event {
		select {
		case e := <-shown.ResultChan():
			return e
		case <-tooLate:
			w.Fatal("the watch shows nothing more")
		}
		return watch.Event{}
	}
	for e := next(); e.Type != watch.Bookmark; e = next() {
		all = append(all, fmt.Sprint(e.Type, " ", common(e.Object.(*corev1.ConfigMap))))
	}
	slices.Sort(all)
	a.create(w, namespace, "after-initial")
	e := next()
	return append(all, fmt.Sprint(e.Type, " ", common(e.Object.(*corev1.ConfigMap))))
}

// create creates a ConfigMap that the selector matches.
func (a *asked) create(w *suite.World, namespace, name string) {
	cm := suite.ConfigMap(namespace, name, labelled("true"))
	if _, err := a.client.CoreV1().ConfigMaps(namespace).Create(w.Context(), cm, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}
