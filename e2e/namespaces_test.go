package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespaces that come and go: cases C28 and C29.

// TestC28NamespaceBeingDeleted deletes a namespace in the middle of its filling, and one that takes its time: no
// error is reported, nothing is written into it, and its deletion is not held up.
func TestC28NamespaceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "slow", "b")
	slow, b := w.ns("slow"), w.ns("b")
	p := w.start("--resync-period=200ms")
	var sources []*corev1.ConfigMap
	for i := range 10 {
		sources = append(sources, w.createSource(w.home, fmt.Sprintf("settings-%d", i)))
		w.waitInSync(sources[i], slow, b)
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
		w.waitInSync(sources[i], b)
	}
	w.waitInSync(w.createSource(w.home, "latest"), b)
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
	busy := []string{" reflector.go:", " cache.go:", " events.go:"} // who may complain of a machine that has no time
	for line := range strings.Lines(p.Log()) {
		if strings.HasPrefix(line, "E") && !slices.ContainsFunc(busy, func(file string) bool { return strings.Contains(line, file) }) {
			t.Errorf("an error in the log: %s", line)
		}
	}
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
		w.waitInSync(sources[i+1], names...)
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
			w.waitInSync(source, names...)
		}
	}
	w.waitReasons(w.home, "settings-0", map[string]int{"Mirrored": 1})
}

// TestC29AdmissionBehind has the API server refuse creates in a namespace that is there anew as if it were still being
// deleted, which admission may believe for a moment: the copy is made soon after, and no failure is reported.
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
	w.waitInSync(source, anew, b)
	w.waitEvent(w.home, "settings", "Mirrored")
	w.expectReasons(w.home, "settings", map[string]int{"Mirrored": 1})
	if n := refusals.Load(); n <= 3 {
		t.Errorf("%d creates came to the webhook: nothing was refused", n)
	}
}
