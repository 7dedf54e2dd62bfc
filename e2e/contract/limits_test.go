package contract

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Names, data and metadata as large as the API server takes them: cases C09, C25 and C71.

const (
	mostData        = 1 << 20
	mostAnnotations = 256 << 10
)

// TestC09LongestName has a name of 253 characters with dots, also in events.
func TestC09LongestName(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	longest := strings.Repeat("a.", 126) + "b"
	w.Start()
	w.WaitInSync(w.CreateSource(w.Home, longest), w.NS("a"))
	w.WaitEvent(w.Home, longest, plan.ReasonMirrored)
	w.WaitInSync(w.Edit(w.Home, longest, suite.WithKey("key", "two")), w.NS("a"))
	w.Delete(w.Home, longest)
	w.WaitGone(longest, w.NS("a"))
}

// TestC25LargeSources has a source with as much data as fits, which is copied, and one that leaves no room for the
// marks of a copy: refused, reported with the reason, and others go on.
func TestC25LargeSources(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.Start("--copy-annotation=example.com/*")
	large := w.CreateSource(w.Home, "large", suite.WithData(map[string]string{"key": strings.Repeat("x", mostData)}))
	w.WaitInSync(large, a, b)

	const key = "example.com/long"
	w.WaitInSync(w.CreateSource(w.Home, "long", suite.WithAnnotation(key, "not yet")), a, b)
	copies := w.Copies("long", a, b)
	w.Edit(w.Home, "long", suite.WithAnnotation(key, strings.Repeat("x", mostAnnotations-len(key))))
	w.WaitEvent(w.Home, "long", plan.ReasonWriteFailed, "annotations", a) // what is wrong, and where
	binary := suite.WithBinaryData(map[string][]byte{"key": make([]byte, mostData)})
	w.WaitInSync(w.Edit(w.Home, "large", suite.WithData(nil), binary), a, b)
	w.Untouched(copies...)
	w.WaitInSync(w.Edit(w.Home, "long", suite.WithAnnotation(key, "short"), suite.WithKey("key", "two")), a, b)
}

// TestC71FilledMetadata has tenants fill the annotations or the labels of a copy up to the API server's limit, and
// edit its data: the copy is repaired in place, and their metadata stays. If they removed an annotation of ours to make
// room, the copy is too large with theirs, which go, but for the finalizer.
func TestC71FilledMetadata(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "annotations", "labels", "full")
	annotations, labels, full := w.NS("annotations"), w.NS("labels"), w.NS("full")
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, annotations, labels, full)
	before := w.Copies("settings", annotations, labels, full)

	const mine = "example.com/mine"
	fillAnnotations := func(cm *corev1.ConfigMap) {
		left := mostAnnotations - len(mine)
		for k, v := range cm.Annotations {
			left -= len(k) + len(v)
		}
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, mine, strings.Repeat("x", left))
	}
	fillLabels := func(cm *corev1.ConfigMap) {
		for i := range 4000 { // a megabyte: etcd takes a request of 1.5
			label := fmt.Sprintf("%s.example.com/mine-%04d", strings.Repeat("x", 63), i)
			metav1.SetMetaDataLabel(&cm.ObjectMeta, label, strings.Repeat("x", 63))
		}
	}
	edit := suite.WithKey("key", "edited")
	w.Edit(annotations, "settings", fillAnnotations, edit)
	w.Edit(labels, "settings", fillLabels, edit)
	w.Edit(full, "settings", func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, plan.ChecksumAnnotation)
		cm.Finalizers = []string{mine}
	}, fillAnnotations, edit)
	w.WaitInSync(source, annotations, labels)
	w.Await("the mark is back", func() bool {
		return w.Seen.ConfigMap(full, "settings").Annotations[plan.ChecksumAnnotation] != ""
	})
	for i, cm := range w.Copies("settings", annotations, labels, full) {
		theirs := max(len(cm.Labels)-2, len(cm.Annotations[mine]))
		isFull := cm.Namespace == full
		if cm.UID != before[i].UID || (theirs == 0) != isFull || len(cm.Finalizers) > 0 != isFull {
			t.Errorf("%s: the same object: %v, with %d labels, %d bytes of theirs, finalizers %q", cm.Namespace,
				cm.UID == before[i].UID, len(cm.Labels), len(cm.Annotations[mine]), cm.Finalizers)
		}
	}
	w.Edit(full, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.WaitInSync(source, full)
}
