package e2e

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Clones of copies and forged copies: cases C06 and C07.

// TestC06CloneOfCopy applies a copy's YAML in other namespaces, as a clone or a restored backup: foreign there,
// and never deleted.
func TestC06CloneOfCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	elsewhere := w.elsewhere("elsewhere")
	p := w.start("--resync-period=200ms")
	source := w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, a+","+b))
	w.waitInSync(source, a, b)
	backup := w.live(a, "settings")
	clones := []*corev1.ConfigMap{w.restore(backup, c), w.restore(backup, elsewhere)}
	w.passes(2, b)
	w.allUntouched(clones)

	// It is in the way where it is wanted, and not where it is not.
	w.edit(w.home, "settings", withoutAnnotation(plan.PrefixAnnotation))
	if note := w.waitEvent(w.home, "settings", "Foreign"); !strings.Contains(note, c) || strings.Contains(note, elsewhere) {
		t.Errorf("the event names something else than the clone: %s", note)
	}
	w.delete(w.home, "settings")
	w.waitGone("settings", a, b)
	w.passes(2, b)
	w.stop(p)
	clones = append(clones, w.restore(backup, b)) // in a target of old, while nobody watches
	w.start("--resync-period=200ms")
	w.settle(a, b)
	w.passes(2, b)
	w.allUntouched(clones)
}

// restore creates a ConfigMap in another namespace from what a backup has of it.
func (w *world) restore(backup *corev1.ConfigMap, namespace string) *corev1.ConfigMap {
	w.Helper()
	return w.create(namespace, backup.Name, func(cm *corev1.ConfigMap) {
		cm.Labels, cm.Annotations = maps.Clone(backup.Labels), maps.Clone(backup.Annotations)
		cm.Data, cm.BinaryData, cm.Immutable = backup.Data, backup.BinaryData, backup.Immutable
	})
}

// TestC07ForgedAnnotations puts our marks on somebody's ConfigMaps, in every way but the true one: never
// changed, never deleted, with a source of that name or without.
func TestC07ForgedAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	forgeries := map[string]func(name string) option{
		"no-copy":         func(string) option { return withoutAnnotation(plan.CopyAnnotation) },
		"copy-of-another": func(name string) option { return withAnnotation(plan.CopyAnnotation, b+"/"+name) },
		"copy-renamed":    func(name string) option { return withAnnotation(plan.CopyAnnotation, a+"/"+name+"x") },
		"copy-empty":      func(string) option { return withAnnotation(plan.CopyAnnotation, "") },
		"no-source":       func(string) option { return withoutAnnotation(plan.SourceAnnotation) },
		"source-renamed":  func(name string) option { return withAnnotation(plan.SourceAnnotation, w.home+"/"+name+"x") },
		"source-nonsense": func(name string) option { return withAnnotation(plan.SourceAnnotation, name) },
		"source-nowhere":  func(name string) option { return withAnnotation(plan.SourceAnnotation, "/"+name) },
		"source-dots":     func(name string) option { return withAnnotation(plan.SourceAnnotation, "../"+name) },
		"source-invalid":  func(name string) option { return withAnnotation(plan.SourceAnnotation, "Not_A_Name/"+name) },
		"source-is-copy":  func(name string) option { return withAnnotation(plan.SourceAnnotation, a+"/"+name) },
		"no-instance":     func(string) option { return withoutAnnotation(plan.InstanceAnnotation) },
		"other-instance":  func(string) option { return withAnnotation(plan.InstanceAnnotation, "default") },
	}
	var forged, sources []*corev1.ConfigMap
	forge := func(name string, options ...option) {
		forged = append(forged, w.create(a, name, append(w.marksOfCopy(w.home, a, name), options...)...))
	}
	for what, forgery := range forgeries {
		for _, name := range []string{what + "-claimed", what + "-orphan"} {
			forge(name, forgery(name))
			forge(name+"-unlabelled", forgery(name+"-unlabelled"), withoutLabel(w.label))
		}
		for _, name := range []string{what + "-claimed", what + "-claimed-unlabelled"} {
			sources = append(sources, w.createSource(w.home, name))
		}
	}
	first := w.start("--resync-period=200ms", "-v=2")
	for i, source := range sources {
		w.waitInSync(source, b)
		w.waitEvent(w.home, source.Name, "Foreign")
		sources[i] = w.edit(w.home, source.Name, withData(map[string]string{"key": "two"}))
	}
	for _, source := range sources {
		w.waitInSync(source, b)
	}
	w.passes(1, b)
	w.allUntouched(forged)
	for i, source := range sources {
		if i%2 == 0 {
			w.delete(w.home, source.Name)
		} else {
			w.edit(w.home, source.Name, withoutLabel(w.label))
		}
	}
	for _, source := range sources {
		w.waitGone(source.Name, b)
	}
	w.passes(1, b)
	w.stop(first)
	second := w.start("--resync-period=200ms", "-v=2")
	w.settle(a, b)
	w.passes(1, b)
	w.allUntouched(forged)
	for _, e := range w.requests() {
		if e.Object.Namespace == a && (e.Verb == "update" || e.Verb == "delete") && strings.Contains(e.RequestURI, "-claimed") {
			t.Errorf("it was tried: %v", e)
		}
		if strings.Contains(e.RequestURI, "..") {
			t.Errorf("it was read: %v", e)
		}
	}
	for _, p := range []*shipped.Process{first, second} {
		for line := range strings.Lines(p.Log()) {
			// client-go refuses such a read before there is a request, again and again.
			if strings.Contains(line, "../source-dots") || strings.Contains(line, "Not_A_Name/") {
				t.Errorf("it counted as a source: %s", line)
			}
		}
	}
}
