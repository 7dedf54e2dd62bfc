package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Expectations about copies, events and requests.

// inSync returns nil if the ConfigMap in namespace is the copy of source, whole and with all marks.
func (w *world) inSync(source *corev1.ConfigMap, namespace string) error {
	return w.copyOf(source, namespace, w.seen.ConfigMap(namespace, source.Name))
}

func (w *world) copyOf(source *corev1.ConfigMap, namespace string, cm *corev1.ConfigMap) error {
	if cm == nil {
		return fmt.Errorf("no copy in %s", namespace)
	}
	if !maps.Equal(cm.Data, source.Data) {
		return fmt.Errorf("copy in %s: data is %v, want %v", namespace, clipped(cm.Data), clipped(source.Data))
	}
	if !maps.EqualFunc(cm.BinaryData, source.BinaryData, func(a, b []byte) bool { return string(a) == string(b) }) {
		return fmt.Errorf("copy in %s: binaryData has %d keys, or other content, want %d", namespace, len(cm.BinaryData), len(source.BinaryData))
	}
	if immutable(cm) != immutable(source) {
		return fmt.Errorf("copy in %s: immutable is %v, want %v", namespace, immutable(cm), immutable(source))
	}
	for k, want := range map[string]string{w.label: "copy", "app.kubernetes.io/managed-by": "mirror-controller"} {
		if got := cm.Labels[k]; got != want {
			return fmt.Errorf("copy in %s: label %s is %q, want %q", namespace, k, got, want)
		}
	}
	const domain = "mirror-controller.github.io/"
	for k, want := range map[string]string{
		domain + "source":   source.Namespace + "/" + source.Name,
		domain + "copy":     namespace + "/" + source.Name,
		domain + "instance": w.instance,
	} {
		if got := cm.Annotations[k]; got != want {
			return fmt.Errorf("copy in %s: annotation %s is %q, want %q", namespace, k, got, want)
		}
	}
	if sum := cm.Annotations[domain+"checksum"]; len(sum) != len("sha256:")+64 || !strings.HasPrefix(sum, "sha256:") {
		return fmt.Errorf("copy in %s: checksum is %q", namespace, sum)
	}
	if len(cm.OwnerReferences)+len(cm.Finalizers) > 0 {
		return fmt.Errorf("copy in %s has owner references or finalizers", namespace)
	}
	return nil
}

func immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

func clipped(data map[string]string) string {
	s := fmt.Sprint(data)
	return s[:min(len(s), 200)]
}

