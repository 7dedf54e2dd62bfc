package suite

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Expectations about copies, events and requests.

// inSync returns nil if the ConfigMap, which was found in the namespace, is the
// copy of source, whole and with all marks.
func (w *World) inSync(source *corev1.ConfigMap, namespace string, cm *corev1.ConfigMap) error {
	if cm == nil {
		return fmt.Errorf("no copy in %s", namespace)
	}
	const domain = "mirror-controller.github.io/"
	for what, wrong := range map[string]bool{
		"data":                           !maps.Equal(cm.Data, source.Data),
		"binaryData":                     !maps.EqualFunc(cm.BinaryData, source.BinaryData, bytes.Equal),
		"immutable":                      Immutable(cm) != Immutable(source),
		"label " + w.Label:               cm.Labels[w.Label] != "copy",
		"label managed-by":               cm.Labels["app.kubernetes.io/managed-by"] != "mirror-controller",
		"annotation source":              cm.Annotations[domain+"source"] != source.Namespace+"/"+source.Name,
		"annotation copy":                cm.Annotations[domain+"copy"] != namespace+"/"+source.Name,
		"annotation instance":            cm.Annotations[domain+"instance"] != w.Instance,
		"annotation checksum":            !checksum.MatchString(cm.Annotations[domain+"checksum"]),
		"owner references or finalizers": len(cm.OwnerReferences)+len(cm.Finalizers) > 0,
	} {
		if wrong {
			is := fmt.Sprint(cm.ObjectMeta, cm.Data)
			return fmt.Errorf("copy in %s: wrong %s: %s", namespace, what, is[:min(len(is), 1000)])
		}
	}
	return nil
}

var checksum = regexp.MustCompile("^sha256:[0-9a-f]{64}$")

// Immutable reports whether a ConfigMap is immutable.
func Immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

// WaitInSync waits until the namespaces have copies of source that are in sync.
func (w *World) WaitInSync(source *corev1.ConfigMap, namespaces ...string) {
	w.Helper()
	w.Until("copies of "+source.Name+" in sync", func() error {
		for _, namespace := range namespaces {
			shown := w.Seen.ConfigMap(namespace, source.Name)
			if err := w.inSync(source, namespace, shown); err != nil {
				return err
			}
		}
		return nil
	})
}

// ExpectInSync fails the test unless the namespaces have copies of source that
// are in sync now. The outside watch may be behind whoever has said so.
func (w *World) ExpectInSync(source *corev1.ConfigMap, namespaces ...string) {
	w.Helper()
	for _, namespace := range namespaces {
		if err := w.inSync(source, namespace, w.Live(namespace, source.Name)); err != nil {
			w.Error(err)
		}
	}
}

// WaitGone waits until there is no ConfigMap of the name in the namespaces.
func (w *World) WaitGone(name string, namespaces ...string) {
	w.Helper()
	w.Until("copies of "+name+" gone", func() error {
		for _, namespace := range namespaces {
			if w.Seen.ConfigMap(namespace, name) != nil {
				return fmt.Errorf("there is one in %s", namespace)
			}
		}
		return nil
	})
}

// Copies returns the ConfigMaps of the name in the namespaces as they are now; none may be missing.
func (w *World) Copies(name string, namespaces ...string) []*corev1.ConfigMap {
	w.Helper()
	var out []*corev1.ConfigMap
	for _, namespace := range namespaces {
		cm := w.Live(namespace, name)
		if cm == nil {
			w.Fatalf("there is no %s in %s", name, namespace)
		}
		out = append(out, cm)
	}
	return out
}

// Untouched fails the test if an object is no longer the one that was created, to the resourceVersion.
func (w *World) Untouched(cms ...*corev1.ConfigMap) {
	w.Helper()
	for _, cm := range cms {
		now := w.Live(cm.Namespace, cm.Name)
		if now == nil || now.UID != cm.UID || now.ResourceVersion != cm.ResourceVersion {
			w.Errorf("%s/%s was touched: now %v", cm.Namespace, cm.Name, now)
		}
	}
}

// SameObjects fails the test if an object is gone or is another one of the same name, whatever it holds.
func (w *World) SameObjects(cms []*corev1.ConfigMap) {
	w.Helper()
	for _, cm := range cms {
		if now := w.Live(cm.Namespace, cm.Name); UID(now) != cm.UID {
			w.Errorf("%s/%s was deleted, and made again or not: now %v", cm.Namespace, cm.Name, now)
		}
	}
}

// Absent fails the test if there is a ConfigMap of the name in one of the namespaces.
func (w *World) Absent(name string, namespaces ...string) {
	w.Helper()
	for _, namespace := range namespaces {
		if cm := w.Live(namespace, name); cm != nil {
			w.Errorf("there is a ConfigMap %s in %s: %v", name, namespace, cm)
		}
	}
}

// UID returns the UID of a ConfigMap, and nothing of nil.
func UID(cm *corev1.ConfigMap) types.UID {
	if cm == nil {
		return ""
	}
	return cm.UID
}

// WaitEvent waits for an event with the reason on the ConfigMap, which has all of the texts.
func (w *World) WaitEvent(namespace, name, reason string, texts ...string) {
	w.Helper()
	w.Until("event "+reason+" on "+namespace+"/"+name, func() error {
		var notes []string
		for _, e := range w.Seen.EventsOn(namespace, name) {
			lacks := func(text string) bool { return !strings.Contains(e.Message, text) }
			if e.Reason == reason && !slices.ContainsFunc(texts, lacks) {
				return nil
			}
			notes = append(notes, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("none has %q: %q", texts, notes)
	})
}

// Reasons returns how often each reason was reported of the ConfigMap.
func (w *World) Reasons(namespace, name string) map[string]int {
	out := map[string]int{}
	for _, e := range w.Seen.EventsOn(namespace, name) {
		out[e.Reason] += int(e.Count)
	}
	return out
}

// Settle waits until the controller has handled all earlier changes. It creates a source for the namespaces, waits for
// the copy in each of them, which the controller reconciles in the order of events, and deletes the source again. No
// other source of the world may be waiting for its copies.
func (w *World) Settle(namespaces ...string) {
	w.Helper()
	name := fmt.Sprintf("settle-%d", worlds.Add(1))
	source := w.CreateSource(w.Home, name, WithAnnotation(plan.PrefixAnnotation, strings.Join(namespaces, ",")))
	w.WaitInSync(source, namespaces...)
	w.Edit(w.Home, name, WithoutLabel(w.Label))
	w.WaitGone(name, namespaces...)
	w.Delete(w.Home, name)
}
