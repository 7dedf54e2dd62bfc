package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC03NewViewSorts the same sources in many orders: the winner depends on the cluster alone. No label makes a
// namespace that the flags allow by name one of the platform (C51).
func TestC03NewViewSorts(t *testing.T) {
	r := testRules(func(o *Options) {
		o.SourceNamespaces, o.NamespaceSelector = []string{"team-a", "team-b", "team-x", "z", "b"}, "tier"
	})
	var sources []*Source
	for _, cm := range []*corev1.ConfigMap{
		plantest.Source("team-a", "s", plantest.CreatedAt(1)),
		plantest.Source("z", "s", plantest.CreatedAt(5)),
		plantest.Source("b", "s", plantest.CreatedAt(9)),
		plantest.Source("team-x", "s", plantest.CreatedAt(5)), // excluded, so no tenant's
		plantest.Source("team-b", "s", plantest.CreatedAt(1)),
		plantest.Source("elsewhere", "s", plantest.CreatedAt(2)), // out of scope
	} {
		sources = append(sources, r.ParseSource(cm))
	}
	random := rand.New(rand.NewPCG(3, 0))
	for range 200 {
		random.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		v, before := NewView(sources), namespaces(sources)
		got := namespaces(v.All())
		if want := []string{"team-x", "z", "b", "team-a", "team-b", "elsewhere"}; !slices.Equal(got, want) ||
			len(v.OutOfScope) != 1 {
			t.Fatalf("got %v, want %v, of which the last is out of scope", got, want)
		}
		if after := namespaces(sources); !slices.Equal(after, before) {
			t.Fatalf("got the argument changed to %v, want %v", after, before)
		}
	}
}
