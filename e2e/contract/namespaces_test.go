package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Namespaces that come and go: cases C28 and C29.

// TestC28NamespaceBeingDeleted deletes a namespace in the middle of its filling, and one that takes its time: no
// error is reported, nothing is written into it, and its deletion is not held up.
func TestC28NamespaceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "slow", "b")
	slow, b := w.NS("slow"), w.NS("b")
	p := w.Start("--resync-period=200ms")
	var sources []*corev1.ConfigMap
	for i := range 10 {
		sources = append(sources, w.CreateSource(w.Home, fmt.Sprintf("settings-%d", i)))
		w.WaitInSync(sources[i], slow, b)
	}

	// One that is deleted while it is filled. Its end is waited for below, as they go side by side.
	var brief []string
	for i := range 5 {
		brief = append(brief, w.CreateNamespace(w.NS(fmt.Sprintf("brief-%d", i)), nil).Name)
		if i%2 == 0 {
			waitSome(w, brief[i])
		}
		w.DeleteNamespace(brief[i])
	}

	// One that is held up by somebody's finalizer.
	w.HoldNamespace(slow, "example.com/hold")
	w.DeleteNamespace(slow)
	for _, source := range sources {
		w.WaitGone(source.Name, slow)
	}
	w.Passes(1, b)
	mark := w.AuditMark()
	for i := range sources {
		sources[i] = w.Edit(w.Home, sources[i].Name, suite.WithData(map[string]string{"key": "two"}))
		w.WaitInSync(sources[i], b)
	}
	w.WaitInSync(w.CreateSource(w.Home, "latest"), b)
	w.Passes(2, b)
	for _, e := range w.RequestsSince(mark) {
		if e.Object.Namespace == slow {
			t.Errorf("a request to a namespace that is being deleted: %v", e)
		}
	}
	w.HoldNamespace(slow)
	for _, namespace := range append(brief, slow) {
		w.WaitNamespaceGone(namespace)
	}
	w.Passes(2, b)
	for _, source := range sources {
		if reasons := w.Reasons(w.Home, source.Name); reasons["WriteFailed"] > 0 {
			t.Errorf("events on %s: %v", source.Name, reasons)
		}
	}
	w.Stop(p)
	busy := []string{" reflector.go:", " cache.go:", " events.go:"} // who may complain of a machine that has no time
	for line := range strings.Lines(p.Log()) {
		if strings.HasPrefix(line, "E") && !slices.ContainsFunc(busy, func(file string) bool { return strings.Contains(line, file) }) {
			t.Errorf("an error in the log: %s", line)
		}
	}
}

// waitSome waits until there is a copy in the namespace.
func waitSome(w *suite.World, namespace string) {
	w.Helper()
	w.Eventually("a copy in "+namespace, func() error {
		if w.Seen.ConfigMap(namespace, "settings-0") == nil && w.Seen.ConfigMap(namespace, "settings-9") == nil {
			return errors.New("none yet")
		}
		return nil
	})
}

// TestC29NamespaceRecreated deletes namespaces and creates them anew as soon as the API server takes it, twice: each is
// filled, whatever was in the way in the old one. One stays, so that there is always a target. (That takes five seconds each
// time: the cluster's own patience.)
func TestC29NamespaceRecreated(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	names := w.CreateMany(9)
	recreated := names[:8]
	w.Create(names[0], "in-the-way")
	w.Start("--resync-period=0")
	sources := []*corev1.ConfigMap{w.CreateSource(w.Home, "in-the-way")}
	w.WaitEvent(w.Home, "in-the-way", "Foreign")
	for i := range 5 {
		sources = append(sources, w.CreateSource(w.Home, fmt.Sprintf("settings-%d", i)))
		w.WaitInSync(sources[i+1], names...)
	}
	for range 2 {
		for _, name := range recreated {
			w.DeleteNamespace(name)
		}
		anew := 0
		w.Eventually("the namespaces are there anew", func() error {
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
	}
	w.WaitReasons(w.Home, "settings-0", map[string]int{"Mirrored": 1})
}
