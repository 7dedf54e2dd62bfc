package contract

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Clones of copies and forged copies: cases C06 and C07.

// TestC07ForgedAnnotations puts our marks on somebody's ConfigMaps, in every way but the true one: never
// changed, never deleted, with a source of that name or without.
func TestC07ForgedAnnotations(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	forgeries := map[string]func(name string) suite.Option{
		"no-copy":         func(string) suite.Option { return suite.WithoutAnnotation(plan.CopyAnnotation) },
		"copy-of-another": func(name string) suite.Option { return suite.WithAnnotation(plan.CopyAnnotation, b+"/"+name) },
		"copy-renamed":    func(name string) suite.Option { return suite.WithAnnotation(plan.CopyAnnotation, a+"/"+name+"x") },
		"copy-empty":      func(string) suite.Option { return suite.WithAnnotation(plan.CopyAnnotation, "") },
		"no-source":       func(string) suite.Option { return suite.WithoutAnnotation(plan.SourceAnnotation) },
		"source-renamed": func(name string) suite.Option {
			return suite.WithAnnotation(plan.SourceAnnotation, w.Home+"/"+name+"x")
		},
		"source-nonsense": func(name string) suite.Option { return suite.WithAnnotation(plan.SourceAnnotation, name) },
		"source-nowhere":  func(name string) suite.Option { return suite.WithAnnotation(plan.SourceAnnotation, "/"+name) },
		"source-dots":     func(name string) suite.Option { return suite.WithAnnotation(plan.SourceAnnotation, "../"+name) },
		"source-invalid":  func(name string) suite.Option { return suite.WithAnnotation(plan.SourceAnnotation, "Not_A_Name/"+name) },
		"source-is-copy":  func(name string) suite.Option { return suite.WithAnnotation(plan.SourceAnnotation, a+"/"+name) },
		"no-instance":     func(string) suite.Option { return suite.WithoutAnnotation(plan.InstanceAnnotation) },
		"other-instance":  func(string) suite.Option { return suite.WithAnnotation(plan.InstanceAnnotation, "default") },
	}
	var forged, sources []*corev1.ConfigMap
	forge := func(name string, options ...suite.Option) {
		forged = append(forged, w.Create(a, name, append(w.MarksOfCopy(w.Home, a, name), options...)...))
	}
	for what, forgery := range forgeries {
		for _, name := range []string{what + "-claimed", what + "-orphan"} {
			forge(name, forgery(name))
			forge(name+"-unlabelled", forgery(name+"-unlabelled"), suite.WithoutLabel(w.Label))
		}
		for _, name := range []string{what + "-claimed", what + "-claimed-unlabelled"} {
			sources = append(sources, w.CreateSource(w.Home, name))
		}
	}
	first := w.Start("--resync-period=200ms", "-v=2")
	for i, source := range sources {
		w.WaitInSync(source, b)
		w.WaitEvent(w.Home, source.Name, "Foreign")
		sources[i] = w.Edit(w.Home, source.Name, suite.WithData(map[string]string{"key": "two"}))
	}
	for _, source := range sources {
		w.WaitInSync(source, b)
	}
	w.Passes(1, b)
	w.AllUntouched(forged)
	for i, source := range sources {
		if i%2 == 0 {
			w.Delete(w.Home, source.Name)
		} else {
			w.Edit(w.Home, source.Name, suite.WithoutLabel(w.Label))
		}
	}
	for _, source := range sources {
		w.WaitGone(source.Name, b)
	}
	w.Passes(1, b)
	w.Stop(first)
	second := w.Start("--resync-period=200ms", "-v=2")
	w.Settle(a, b)
	w.Passes(1, b)
	w.AllUntouched(forged)
	for _, e := range w.Requests() {
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
