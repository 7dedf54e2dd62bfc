package mirror

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// homes are the namespaces of a small world, and with the flags of every world the only ones that matter.
var homes = []string{"platform", "team-a", "base", "team-b", "team-c", "team-x1", "other"}

// narrowing is what a source may say in an annotation, with what it means; by is nil if it is malformed.
type narrowing struct {
	value string
	by    func(*corev1.Namespace) bool
}

var (
	prefixNarrowings = []narrowing{
		{"team-a", func(ns *corev1.Namespace) bool { return ns.Name == "team-a" }},
		{" team-b ,\tteam-c", func(ns *corev1.Namespace) bool { return ns.Name == "team-b" || ns.Name == "team-c" }},
		{"other,t", func(ns *corev1.Namespace) bool { return ns.Name == "other" || ns.Name[0] == 't' }},
		{"Team", nil},
		{"team-a,", nil},
	}
	selectorNarrowings = []narrowing{
		{"", func(*corev1.Namespace) bool { return true }},
		{"tier=gold", func(ns *corev1.Namespace) bool { return ns.Labels["tier"] == "gold" }},
		{"tier!=gold", func(ns *corev1.Namespace) bool { return ns.Labels["tier"] != "gold" }},
		{"tier===", nil},
	}
)

// world is one name in a small cluster: a namespace and at most one object of that name in each home.
type world struct {
	name       string
	opts       *Options
	rules      *rules
	namespaces map[string]*corev1.Namespace // those that the cache has
	objects    map[string]*corev1.ConfigMap // by namespace, as the API server has them
	prunable   map[string]bool              // namespaces whose object was judged at take-over
	vanished   map[string]bool              // namespaces from which a copy went by no delete of ours
	version    int
}

// drawWorld reads a world from raw, whose every value means one.
func drawWorld(raw []byte) *world {
	d := draws(raw)
	w := &world{
		name: "settings", opts: NewOptions(), namespaces: map[string]*corev1.Namespace{}, objects: map[string]*corev1.ConfigMap{},
		prunable: map[string]bool{}, vanished: map[string]bool{},
	}
	if d.oneIn(32) {
		w.name = "kube-root-ca.crt"
	}
	o := w.opts
	switch d.below(4) {
	case 0, 1:
		o.NamespacePrefixes, o.ExcludeNamespaces = []string{"team-"}, []string{"team-x*"}
	case 2:
		o.NamespacePrefixes = []string{"team-b", "team-a", "plat"}
	case 3:
		o.AllNamespaces, o.ExcludeNamespaces = true, []string{"base", "o*"}
	}
	if d.oneIn(4) {
		o.SourceNamespaces = []string{"platform", "team-a", "team-b"}
	}
	if d.oneIn(2) {
		o.CopyLabels, o.CopyAnnotations = []string{"app", "helm.sh/*", "argocd.argoproj.io/instance"}, []string{"*"}
	}
	w.rules = newRules(o)
	for _, home := range homes {
		w.prunable[home], w.vanished[home] = d.oneIn(2), d.oneIn(4)
		if ns := d.namespace(home); ns != nil {
			w.namespaces[home] = ns
		}
		if cm := d.original(home, w.name); cm != nil {
			w.put(cm)
		}
	}
	for _, home := range homes {
		if w.objects[home] == nil && d.oneIn(2) {
			w.put(d.copyOf(w, homes[d.below(len(homes))], home))
		}
	}
	return w
}

// namespace returns a namespace of that name, or nil if the cache has none.
func (d *draws) namespace(name string) *corev1.Namespace {
	ns := namespace(name)
	switch d.below(12) {
	case 7:
		ns.Labels[DefaultLabel] = "false"
	case 8:
		ns.Labels[DefaultLabel] = "true"
	case 9:
		ns.Status.Phase = corev1.NamespaceTerminating
	case 10:
		now := metav1.Now()
		ns.DeletionTimestamp = &now
	case 11:
		return nil
	}
	switch d.below(3) {
	case 1:
		ns.Labels["tier"] = "gold"
	case 2:
		ns.Labels["tier"] = "silver"
	}
	return ns
}

