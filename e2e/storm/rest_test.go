package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestDue: what is due by a plan from scratch is found, and so is a namespace on its way out.
func TestDue(t *testing.T) {
	f := newFlags(true, "", "team-", "dev-")
	w := newWorld()
	for _, name := range []string{"home", "team-a", "team-b"} {
		w.Namespaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	rules := plan.NewRules(&f.Options)
	source := newSource()
	made := rules.Desired(rules.ParseSource(source), "team-a", nil).DeepCopy() // it shares its data with the source
	made.Namespace = "team-a"
	for _, cm := range []*corev1.ConfigMap{source, made, configMap("team-b")} {
		w.ConfigMaps[keyOf(cm)] = cm
	}
	if err := due(w, f); err != nil {
		t.Error(err)
	}
	made.Data["key"], made.Annotations["theirs"] = "other", strings.Repeat("x", 9<<10)
	w.Namespaces["team-d"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-d", DeletionTimestamp: &metav1.Time{}}}
	if got, want := fmt.Sprint(due(w, f)), "team-a/settings: recreate is due\nteam-d is still there"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
