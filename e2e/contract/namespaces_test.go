package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC28NamespaceBeingDeleted deletes namespaces in the middle of their filling: no error is reported, and their deletion is
// not held up.
func TestC28NamespaceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "b")
	b := w.NS("b")
	p := w.Start()
	var sources []*corev1.ConfigMap
	for i := range 10 {
		sources = append(sources, w.CreateSource(w.Home, fmt.Sprintf("settings-%d", i)))
		w.WaitInSync(sources[i], b)
	}

	var brief []string
	for i := range 5 {
		brief = append(brief, w.CreateNamespace(w.NS(fmt.Sprintf("brief-%d", i)), nil).Name)
		if i%2 == 0 {
			waitSome(w, brief[i])
		}
		w.DeleteNamespace(brief[i])
	}
	for _, namespace := range brief {
		w.WaitNamespaceGone(namespace)
	}
	w.Settle(b)
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