// original returns what is no copy: a source, something foreign, or nothing.
func (d *draws) original(home, name string) *corev1.ConfigMap {
	kind := d.below(6)
	if kind < 3 {
		return nil
	}
	cm := configMap(home, name, createdAt(int64(1+d.below(3))), managed)
	d.content(cm)
	if kind < 5 {
		cm.Labels[DefaultLabel] = "true"
		for _, n := range []struct {
			key     string
			choices []narrowing
		}{{PrefixAnnotation, prefixNarrowings}, {SelectorAnnotation, selectorNarrowings}} {
			if d.oneIn(3) {
				cm.Annotations[n.key] = n.choices[d.below(len(n.choices))].value
			}
		}
	} else if d.oneIn(3) {
		cm.Labels[DefaultLabel] = "copy"
	}
	if d.oneIn(2) {
		cm.Labels["app"], cm.Labels["helm.sh/chart"], cm.Annotations["note"] = "web", "web-1", "n"
	}
	if d.oneIn(3) {
		cm.Annotations[AdoptAnnotation] = "true"
	}
	if d.oneIn(6) {
		deleting(cm)
	}
	for range d.below(4) {
		d.forge(cm)
	}
	return cm
}

// content puts one of a few contents into cm.
func (d *draws) content(cm *corev1.ConfigMap) {
	cm.Data, cm.BinaryData, cm.Immutable = nil, nil, nil
	switch d.below(5) {
	case 0:
		cm.Data = texts{"key": "value"}
	case 1:
		cm.Data, cm.BinaryData = texts{"key": "value"}, blobs{}
	case 2:
		cm.BinaryData = blobs{"key": []byte("value")}
	case 3:
		cm.Data = texts{"key": "other", "more": ""}
	}
	if d.oneIn(4) {
		immutable(cm)
	}
}

// forge writes one of our marks onto cm, a true one or not.
func (d *draws) forge(cm *corev1.ConfigMap) {
	key := []string{SourceAnnotation, CopyAnnotation, InstanceAnnotation, ChecksumAnnotation, CopiedAnnotation}[d.below(5)]
	value := []string{
		"platform/" + cm.Name, cm.Namespace + "/" + cm.Name, "default", "other", "label:theirs,label:mirror,annotation:" + CopyAnnotation, "",
		"platform/" + cm.Name + "/x", "team-a/" + cm.Name, "label:app,annotation:note",
	}[d.below(9)]
	cm.Annotations[key] = value
}

// copyOf returns the copy in home of the object in from, or of one that is there no more, and what people did to it.
func (d *draws) copyOf(w *world, from, home string) *corev1.ConfigMap {
	src := w.objects[from]
	if src == nil || d.oneIn(6) {
		src = sourceCM(from, w.name, label("app", "gone"))
		d.content(src)
	}
	cm := copyCM(w.rules, src, home, managed, func(cm *corev1.ConfigMap) { cm.Labels["theirs"], cm.Annotations["theirs"] = "1", "1" })
	for range d.below(3) {
		switch d.below(12) {
		case 0:
			d.content(cm)
		case 1:
			cm.Labels[DefaultLabel] = "true"
		case 2:
			delete(cm.Labels, DefaultLabel)
		case 3:
			delete(cm.Labels, ManagedByLabel)
		case 4:
			deleting(cm)
		case 5:
			cm.Annotations[AdoptAnnotation] = "true"
		case 6:
			cm.Annotations[InstanceAnnotation] = "other"
		case 7:
			delete(cm.Annotations, []string{SourceAnnotation, CopyAnnotation, InstanceAnnotation}[d.below(3)])
		case 8:
			cm.Annotations[CopyAnnotation] = "team-z/" + w.name
		case 9:
			immutable(cm)
		case 10:
			cm.Annotations[ChecksumAnnotation] = "sha256:00"
		case 11:
			d.forge(cm)
		}
	}
	return cm
}

// put stores an object as the API server does.
func (w *world) put(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	w.version++
	cm.ResourceVersion = fmt.Sprint(w.version)
	if old := w.objects[cm.Namespace]; old != nil {
		cm.UID, cm.CreationTimestamp = old.UID, old.CreationTimestamp
	} else {
		cm.UID = types.UID("uid-" + cm.ResourceVersion)
	}
	w.objects[cm.Namespace] = cm
	return cm.DeepCopy()
}

