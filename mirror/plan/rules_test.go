package plan

import (
	"maps"
	"slices"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestAllowsTarget(t *testing.T) {
	prefixes := func(p ...string) func(*Options) {
		return func(o *Options) { o.NamespacePrefixes, o.ExcludeNamespaces = p, nil }
	}
	for name, tc := range map[string]struct {
		edit    func(*Options)
		yes, no []string
	}{
		"C09 team against teamster": {prefixes("team"), []string{"team", "teamster", "team-a"},
			[]string{"tea", "steam", "my-team", ""}},
		"C09 a whole name": {prefixes("team-a"), []string{"team-a", "team-ab", "team-a-1"},
			[]string{"team", "team-b", "team-"}},
		"the prefix is literal": {prefixes("te.m"), []string{"te.m-x"}, []string{"team"}},
		"several prefixes": {prefixes("team-", "dev-"), []string{"team-a", "dev-a"},
			[]string{"qa-a", "team", "dev"}},
		"exclusions": {func(o *Options) { o.ExcludeNamespaces = []string{"team-a", "team-b*"} },
			[]string{"team-ab", "team-c"}, []string{"team-a", "team-b", "team-bc"}},
		"all but the excluded": {func(o *Options) {
			o.NamespacePrefixes, o.AllNamespaces, o.ExcludeNamespaces = nil, true, []string{"kube-*"}
		},
			[]string{"a", "kube", "default"}, []string{"kube-system"}},
	} {
		for _, ns := range append(tc.yes, tc.no...) {
			if got, want := testRules(tc.edit).AllowsTarget(ns), slices.Contains(tc.yes, ns); got != want {
				t.Errorf("%s: %q: got allowed %v, want %v", name, ns, got, want)
			}
		}
	}
}

// TestTargetNamespaces: those with an object, and those that the flags allow if the name has a source.
func TestTargetNamespaces(t *testing.T) {
	o := NewOptions()
	o.NamespacePrefixes, o.SourceNamespaces = []string{"team-"}, []string{"platform"}
	rules := NewRules(&o)
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
		var sources []*Source
		if tc.from != "" {
			sources = append(sources, rules.ParseSource(plantest.Source(tc.from, "settings")))
		}
		got := slices.Sorted(maps.Keys(rules.TargetNamespaces(NewView(sources), namespaces, objects)))
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
