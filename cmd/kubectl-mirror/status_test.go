package main

import (
	"bytes"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// everyState is a cluster with a source for each status, and a target for each state.
func everyState() *scene {
	s := newScene()
	for _, name := range []string{"team-d", "team-e", "team-f", "team-g", "team-h"} {
		s.namespaces = append(s.namespaces, plantest.Namespace(name))
	}
	s.namespaces = append(s.namespaces, plantest.Namespace("team-no", "mirror", "false"), plantest.Terminating("team-over"),
		plantest.Namespace("dev-a"))
	synced := s.add(plantest.Source("platform", "synced"))
	for _, namespace := range []string{"team-a", "team-b", "team-c", "team-d", "team-e", "team-f", "team-g", "team-h"} {
		s.copyOf(synced, namespace)
	}
	mixed := s.add(plantest.Source("platform", "mixed"))
	s.copyOf(mixed, "team-h")
	s.copyOf(mixed, "team-b", plantest.Data("key", "edited"))
	s.copyOf(mixed, "team-c", plantest.Immutable)
	s.copyOf(mixed, "team-no")
	s.copyOf(mixed, "dev-a")
	s.add(plantest.ConfigMap("team-d", "mixed"),
		plantest.ConfigMap("team-e", "mixed", plantest.Annotation(plan.AdoptAnnotation, "true")),
		plantest.ConfigMap("team-f", "mixed", plantest.Annotation(plan.AdoptAnnotation, "true"), plantest.Finalizer))
	s.add(plantest.Source("team-a", "mixed", plantest.CreatedAt(2000), plantest.Annotation(plan.PrefixAnnotation, "team-b")))
	frozen := s.add(plantest.Source("platform", "frozen", plantest.Annotation(plan.SelectorAnnotation, "a==b==c")))
	s.copyOf(frozen, "team-a")
	s.add(plantest.Source("platform", "kube-root-ca.crt"))
	s.copyOf(plantest.Source("platform", "gone"), "team-a")
	return s
}

func TestStatusOfAll(t *testing.T) {
	r := everyState().report(t)
	r.Settings = "flags"
	for i := range r.Sources {
		r.Sources[i].Targets = nil
	}
	expectPrinted(t, "status", r)
	if r.InSync {
		t.Error("got in sync, want not")
	}
}

func TestStatusOfNone(t *testing.T) {
	expectPrinted(t, "status-none", &report{Settings: "flags", InSync: true, Sources: []sourceReport{}, namespace: "team-a"})
}

func TestStatusOfOne(t *testing.T) {
	r := everyState().report(t)
	for _, s := range r.Sources {
		if s.key().String() == "platform/mixed" {
			expectPrinted(t, "status-one", &oneReport{Settings: "flags", sourceReport: s})
		}
	}
}

// expectPrinted compares what is printed in each format with golden files.
func expectPrinted(t *testing.T, name string, p printed) {
	t.Helper()
	for _, format := range outputFormats {
		output := outputFlag(format)
		var out bytes.Buffer
		if err := output.print(&out, p); err != nil {
			t.Fatal(err)
		}
		golden(t, name+"-"+format, out.Bytes())
	}
}

// TestInSync has what keeps a cluster from being in sync, one at a time.
func TestInSync(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scene)
		want   bool
	}{
		"no sources":     {func(s *scene) { s.objects = nil }, true},
		"all in sync":    {func(*scene) {}, true},
		"a missing copy": {func(s *scene) { s.objects = s.objects[:len(s.objects)-1] }, false},
		"an edited copy": {func(s *scene) { plantest.Data("key", "edited")(s.objects[len(s.objects)-1]) }, false},
		"a frozen source": {func(s *scene) {
			plantest.Annotation(plan.PrefixAnnotation, "-")(s.objects[0])
		}, false},
		"a gone source": {func(s *scene) { s.objects = s.objects[1:] }, false},
		"a source that the flags do not allow, with copies": {func(s *scene) {
			s.options.SourceNamespaces = []string{"elsewhere"}
		}, false},
		"a source that the flags do not allow, without": {func(s *scene) {
			s.options.SourceNamespaces, s.objects = []string{"elsewhere"}, s.objects[:1]
		}, true},
		"a foreign object nobody wants to replace": {func(s *scene) {
			s.add(plantest.ConfigMap("team-a", "other", plantest.Label("mirror", "copy")))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			src := s.add(plantest.Source("platform", "settings"))
			for _, namespace := range []string{"team-a", "team-b", "team-c"} {
				s.copyOf(src, namespace)
			}
			test.change(s)
			if got := s.report(t).InSync; got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