// client returns a client of the API server of this world: what it refuses, the real one refuses as well.
func (w *world) client() kubernetes.Interface {
	resource := schema.GroupResource{Resource: "configmaps"}
	handle := func(action clienttesting.Action) (runtime.Object, error) {
		there := w.objects[action.GetNamespace()]
		switch a := action.(type) {
		case clienttesting.DeleteActionImpl:
			switch p := a.DeleteOptions.Preconditions; {
			case there == nil:
				return nil, apierrors.NewNotFound(resource, w.name)
			case p == nil || p.UID == nil || p.ResourceVersion == nil || *p.UID != there.UID || *p.ResourceVersion != there.ResourceVersion:
				return nil, apierrors.NewConflict(resource, w.name, fmt.Errorf("preconditions %v", p))
			}
			delete(w.objects, action.GetNamespace())
			return nil, nil
		case clienttesting.UpdateActionImpl:
			cm := a.GetObject().(*corev1.ConfigMap)
			switch {
			case there == nil:
				return nil, apierrors.NewNotFound(resource, w.name)
			case cm.ResourceVersion != there.ResourceVersion || cm.UID != there.UID:
				return nil, apierrors.NewConflict(resource, w.name, fmt.Errorf("resourceVersion %q", cm.ResourceVersion))
			case isImmutable(there) && canonical(cm) != canonical(there):
				return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, w.name, nil)
			}
			return w.put(cm), nil
		case clienttesting.CreateActionImpl:
			cm := a.GetObject().(*corev1.ConfigMap)
			switch ns := w.namespaces[action.GetNamespace()]; {
			case there != nil:
				return nil, apierrors.NewAlreadyExists(resource, w.name)
			case ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating:
				return nil, apierrors.NewNotFound(resource, w.name)
			case cm.ResourceVersion != "" || cm.UID != "" || cm.DeletionTimestamp != nil:
				return nil, apierrors.NewBadRequest("what is created has no history")
			}
			return w.put(cm), nil
		}
		return nil, apierrors.NewMethodNotSupported(resource, action.GetVerb())
	}
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := handle(action)
		return true, obj, err
	})
	return client
}

// view returns what the cache shows of the sources.
func (w *world) view() view {
	var seen []*corev1.ConfigMap
	for _, cm := range w.objects {
		if cm = cm.DeepCopy(); w.rules.seen(cm) {
			w.rules.strip(cm)
			seen = append(seen, cm)
		}
	}
	v := viewOf(w.rules, w.name, seen...)
	v.prunable = func(cm *corev1.ConfigMap) bool { return w.prunable[cm.Namespace] }
	return v
}

// targets returns every home as a target, as the caches show it.
func (w *world) targets() []target {
	var targets []target
	for _, home := range homes {
		t := target{namespace: home, vanished: w.vanished[home]}
		if ns := w.namespaces[home]; ns != nil {
			t.object = ns.DeepCopy()
		}
		if cm := w.objects[home]; cm != nil && w.rules.seen(cm) {
			t.have = cm.DeepCopy()
			w.rules.strip(t.have)
		}
		targets = append(targets, t)
	}
	return targets
}

// The oracle: what the contract says of this world, in other words than the code.

func (w *world) allowsTarget(ns string) bool {
	excluded := slices.ContainsFunc(w.opts.ExcludeNamespaces, func(pattern string) bool {
		matches, _ := path.Match(pattern, ns)
		return matches
	})
	return !excluded && (w.opts.AllNamespaces || slices.ContainsFunc(w.opts.NamespacePrefixes, func(p string) bool { return strings.HasPrefix(ns, p) }))
}

func (w *world) isSource(cm *corev1.ConfigMap) bool {
	return cm != nil && readMarks(cm, w.opts.Instance).asks &&
		(w.opts.SourceNamespaces == nil || slices.Contains(w.opts.SourceNamespaces, cm.Namespace))
}

// narrowed reports whether a source narrows ns away, and whether it says so in a way that nobody can read.
func narrowed(src *corev1.ConfigMap, ns *corev1.Namespace) (away, malformed bool) {
	for key, choices := range map[string][]narrowing{PrefixAnnotation: prefixNarrowings, SelectorAnnotation: selectorNarrowings} {
		value, ok := src.Annotations[key]
		if !ok {
			continue
		}
		i := slices.IndexFunc(choices, func(n narrowing) bool { return n.value == value })
		if choices[i].by == nil {
			malformed = true
		} else if ns != nil && !choices[i].by(ns) {
			away = true
		}
	}
	return away, malformed
}

