package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestPlan(t *testing.T) {
	var out golden
	all := read(t, everyState())
	some := newChanges(all, types.NamespacedName{})
	out.print("every state", verdict(!some.needed), some, outputFormats...)
	nothing := newChanges(read(t, newReader()), types.NamespacedName{})
	out.print("nothing", verdict(!nothing.needed), nothing, outputFormats...)
	for arg := range strings.FieldsSeq("platform/mixed team-a/mixed platform/synced") {
		namespace, name, _ := strings.Cut(arg, "/")
		of := newChanges(all, types.NamespacedName{Namespace: namespace, Name: name})
		out.print(arg, verdict(!of.needed), of, "table")
	}
	abandoned := newChanges(read(t, newReader()), types.NamespacedName{})
	abandoned.Abandons = true
	out.print("abandoned", exitNo, abandoned, outputFormats...)
	out.compare(t, "plan")
}

// TestExplain explains ConfigMaps in every state. Each answer says in its first line which rule decides.
func TestExplain(t *testing.T) {
	reader := everyState()
	snap := read(t, reader)
	file := goldenRows("explain", "=== ")
	const copies = "team-h/mixed team-b/mixed team-no/mixed dev-a/mixed team-b/staged team-a/large team-a/ending"
	const foreign = "team-d/mixed team-e/mixed team-f/mixed team-h/theirs team-b/large"
	const missing = "team-g/mixed team-c/staged team-g/unknown team-no/synced team-x/synced other/synced team-g/nowhere"
	const others = "team-a/neither platform/pasted platform/odd platform/going platform/unlabelled team-a/unlabelled"
	rows := strings.Fields(copies + " " + foreign + " " + missing + " " + others)
	for _, arg := range rows {
		t.Run(arg, func(t *testing.T) {
			namespace, name, _ := strings.Cut(arg, "/")
			key := types.NamespacedName{Namespace: namespace, Name: name}
			cm, _ := reader.Get(t.Context(), key) // nothing fails in memory
			x := &subject{snap.Rules, key, cm, "", snap, snap.Namespaces[namespace]}
			var out golden
			out.print(arg, exitYes, x.explain(), "table")
			file.Row(t, out.String())
		})
	}
	file.End(t, len(rows))
}

// TestC70ExplainAlone has what a tenant is told who sees one namespace only: no command is for another one.
func TestC70ExplainAlone(t *testing.T) {
	rules, source := newReader().Rules, plantest.Source("platform", "settings")
	const copied, made = "mirror-controller.github.io/source", "mirror-controller.github.io/copy"
	optsOut := plantest.Namespace("team-a", "mirror", "false")
	file := goldenRows("alone", "=== ")
	rows := []struct {
		title string
		cm    *corev1.ConfigMap
		ns    *corev1.Namespace
	}{
		{"nothing", nil, nil},
		{"nothing, and the namespace opts out", nil, optsOut},
		{"a copy", plantest.Copy(rules, source, "team-a"), plantest.Namespace("team-a")},
		{"a copy that is being deleted", plantest.Copy(rules, source, "team-a", plantest.Deleting, plantest.Finalizer), nil},
		{"a copy, and the namespace opts out", plantest.Copy(rules, source, "team-a"), optsOut},
		{"released", plantest.Copy(rules, source, "team-a", plantest.Without(made)), nil},
		{"an edited copy", plantest.Copy(rules, source, "team-a", plantest.Data("key", "edited")), nil},
		{"a foreign one", plantest.ConfigMap("team-a", "settings"), nil},
		{"one with a finalizer", plantest.ConfigMap("team-a", "settings", plantest.Finalizer), nil},
		{"a copy of another name", plantest.Marked("team-a", "settings", plantest.Annotation(copied, "platform/other")), nil},
		{"made of a copy", plantest.Marked("team-a", "settings", plantest.Annotation(made, "team-b/settings")), nil},
		{"one with an odd label", plantest.ConfigMap("team-a", "settings", plantest.Label("mirror", "True")), nil},
	}
	for _, test := range rows {
		t.Run(test.title, func(t *testing.T) {
			x := &subject{rules, types.NamespacedName{Namespace: "team-a", Name: "settings"}, test.cm, "", nil, test.ns}
			var out golden
			out.print(test.title, exitYes, x.explain(), "table")
			file.Row(t, out.String())
		})
	}
	file.End(t, len(rows))
}
