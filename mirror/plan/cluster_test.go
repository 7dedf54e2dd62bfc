package plan_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestPlaces: objects are places wherever they are, and namespaces that the flags allow if the name has a source.
func TestPlaces(t *testing.T) {
	o := plan.NewOptions()
	o.NamespacePrefixes, o.SourceNamespaces = []string{"team-"}, []string{"platform"}
	rules := plan.NewRules(&o)
	namespaces, objects := slices.Values([]string{"platform", "team-a", "team-b", "dev"}),
		slices.Values([]string{"dev", "gone"})
	for name, tc := range map[string]struct {
		from string // the namespace of a source; empty: there is none
		want []string
	}{
		"no source":              {"", []string{"dev", "gone"}},
		"a source":               {"platform", []string{"dev", "gone", "team-a", "team-b"}},
		"a source of no concern": {"elsewhere", []string{"dev", "gone"}},
	} {
		var sources []*plan.Source
		if tc.from != "" {
			sources = append(sources, rules.ParseSource(plantest.Source(tc.from, "settings")))
		}
		got := slices.Sorted(maps.Keys(rules.Places(plan.NewView(sources), namespaces, objects)))
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
