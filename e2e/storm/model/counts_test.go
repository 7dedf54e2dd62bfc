package model

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCounts counts sources at the place team-a/settings.
func TestCounts(t *testing.T) {
	namespaces := []*corev1.Namespace{namespace("home"), namespace("team-a")}
	home, other := sourceAt("home"), sourceAt("other")
	frozen := sourceAt("home", SelectorAnnotation, "a in (")
	deleted := func(cm *corev1.ConfigMap) { cm.DeletionTimestamp = &metav1.Time{} }
	foreign := object("team-a", "settings", nil, nil)
	for name, c := range map[string]struct {
		there []*corev1.ConfigMap
		want  map[string]int
	}{
		"synced":                      {list(home, copyOf()), map[string]int{"home/settings synced": 1}},
		"superseded":                  {list(home, other, copyOf()), map[string]int{"home/settings synced": 1, "other/settings superseded": 1}},
		"foreign":                     {list(home, other, foreign), map[string]int{"home/settings foreign": 1, "other/settings superseded": 1}},
		"frozen":                      {list(frozen, other, copyOf()), map[string]int{"home/settings failed": 1, "other/settings superseded": 1}},
		"frozen, without label":       {list(frozen, other, with(copyOf(), unlabelled)), map[string]int{"home/settings failed": 1, "other/settings superseded": 1}},
		"frozen, and nobody sees it":  {list(frozen, with(copyOf(), unlabelled)), map[string]int{}},
		"held by a finalizer":         {list(home, with(copyOf(), deleted)), map[string]int{"home/settings pending": 1}},
		"held, and nobody claims it":  {list(with(copyOf(), deleted)), map[string]int{"home/settings pending": 1}},
		"out of scope":                {list(copyOf()), map[string]int{"home/settings out_of_scope": 1}},
		"released":                    {list(with(copyOf(), unlabelled)), map[string]int{}},
		"foreign, and nobody's place": {list(foreign), map[string]int{}},
	} {
		s := stateOf(namespaces, c.there)
		if got := flags.Counts(s, flags.Verdicts(s, pastOf(nil))); !maps.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