// winner returns the source that has the namespace; nil if none claims it.
func (w *world) winner(ns *corev1.Namespace) *corev1.ConfigMap {
	if !w.allowsTarget(ns.Name) || ns.Labels["mirror"] == "false" {
		return nil
	}
	var first *corev1.ConfigMap
	for _, home := range slices.Sorted(maps.Keys(w.objects)) {
		cm := w.objects[home]
		if !w.isSource(cm) || home == ns.Name {
			continue
		}
		if away, malformed := narrowed(cm, ns); away || malformed {
			continue
		}
		tenant, otherTenant := w.allowsTarget(home), first != nil && w.allowsTarget(first.Namespace)
		if first == nil || otherTenant && !tenant || tenant == otherTenant && cm.CreationTimestamp.Before(&first.CreationTimestamp) {
			first = cm
		}
	}
	return first
}

// expected is how a target has to stand when all is done. With neither holds nor empty it is as it was.
type expected struct {
	holds   *corev1.ConfigMap // the source of which it holds the copy
	empty   bool
	outcome outcome
}

func (w *world) expects(home string) expected {
	ns := w.namespaces[home]
	if ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating || w.name == "kube-root-ca.crt" {
		return expected{}
	}
	winner, have := w.winner(ns), w.objects[home]
	mine := expected{holds: winner, outcome: outcomeSynced}
	if have != nil && !w.rules.seen(have) && winner == nil && !w.vanished[home] {
		return expected{} // nobody sees it, and nobody has a reason to look
	}
	switch said := w.marksOf(have); {
	case have == nil && winner == nil:
		return expected{empty: true}
	case have == nil:
		return mine
	case said.owner == "" && winner == nil:
		return expected{}
	case said.owner == "" && !said.adoptable:
		return expected{outcome: outcomeForeign}
	case said.owner == "" && have.DeletionTimestamp != nil:
		return expected{outcome: outcomePending}
	case said.owner == "":
		return mine
	default:
		source := w.objects[strings.Split(said.owner, "/")[0]]
		asks := source != nil && readMarks(source, w.opts.Instance).asks
		if asks && w.isSource(source) {
			if _, malformed := narrowed(source, nil); malformed {
				return expected{outcome: outcomeFrozen}
			}
		}
		byFlags := asks && (!w.isSource(source) || !w.allowsTarget(home))
		switch {
		case have.DeletionTimestamp != nil:
			return expected{outcome: outcomePending}
		case winner != nil:
			return mine
		case byFlags && !w.prunable[home]:
			return expected{outcome: outcomeStranger}
		}
		return expected{empty: true}
	}
}

func (w *world) marksOf(cm *corev1.ConfigMap) marks {
	if cm == nil {
		return marks{}
	}
	return readMarks(cm, w.opts.Instance)
}

