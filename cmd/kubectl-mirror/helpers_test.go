package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var update = flag.Bool("update", false, "write the golden files")

// golden fails the test if got is not what the file has.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant, by %s,\n%s", got, file, want)
	}
}

// scene is a cluster in memory.
type scene struct {
	options    plan.Options
	namespaces []*corev1.Namespace
	objects    []*corev1.ConfigMap
}

// newScene returns a cluster with targets team-a to team-c and, as a home of sources, platform.
func newScene() *scene {
	s := &scene{options: plan.NewOptions()}
	s.options.NamespacePrefixes = []string{"team-"}
	for _, name := range []string{"platform", "team-a", "team-b", "team-c"} {
		s.namespaces = append(s.namespaces, plantest.Namespace(name))
	}
	return s
}

func (s *scene) rules() *plan.Rules { return plan.NewRules(&s.options) }

// add adds objects and returns the first one.
func (s *scene) add(objects ...*corev1.ConfigMap) *corev1.ConfigMap {
	s.objects = append(s.objects, objects...)
	return objects[0]
}

// copyOf adds a copy of the source.
func (s *scene) copyOf(src *corev1.ConfigMap, namespace string, options ...plantest.Option) {
	s.add(plantest.Copy(s.rules(), src, namespace, options...))
}

// snapshot returns what a list shows of the scene, and a function that returns what else there is of a name.
func (s *scene) snapshot() (*snapshot, func(string) (map[string]*corev1.ConfigMap, error)) {
	c := &cluster{rules: s.rules(), label: s.options.Label}
	var visible []*labelled
	hidden := map[string]map[string]*corev1.ConfigMap{}
	for _, o := range s.objects {
		cm := o.DeepCopy()
		l := c.strip(cm)
		if c.rules.Visible(cm) {
			visible = append(visible, l)
			continue
		}
		if hidden[cm.Name] == nil {
			hidden[cm.Name] = map[string]*corev1.ConfigMap{}
		}
		hidden[cm.Name][cm.Namespace] = cm
	}
	return newSnapshot(c.rules, s.options.PruneLimit, s.namespaces, visible),
		func(name string) (map[string]*corev1.ConfigMap, error) { return hidden[name], nil }
}

// report returns the report on all sources.
func (s *scene) report(t *testing.T) *report {
	t.Helper()
	snap, named := s.snapshot()
	all, err := snap.decideAll(false, snap.judge().blocked, named)
	if err != nil {
		t.Fatal(err)
	}
	return newReport(snap, all, func(types.NamespacedName) bool { return true })
}
