package plan

import (
	"slices"
	"testing"
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
		t.Run(name, func(t *testing.T) {
			for _, ns := range append(tc.yes, tc.no...) {
				if got, want := testRules(tc.edit).AllowsTarget(ns), slices.Contains(tc.yes, ns); got != want {
					t.Errorf("%q: got allowed %v, want %v", ns, got, want)
				}
			}
		})
	}
}
