package mirror

// Copies that the flags rule out stay as they are, unless --prune is set.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC17NarrowedFlags starts a controller whose flags have a typing error: nothing is deleted or rewritten, and each
// source's ConfigMap has one Warning. With --prune the same copies go after the grace. Cases C14 and C56.
func TestC17NarrowedFlags(t *testing.T) {
	for flag, tc := range map[string]struct {
		edit func(*Options)
		why  string
	}{
		"--namespace-prefix": {func(o *Options) { o.NamespacePrefixes = []string{"tema-"} },
			"--namespace-prefix does not allow the namespace"},
		"--exclude-namespace": {func(o *Options) { o.ExcludeNamespaces = []string{"team-*"} },
			"--exclude-namespace names the namespace"},
		"--source-namespace": {func(o *Options) { o.SourceNamespaces = []string{"platfrom"} },
			"--source-namespace does not allow the source"},
		"--namespace-selector": {func(o *Options) { o.NamespaceSelector = "tier" },
			"--namespace-selector does not match the namespace"},
	} {
		for _, n := range []int{3, 300} {
			for _, prune := range []bool{false, true} {
				edit := func(o *Options) {
					tc.edit(o)
					o.Prune, o.DeletionGrace, o.ResyncPeriod = prune, time.Minute, 2*time.Hour
				}
				name := fmt.Sprintf("%s, %d copies, prune %v", flag, n, prune)
				runSubsceneWith(t, name, mirroredInto(n), edit, func(t *testing.T, s scene) {
					time.Sleep(59 * time.Second)
					s.wantWrites(0, "") // within the grace
					time.Sleep(time.Hour)
					if prune {
						s.wantNone("team-000")
						return
					}
					s.wantWrites(0, "")
					s.wantNote(plan.ReasonOutOfScope, fmt.Sprintf("Copies in %d namespaces (team-000", n), tc.why)
					s.wantEventCount(1, plan.ReasonOutOfScope)
					s.wantMetric(float64(n), "mirror_copies", "out_of_scope")
				})
			}
		}
	}
}

// mirroredInto returns a source, targets, and their copies; one of them is edited.
func mirroredInto(n int) []runtime.Object {
	objects := append(teams(n, "team-"), source(), plantest.Namespace("platform"))
	for i := range n {
		objects = append(objects, copyOf(source(), fmt.Sprintf("team-%03d", i)))
	}
	plantest.Data("key", "edited")(objects[len(objects)-1].(*corev1.ConfigMap))
	return objects
}

// TestC65ScopeComesBack: 300 namespaces lose the label of --namespace-selector, and get it back one after the other.
// Their copies stay. No event says of a copy in scope that it is not.
func TestC65ScopeComesBack(t *testing.T) {
	var objects = append(teams(0, ""), source())
	for i := range 300 {
		objects = append(objects, plantest.Namespace(fmt.Sprintf("team-%03d", i), "tier", "gold"))
	}
	runSceneWith(t, objects, func(o *Options) { o.NamespaceSelector = "tier=gold" }, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		for i := range 300 {
			s.setNamespace(plantest.Namespace(fmt.Sprintf("team-%03d", i)))
		}
		time.Sleep(time.Minute)
		s.wantMetric(300, "mirror_copies", "out_of_scope")
		s.wantCopies(300, "team-", "value")
		for i := range 300 {
			s.setNamespace(plantest.Namespace(fmt.Sprintf("team-%03d", i), "tier", "gold"))
		}
		time.Sleep(time.Minute)
		s.wantMetric(300, "mirror_copies", "synced")
		for _, note := range s.notesOf(plan.ReasonOutOfScope) {
			if strings.Contains(note, "unchanged: .") {
				t.Errorf("got event %q", note)
			}
		}
	})
}
