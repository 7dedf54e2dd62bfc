package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// newReader returns a Reader of a cluster in memory with these objects, and targets that begin with team-.
func newReader(objects ...runtime.Object) *snapshot.Reader {
	client, o := fake.NewClientset(objects...), plan.NewOptions()
	client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		all, err := client.Tracker().List(a.GetResource(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), "")
		list := all.(*corev1.ConfigMapList)
		name, byName := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		list.Items = slices.DeleteFunc(list.Items, func(cm corev1.ConfigMap) bool { return byName && cm.Name != name })
		return true, list, err // by itself it knows no field selectors
	})
	o.NamespacePrefixes, o.SourceNamespaces = []string{"team-"}, []string{"platform", "team-a"}
	return &snapshot.Reader{Client: client, Rules: plan.NewRules(&o)}
}

// read returns a snapshot of all.
func read(t *testing.T, r *snapshot.Reader) *snapshot.Snapshot {
	t.Helper()
	s, err := r.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// everyState returns a cluster with a source for each status, and a target for each state.
func everyState() *snapshot.Reader {
	objects := []runtime.Object{plantest.Namespace("team-no", "mirror", "false"), plantest.Terminating("team-over")}
	for _, name := range strings.Fields("platform team-a team-b team-c team-d team-e team-f team-g team-h dev-a") {
		objects = append(objects, plantest.Namespace(name))
	}
	add := func(cms ...*corev1.ConfigMap) *corev1.ConfigMap {
		for _, cm := range cms {
			objects = append(objects, cm)
		}
		return cms[0]
	}
	rules := newReader().Rules
	copied := func(source *corev1.ConfigMap, namespace string, options ...plantest.Option) {
		add(plantest.Copy(rules, source, namespace, options...))
	}
	of := func(prefixes string) plantest.Option { return plantest.Annotation(plan.PrefixAnnotation, prefixes) }
	synced := add(plantest.Source("platform", "synced"))
	for _, letter := range "abcdefgh" {
		copied(synced, "team-"+string(letter))
	}
	adopt := plantest.Annotation(plan.AdoptAnnotation, "true")
	mixed := add(plantest.Source("platform", "mixed"))
	add(plantest.ConfigMap("team-d", "mixed"), plantest.ConfigMap("team-e", "mixed", adopt),
		plantest.ConfigMap("team-f", "mixed", adopt, plantest.Finalizer))
	add(plantest.Source("team-a", "mixed", plantest.CreatedAt(2000), of("team-b")))
	copied(mixed, "team-h")
	copied(mixed, "team-b", plantest.Data("key", "edited"))
	copied(mixed, "team-c", plantest.Immutable)
	copied(mixed, "team-no")
	copied(mixed, "dev-a")
	copied(add(plantest.Source("platform", "frozen", plantest.Annotation(plan.SelectorAnnotation, "a==b==c"))), "team-a")
	staged := add(plantest.Source("platform", "staged", of("team-a,team-b,team-c"),
		plantest.Annotation(plan.RolloutAnnotation, "tier=canary")))
	copied(staged, "team-a")
	copied(staged, "team-b", plantest.Data("key", "old"))
	large := plantest.Annotation("theirs", strings.Repeat("x", 9<<10))
	copied(add(plantest.Source("platform", "large", of("team-a,team-b"))), "team-a", large, plantest.Data("key", "edited"))
	copied(add(plantest.Source("dev-a", "ruled-out")), "team-a")
	copied(add(plantest.Source("platform", "narrowed", of("prod-"))), "team-a")
	copied(plantest.Source("platform", "gone"), "team-a")
	copied(plantest.Source("platform", "ending"), "team-a", plantest.Deleting, plantest.Finalizer)
	copied(plantest.Source("platform", "unlabelled"), "team-a")
	add(plantest.ConfigMap("team-b", "large", large), plantest.ConfigMap("platform", "unlabelled"),
		plantest.Source("dev-a", "ignored"), plantest.Source("platform", "kube-root-ca.crt"),
		plantest.Source("platform", "nowhere", of("team-x")), plantest.Source("platform", "going", plantest.Deleting),
		plantest.ConfigMap("team-a", "unclaimed", plantest.Label("mirror", "copy")),
		plantest.ConfigMap("team-a", "neither"),
		plantest.Marked("platform", "pasted", plantest.Annotation(plan.CopyAnnotation, "team-a/pasted")),
		plantest.ConfigMap("platform", "odd", plantest.Label("mirror", "True")),
		plantest.Source("platform", "theirs", of("team-h")),
		plantest.ConfigMap("team-h", "theirs", plantest.Immutable, plantest.Label("mirror", "copy")))
	return newReader(objects...)
}

var update = flag.Bool("update", false, "write the golden files")

// goldenRows returns the golden file of a table. A text begins like this.
func goldenRows(name, begin string) *plantest.Golden {
	return &plantest.Golden{File: filepath.Join("testdata", name+".golden"), Begin: begin, Update: *update}
}

// golden collects what is printed, under titles, for one golden file.
type golden struct{ bytes.Buffer }

// print adds the answer in each of the formats, and the exit code.
func (g *golden) print(title string, code exitCode, a answer, formats ...string) {
	for _, format := range formats {
		fmt.Fprintf(g, "=== %s, %s, %v\n", title, format, code)
		printAs(g, format, a)
	}
}

// compare fails the test if the file has something else.
func (g *golden) compare(t *testing.T, name string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		_ = os.WriteFile(file, g.Bytes(), 0o644)
	}
	if want, err := os.ReadFile(file); err != nil || !bytes.Equal(g.Bytes(), want) {
		t.Errorf("got\n%swant, by %s, %v\n%s", g, file, err, want)
	}
}
