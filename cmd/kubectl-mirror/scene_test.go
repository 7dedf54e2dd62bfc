package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// scene is a cluster in memory.
type scene struct {
	Options    plan.Options
	Namespaces []runtime.Object
	Objects    []*corev1.ConfigMap
}

// newScene returns a cluster with targets team-a to team-c and, as a home of sources, platform.
func newScene() *scene {
	s := &scene{Options: plan.NewOptions()}
	s.Options.NamespacePrefixes = []string{"team-"}
	return s.with("platform", "team-a", "team-b", "team-c")
}

// with adds namespaces.
func (s *scene) with(names ...string) *scene {
	for _, name := range names {
		s.Namespaces = append(s.Namespaces, plantest.Namespace(name))
	}
	return s
}

// Add adds objects and returns the first one.
func (s *scene) Add(objects ...*corev1.ConfigMap) *corev1.ConfigMap {
	s.Objects = append(s.Objects, objects...)
	return objects[0]
}

// Copy adds a copy of the source.
func (s *scene) Copy(src *corev1.ConfigMap, namespace string, options ...plantest.Option) {
	s.Add(plantest.Copy(plan.NewRules(&s.Options), src, namespace, options...))
}

// Get returns an object as it was added.
func (s *scene) Get(key types.NamespacedName) *corev1.ConfigMap {
	for _, o := range s.Objects {
		if plan.KeyOf(o) == key {
			return o.DeepCopy()
		}
	}
	return nil
}

// Snapshot returns the snapshot of the scene, as a Reader reads it.
func (s *scene) Snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	client := fake.NewClientset(s.Namespaces...) // which knows no field selectors
	client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		by, list := a.(clienttesting.ListAction).GetListRestrictions(), &corev1.ConfigMapList{}
		for _, o := range s.Objects {
			if by.Fields.Matches(fields.Set{"metadata.name": o.Name}) {
				list.Items = append(list.Items, *o.DeepCopy())
			}
		}
		return true, list, nil
	})
	reader := &snapshot.Reader{Client: client, Rules: plan.NewRules(&s.Options)}
	out, err := reader.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// everyState returns a cluster with a source for each status, and a target for each state. What the API server returns
// is stripped before a decision.
func everyState() *scene {
	s, adopt := newScene(), plantest.Annotation(plan.AdoptAnnotation, "true")
	s.Options.SourceNamespaces = []string{"platform", "team-a"}
	s.with("team-d", "team-e", "team-f", "team-g", "team-h", "dev-a")
	s.Namespaces = append(s.Namespaces,
		plantest.Namespace("team-no", "mirror", "false"), plantest.Terminating("team-over"))
	synced := s.Add(plantest.Source("platform", "synced"))
	for _, letter := range "abcdefgh" {
		s.Copy(synced, "team-"+string(letter))
	}
	mixed := s.Add(plantest.Source("platform", "mixed"))
	s.Copy(mixed, "team-h")
	s.Copy(mixed, "team-b", plantest.Data("key", "edited"))
	s.Copy(mixed, "team-c", plantest.Immutable)
	s.Copy(mixed, "team-no")
	s.Copy(mixed, "dev-a")
	s.Add(plantest.ConfigMap("team-d", "mixed"), plantest.ConfigMap("team-e", "mixed", adopt),
		plantest.ConfigMap("team-f", "mixed", adopt, plantest.Finalizer))
	of := func(prefixes string) plantest.Option { return plantest.Annotation(plan.PrefixAnnotation, prefixes) }
	s.Add(plantest.Source("team-a", "mixed", plantest.CreatedAt(2000), of("team-b")))
	s.Copy(s.Add(plantest.Source("platform", "frozen", plantest.Annotation(plan.SelectorAnnotation, "a==b==c"))), "team-a")
	staged := s.Add(plantest.Source("platform", "staged", of("team-a,team-b,team-c"),
		plantest.Annotation(plan.RolloutAnnotation, "tier=canary")))
	s.Copy(staged, "team-a")
	s.Copy(staged, "team-b", plantest.Data("key", "old"))
	large := plantest.Annotation("theirs", strings.Repeat("x", 9<<10))
	s.Copy(s.Add(plantest.Source("platform", "large", of("team-a,team-b"))), "team-a", large,
		plantest.Data("key", "edited"))
	s.Add(plantest.ConfigMap("team-b", "large", large))
	s.Copy(s.Add(plantest.Source("dev-a", "ruled-out")), "team-a")
	s.Add(plantest.Source("dev-a", "ignored"), plantest.Source("platform", "kube-root-ca.crt"),
		plantest.Source("platform", "nowhere", of("team-x")),
		plantest.ConfigMap("team-a", "unclaimed", plantest.Label("mirror", "copy")))
	s.Copy(plantest.Source("platform", "gone"), "team-a")
	return s
}

var update = flag.Bool("update", false, "write the golden files")

// golden collects what is printed, under titles, for one golden file.
type golden struct{ bytes.Buffer }

// print adds what is printed in each of the formats, and the exit code.
func (g *golden) print(t *testing.T, title string, p printed, formats ...string) {
	t.Helper()
	for _, format := range formats {
		fmt.Fprintf(g, "=== %s, %s, %v\n", title, format, p.end())
		if err := printAs(g, format, p); err != nil {
			t.Fatal(err)
		}
	}
}

// compare fails the test if the file has something else.
func (g *golden) compare(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, g.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g.Bytes(), want) {
		t.Errorf("got\n%swant, by %s,\n%s", g, file, want)
	}
}