// checkCopy compares what is in a target with the copy that the contract describes. before is what was there.
func (w *world) checkCopy(t *testing.T, src, before *corev1.ConfigMap, home string) {
	t.Helper()
	got := w.objects[home]
	if got == nil {
		t.Errorf("%s: got nothing, want a copy of %s", home, src.Namespace)
		return
	}
	if canonical(got) != canonical(src) {
		t.Errorf("%s: got content %s, want %s", home, canonical(got), canonical(src))
	}
	wantLabels := texts{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller"}
	wantAnnotations := texts{
		"mirror-controller.github.io/source":   src.Namespace + "/" + w.name,
		"mirror-controller.github.io/copy":     home + "/" + w.name,
		"mirror-controller.github.io/instance": "default",
	}
	if sum := got.Annotations["mirror-controller.github.io/checksum"]; len(sum) != len("sha256:")+64 || !strings.HasPrefix(sum, "sha256:") {
		t.Errorf("%s: got checksum %q", home, sum)
	}
	if _, adopting := got.Annotations["mirror-controller.github.io/adopt"]; adopting {
		t.Errorf("%s: got the copy still to be adopted", home)
	}
	// What other people put on it stays, if no copied annotation says that it came from a source.
	if before != nil {
		copied := strings.Split(before.Annotations["mirror-controller.github.io/copied"], ",")
		if v, ok := before.Labels["theirs"]; ok && !slices.Contains(copied, "label:theirs") {
			wantLabels["theirs"] = v
		}
		if v, ok := before.Annotations["theirs"]; ok && !slices.Contains(copied, "annotation:theirs") {
			wantAnnotations["theirs"] = v
		}
	}
	// Of the metadata in these worlds one label and one annotation may travel, if the flags list them.
	listed := len(w.opts.CopyLabels) > 0
	if listed && src.Labels["app"] != "" {
		wantLabels["app"] = src.Labels["app"]
	}
	if listed && src.Annotations["note"] != "" {
		wantAnnotations["note"] = src.Annotations["note"]
	}
	if !containsAll(got.Labels, wantLabels) || !containsAll(got.Annotations, wantAnnotations) {
		t.Errorf("%s: got labels %v, annotations %v, want among them %v and %v", home, got.Labels, got.Annotations, wantLabels, wantAnnotations)
	}
	if before == nil && (got.Labels["helm.sh/chart"] != "" || len(got.Labels) != len(wantLabels)) {
		t.Errorf("%s: got labels %v, want %v", home, got.Labels, wantLabels)
	}
	if len(got.OwnerReferences)+len(got.Finalizers) > 0 || got.Annotations[digestMark] != "" {
		t.Errorf("%s: got %v", home, got.ObjectMeta)
	}
}

// plan plans for all targets, and checks that the arguments stay as they are and that the form in which the cache has an
// object decides nothing.
func (w *world) plan(t *testing.T, v view, targets []target) []change {
	t.Helper()
	asTheyWere := func() (all []runtime.Object) {
		for _, s := range v.all() {
			all = append(all, s.cm.DeepCopy())
		}
		for _, tgt := range targets {
			all = append(all, tgt.object.DeepCopy(), tgt.have.DeepCopy())
		}
		return all
	}
	before := asTheyWere()
	changes := w.rules.plan(v, targets)
	if !reflect.DeepEqual(asTheyWere(), before) {
		t.Error("got an argument of plan changed")
	}
	for i, c := range changes {
		tgt := targets[i]
		if c.namespace != tgt.namespace {
			t.Fatalf("got a change of %s for %s", c.namespace, tgt.namespace)
		}
		if tgt.have == nil {
			continue
		}
		tgt.have = w.objects[tgt.namespace].DeepCopy()
		whole := w.rules.plan(v, []target{tgt})[0]
		if whole.op != c.op || whole.outcome != c.outcome || whole.premise != c.premise || whole.byFlags != c.byFlags || whole.source != c.source || whole.owner != c.owner {
			t.Errorf("%s: got %v, %v from the cache, want %v, %v", tgt.namespace, c.op, c.outcome, whole.op, whole.outcome)
		}
	}
	return changes
}

// checkChange checks that a change touches nothing that is not ours to touch, and rests on what it has to rest on.
func (w *world) checkChange(t *testing.T, v view, c change) {
	t.Helper()
	if c.op == opNone || c.op == opLook {
		return
	}
	ns := w.namespaces[c.namespace]
	if ns == nil || w.name == "kube-root-ca.crt" {
		t.Fatalf("%s: got %v where nothing may be done", c.namespace, c.op)
	}
	winner := w.winner(ns)
	if (c.source == nil) != (winner == nil) || c.source != nil && c.source.key.Namespace != winner.Namespace {
		t.Errorf("%s: got %v for %v, want it for %v", c.namespace, c.op, c.source, winner)
	}
	if (c.op == opDelete) != (winner == nil) {
		t.Errorf("%s: got %v, and a source claims the target: %v", c.namespace, c.op, winner != nil)
	}
	if c.op == opCreate {
		return
	}
	said := w.marksOf(w.objects[c.namespace])
	if said.asks || said.owner == "" && (c.op == opDelete || !said.adoptable) {
		t.Errorf("%s: got %v of what is not ours: %v", c.namespace, c.op, w.objects[c.namespace])
	}
	if c.op != opDelete {
		return
	}
	// What the API server has is what the cache shows here, so a premise that does not hold would never come to hold.
	var live *corev1.ConfigMap
	if cm := w.objects[c.owner.Namespace]; cm != nil && c.premise.source {
		live = cm.DeepCopy()
		live.Data, live.BinaryData = nil, nil
	}
	if c.premise != (premise{}) && !w.rules.stillUnwanted(v, live, ns) {
		t.Errorf("%s: got a deletion behind %+v, which does not hold", c.namespace, c.premise)
	}
	if c.byFlags == c.premise.source || c.byFlags && !w.prunable[c.namespace] {
		t.Errorf("%s: got a deletion behind %+v, by flags: %v, of a copy that was judged: %v", c.namespace, c.premise, c.byFlags, w.prunable[c.namespace])
	}
	if byLabels := slices.ContainsFunc(v.sources, func(s *source) bool { return s.claimsName(w.rules, c.namespace) }); byLabels != c.premise.namespace {
		t.Errorf("%s: got a deletion behind %+v; but for the labels of the namespace a source claims it: %v", c.namespace, c.premise, byLabels)
	}
}

// round brings every target in line as the reconciler does, and returns the last decision about each and how often
// each operation was planned.
func (w *world) round(t *testing.T, m *measures) (last []change, ops [opLook + 1]int) {
	t.Helper()
	wr := newWriter(w.client(), w.rules, m)
	v, targets := w.view(), w.targets()
	for i, c := range w.plan(t, v, targets) {
		w.checkChange(t, v, c)
		ops[c.op]++
		collides := c.op == opCreate && w.objects[c.namespace] != nil
		err := wr.apply(t.Context(), c)
		switch {
		case collides && !apierrors.IsAlreadyExists(err), !collides && err != nil:
			t.Errorf("%s: got %v from the %v", c.namespace, err, c.op)
		case collides || c.op == opLook:
			targets[i].vanished = false
			if cm := w.objects[c.namespace]; cm != nil {
				targets[i].have = cm.DeepCopy()
				w.rules.strip(targets[i].have)
			}
			c = w.plan(t, v, targets[i:i+1])[0]
			w.checkChange(t, v, c)
			ops[c.op]++
			if err := wr.apply(t.Context(), c); err != nil {
				t.Errorf("%s: got %v from the %v after a look", c.namespace, err, c.op)
			}
		}
		last = append(last, c)
	}
	return last, ops
}

// checkWorld plans and applies twice. It returns how often each operation was planned at first.
func checkWorld(t *testing.T, m *measures, raw []byte) [opLook + 1]int {
	t.Helper()
	w := drawWorld(raw)
	before, expect := maps.Clone(w.objects), map[string]expected{}
	for _, home := range homes {
		expect[home] = w.expects(home)
	}
	_, ops := w.round(t, m)
	for _, home := range homes {
		switch e := expect[home]; {
		case e.holds != nil:
			w.checkCopy(t, e.holds, before[home], home)
		case e.empty && w.objects[home] != nil:
			t.Errorf("%s: got %v, want nothing there", home, w.objects[home])
		case !e.empty && w.objects[home] != before[home]:
			t.Errorf("%s: got %v, want %v untouched", home, w.objects[home], before[home])
		}
	}
	after := maps.Clone(w.objects)
	last, _ := w.round(t, m)
	for i, c := range last {
		if c.op != opNone || c.outcome != expect[c.namespace].outcome {
			t.Errorf("%s: got %v, %v in the second round, want nothing to do and %v", homes[i], c.op, c.outcome, expect[c.namespace].outcome)
		}
	}
	if !maps.Equal(w.objects, after) {
		t.Errorf("got writes in the second round")
	}
	return ops
}

// FuzzPlan draws small worlds and has the plan carried out, by the writer, on a model of the API server: all targets
// then stand as the contract says, nothing foreign was in any plan, and a second round finds nothing to do.
func FuzzPlan(f *testing.F) {
	m := newMeasures()
	f.Fuzz(func(t *testing.T, raw []byte) { checkWorld(t, m, raw) })
}

// TestPlanOfManyWorlds does at every run what the fuzzing does when it is asked to.
func TestPlanOfManyWorlds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := newMeasures()
	var ops [opLook + 1]int
	for range 400 {
		raw := make([]byte, 150)
		for i := range raw {
			raw[i] = byte(random.Uint32())
		}
		for o, n := range checkWorld(t, m, raw) {
			ops[o] += n
		}
		if t.Failed() {
			t.Fatalf("the world of %q", raw)
		}
	}
	for o, n := range ops {
		if n < 20 {
			t.Errorf("got %v planned %d times, want worlds in which it is planned more often", op(o), n)
		}
	}
}
