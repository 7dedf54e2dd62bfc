package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// draws hands out small numbers from raw bytes; when these are used up, zeros.
type draws []byte

// below returns a number from 0 to n-1.
func (d *draws) below(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

// oneIn reports true once in n times.
func (d *draws) oneIn(n int) bool { return d.below(n) == n-1 }

// homes are the namespaces of a world. With the flags of every world no other ones matter.
var homes = []string{"platform", "team-a", "base", "team-b", "team-c", "team-x1", "other"}

// Values of the annotations of a source, of which some are malformed.
var (
	prefixes  = []string{"team-a", " team-b ,\tteam-c", "other,t", "Team", "team-a,"}
	selectors = []string{"", "tier=gold", "tier!=gold", "tier==="}
)

// world is one name in a small cluster: in each home a namespace, and at most one object of that name.
type world struct {
	name       string
	opts       *Options
	rules      *Rules
	namespaces map[string]*corev1.Namespace // those that the cache has
	objects    map[string]*corev1.ConfigMap // by namespace, as the API server has them
	version    int
}

// drawWorld draws a world from raw. Every value of raw is a world.
func drawWorld(raw []byte) *world {
	d := draws(raw)
	o := NewOptions()
	w := &world{
		name: "settings", opts: &o,
		namespaces: map[string]*corev1.Namespace{}, objects: map[string]*corev1.ConfigMap{},
	}
	if d.oneIn(32) {
		w.name = "kube-root-ca.crt"
	}
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
	if d.oneIn(3) {
		o.NamespaceSelector = selectors[d.below(3)]
	}
	o.Prune = d.oneIn(2)
	w.rules = NewRules(&o)
	held := map[string]bool{} // namespaces whose object has a finalizer
	for _, home := range homes {
		held[home] = d.oneIn(4)
		if ns := d.namespace(home); ns != nil {
			w.namespaces[home] = ns
		}
		if cm := d.original(home, w.name); cm != nil {
			w.store(cm)
		}
	}
	for _, home := range homes {
		if w.objects[home] == nil && d.oneIn(2) {
			w.store(d.copyOf(w, homes[d.below(len(homes))], home))
		}
		if cm := w.objects[home]; cm != nil && held[home] {
			plantest.Finalizer(cm)
		}
	}
	for _, home := range homes {
		if cm := w.objects[home]; readMarks(cm, o.Instance).asks {
			d.hold(cm)
		}
	}
	return w
}

// hold has a source hold some of its targets, or none.
func (d *draws) hold(src *corev1.ConfigMap) {
	kind := d.below(8)
	if kind == 5 || kind == 6 {
		src.Annotations[RolloutAnnotation] = selectors[d.below(len(selectors))]
	}
	if kind == 6 || kind == 7 {
		src.Annotations[PausedAnnotation] = []string{"true", "true", "yes"}[d.below(3)]
	}
}

// namespace returns a namespace of that name, or nil if the cache has none.
func (d *draws) namespace(name string) *corev1.Namespace {
	ns := plantest.Namespace(name)
	switch d.below(12) {
	case 7:
		ns.Labels[DefaultLabel] = "false"
	case 8:
		ns.Labels[DefaultLabel] = "true"
	case 9:
		ns.Status.Phase = corev1.NamespaceTerminating
	case 10:
		ns.DeletionTimestamp = plantest.Terminating(name).DeletionTimestamp
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

// original returns an object that is no copy: a source, a foreign object, or none.
func (d *draws) original(home, name string) *corev1.ConfigMap {
	kind := d.below(6)
	if kind < 3 {
		return nil
	}
	cm := plantest.ConfigMap(home, name, plantest.CreatedAt(int64(1+d.below(3))), plantest.Managed)
	d.content(cm)
	if kind < 5 {
		cm.Labels[DefaultLabel] = "true"
		if d.oneIn(3) {
			cm.Annotations[PrefixAnnotation] = prefixes[d.below(len(prefixes))]
		}
		if d.oneIn(3) {
			cm.Annotations[SelectorAnnotation] = selectors[d.below(len(selectors))]
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
		plantest.Deleting(cm)
	}
	for range d.below(4) {
		d.forge(cm)
	}
	return cm
}

// content gives cm one of a few contents.
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
		plantest.Immutable(cm)
	}
}

// forge writes one of our annotations onto cm, a true one or a false one.
func (d *draws) forge(cm *corev1.ConfigMap) {
	key := []string{SourceAnnotation, CopyAnnotation, InstanceAnnotation, ChecksumAnnotation, CopiedAnnotation}[d.below(5)]
	value := []string{
		"platform/" + cm.Name, cm.Namespace + "/" + cm.Name, "default", "other",
		"label:theirs,label:mirror,annotation:" + CopyAnnotation, "",
		"platform/" + cm.Name + "/x", "team-a/" + cm.Name, "label:app,annotation:note", "Platform/" + cm.Name,
	}[d.below(10)]
	cm.Annotations[key] = value
}

// copyOf returns the copy in home of the object in from, or of one that is gone, with up to two edits of other people.
func (d *draws) copyOf(w *world, from, home string) *corev1.ConfigMap {
	src := w.objects[from]
	if src == nil || d.oneIn(6) {
		src = plantest.Source(from, w.name, plantest.Label("app", "gone"))
		d.content(src)
	}
	cm := plantest.Copy(w.rules, src, home, plantest.Managed, plantest.Label("theirs", "1"),
		plantest.Annotation("theirs", "1"))
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
			plantest.Deleting(cm)
		case 5:
			cm.Annotations[AdoptAnnotation] = "true"
		case 6:
			cm.Annotations[InstanceAnnotation] = "other"
		case 7:
			delete(cm.Annotations, []string{SourceAnnotation, CopyAnnotation, InstanceAnnotation}[d.below(3)])
		case 8:
			cm.Annotations[CopyAnnotation] = "team-z/" + w.name
		case 9:
			plantest.Immutable(cm)
		case 10:
			cm.Annotations[ChecksumAnnotation] = "sha256:00"
		case 11:
			d.forge(cm)
		}
	}
	return cm
}

// store stores an object as the API server does, and returns it.
func (w *world) store(cm *corev1.ConfigMap) *corev1.ConfigMap {
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

// view returns the sources that the cache shows.
func (w *world) view() *View {
	var visible []*corev1.ConfigMap
	for _, cm := range w.objects {
		if w.rules.Visible(cm) {
			visible = append(visible, stripped(w.rules, cm))
		}
	}
	return viewOf(w.rules, visible...)
}

// targets returns every home as a target, as the caches show it.
func (w *world) targets() []Target {
	var targets []Target
	for _, home := range homes {
		t := w.liveTarget(home)
		if t.Have != nil && !w.rules.Visible(t.Have) {
			t.Have = nil
		}
		targets = append(targets, t)
	}
	return targets
}

// liveTarget returns a home as a target after a live read of its object.
func (w *world) liveTarget(home string) Target {
	return Target{
		Key:       types.NamespacedName{Namespace: home, Name: w.name},
		Namespace: w.namespaces[home].DeepCopy(),
		Have:      stripped(w.rules, w.objects[home]),
	}
}
