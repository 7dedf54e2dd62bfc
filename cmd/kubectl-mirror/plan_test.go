package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestPlan(t *testing.T) {
	var out golden
	out.print(t, "every state", newPlanned(everyState().Snapshot(t)), outputFormats...)
	out.print(t, "nothing", newPlanned(newScene().Snapshot(t)), outputFormats...)
	out.compare(t, "plan")
}

// TestC69Diff has the content of each operation. Whatever the data holds, it is escaped, and breaks nothing, as in a
// table. What is created again loses the labels and annotations of others.
func TestC69Diff(t *testing.T) {
	o := plan.NewOptions()
	rules, lines := plan.NewRules(&o), "one\ntwo\nthree\nfour\nfive\nsix\n"
	source := plantest.Source("platform", "settings", plantest.Data("lines", lines))
	edited := plantest.Copy(rules, source, "team-a", plantest.Label("theirs", "kept"),
		plantest.Data("lines", strings.ToUpper(lines[:6])+lines[6:]))
	large := plantest.Copy(rules, source, "team-a", plantest.Label("theirs", "gone"), plantest.Finalizer,
		plantest.Annotation("theirs", strings.Repeat("x", 9<<10)))
	odd := plantest.Source("platform", "settings", plantest.Data("controls", "\x7f\u0080\u009f\ufffe\u001b[2J"),
		plantest.Data("bom", "\ufefftext\r\nmore\r\n"), plantest.Data("invalid", "\xff\xfe"),
		plantest.Data("quotes", "\"C:\\new\""), plantest.Data("no end", "one\ntwo"),
		func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"raw": {0, 1, 255}} })
	var out golden
	for _, test := range []struct {
		op           plan.Op
		source, have *corev1.ConfigMap
	}{
		{plan.OpCreate, source, nil}, {plan.OpUpdate, source, edited}, {plan.OpRecreate, source, edited},
		{plan.OpDelete, nil, edited}, {plan.OpUpdate, odd, edited}, {plan.OpUpdate, source, large},
	} {
		c, want := plan.Change{Op: test.op, Key: types.NamespacedName{Namespace: "team-a", Name: "settings"}}, test.source
		if want != nil {
			want = desired(rules, c, test.source, test.have)
		}
		got := diffOf(c.Key, test.have, want)
		out.WriteString("=== " + test.op.String() + "\n" + strings.ReplaceAll(got, strings.Repeat("x", 9<<10), "xxx"))
	}
	printTable(&out, []string{"Reason"}, [][]any{{"a copy of instance \x1b[2J\nis there"}})
	out.compare(t, "diff")
}