// waitInSync waits until the namespaces have copies of source that are in sync.
func (w *world) waitInSync(source *corev1.ConfigMap, namespaces ...string) {
	w.Helper()
	w.eventually("copies of "+source.Name+" in sync", func() error {
		for _, namespace := range namespaces {
			if err := w.inSync(source, namespace); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitGone waits until there is no ConfigMap of the name in the namespaces.
func (w *world) waitGone(name string, namespaces ...string) {
	w.Helper()
	w.eventually("copies of "+name+" gone", func() error {
		for _, namespace := range namespaces {
			if w.seen.ConfigMap(namespace, name) != nil {
				return fmt.Errorf("there is one in %s", namespace)
			}
		}
		return nil
	})
}

// copies returns the ConfigMaps of the name in the namespaces as they are now; none may be missing.
func (w *world) copies(name string, namespaces ...string) []*corev1.ConfigMap {
	w.Helper()
	var out []*corev1.ConfigMap
	for _, namespace := range namespaces {
		cm := w.live(namespace, name)
		if cm == nil {
			w.Fatalf("there is no %s in %s", name, namespace)
		}
		out = append(out, cm)
	}
	return out
}

// untouched fails the test if the object is no longer the one that was created, to the resourceVersion.
func (w *world) untouched(cm *corev1.ConfigMap) {
	w.Helper()
	now := w.live(cm.Namespace, cm.Name)
	if now == nil {
		w.Errorf("%s/%s is gone", cm.Namespace, cm.Name)
	} else if now.UID != cm.UID || now.ResourceVersion != cm.ResourceVersion {
		w.Errorf("%s/%s was touched: now %v", cm.Namespace, cm.Name, now)
	}
}

// allUntouched is untouched for many.
func (w *world) allUntouched(cms []*corev1.ConfigMap) {
	w.Helper()
	for _, cm := range cms {
		w.untouched(cm)
	}
}

// sameObjects fails the test if an object is gone or is another one of the same name, whatever it holds.
func (w *world) sameObjects(cms []*corev1.ConfigMap) {
	w.Helper()
	for _, cm := range cms {
		if now := w.live(cm.Namespace, cm.Name); uid(now) != cm.UID {
			w.Errorf("%s/%s was deleted, and made again or not: now %v", cm.Namespace, cm.Name, now)
		}
	}
}

// absent fails the test if there is a ConfigMap of the name in one of the namespaces.
func (w *world) absent(name string, namespaces ...string) {
	w.Helper()
	for _, namespace := range namespaces {
		if cm := w.live(namespace, name); cm != nil {
			w.Errorf("there is a ConfigMap %s in %s: %v", name, namespace, cm)
		}
	}
}

func uid(cm *corev1.ConfigMap) types.UID {
	if cm == nil {
		return ""
	}
	return cm.UID
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// waitEvent waits for an event with the reason on the ConfigMap and returns it.
func (w *world) waitEvent(namespace, name, reason string) string {
	w.Helper()
	var note string
	w.eventually("event "+reason+" on "+namespace+"/"+name, func() error {
		for _, e := range w.seen.EventsOn(namespace, name) {
			if e.Reason == reason {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("there are %v", w.reasons(namespace, name))
	})
	return note
}

// reasons returns how often each reason was reported of the ConfigMap.
func (w *world) reasons(namespace, name string) map[string]int {
	out := map[string]int{}
	for _, e := range w.seen.EventsOn(namespace, name) {
		out[e.Reason]++
		if e.Series != nil {
			out[e.Reason] += int(e.Series.Count) - 1
		}
	}
	return out
}

// waitReasons waits until there are exactly these events about the ConfigMap, each so many times. The controller writes an
// event of one reason up to ten seconds after the one before.
func (w *world) waitReasons(namespace, name string, want map[string]int) {
	w.Helper()
	w.eventually("the events on "+namespace+"/"+name, func() error {
		if got := w.reasons(namespace, name); !maps.Equal(got, want) {
			return fmt.Errorf("there are %v, want %v", got, want)
		}
		return nil
	})
}

// expectReasons fails the test unless there are exactly these events about the ConfigMap by now, each so many times.
func (w *world) expectReasons(namespace, name string, want map[string]int) {
	w.Helper()
	if got := w.reasons(namespace, name); !maps.Equal(got, want) {
		w.Errorf("events on %s/%s: %v, want %v", namespace, name, got, want)
	}
}

// noted returns a condition: one of the events of that reason on the source in the home namespace names all of
// these namespaces.
func (w *world) noted(name, reason string, namespaces ...string) func() error {
	return func() error {
		for _, e := range w.seen.EventsOn(w.home, name) {
			missing := func(namespace string) bool { return !strings.Contains(e.Note, namespace) }
			if e.Reason == reason && !slices.ContainsFunc(namespaces, missing) {
				return nil
			}
		}
		return errors.New("no event names them")
	}
}

// settle waits until the controller has handled all earlier changes. It creates a source for the namespaces, waits for the copy
// in each of them, which the controller reconciles in the order of events, and deletes the source again. No other source of the
// world may be waiting for its copies.
func (w *world) settle(namespaces ...string) {
	w.Helper()
	name := fmt.Sprintf("settle-%d", worlds.Add(1))
	source := w.createSource(w.home, name, withAnnotation(plan.PrefixAnnotation, strings.Join(namespaces, ",")))
	w.waitInSync(source, namespaces...)
	w.edit(w.home, name, withoutLabel(w.label))
	w.waitGone(name, namespaces...)
	w.delete(w.home, name)
}

// tick edits a source that nothing else changes, and waits for its copy in each of the namespaces. It is cheaper than settle,
// and as good where nothing can be in the way.
func (w *world) tick(i int, namespaces ...string) {
	w.Helper()
	data := withData(map[string]string{"tick": string(rune('a' + i%26))})
	if i == 0 {
		w.createSource(w.home, "tick")
	}
	w.waitInSync(w.edit(w.home, "tick", data), namespaces...)
}

// passes lets a controller with a short --resync-period compare everything n times and more, and events that
// it writes at once reach the watch. What shows it is a foreign object that is deleted: the controller retries its target
// by a timer of a second at least, in which a shorter period has passed several times.
func (w *world) passes(n int, target string) {
	w.Helper()
	for range n {
		name := fmt.Sprintf("pass-%d", worlds.Add(1))
		w.create(target, name)
		source := w.createSource(w.home, name)
		w.waitEvent(w.home, name, mirror.ReasonForeign)
		w.delete(target, name)
		w.waitInSync(source, target)
		w.edit(w.home, name, withoutLabel(w.label))
		w.waitGone(name, target)
	}
}
