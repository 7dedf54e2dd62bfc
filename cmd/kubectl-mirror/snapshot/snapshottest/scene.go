// Package snapshottest makes clusters in memory for tests of kubectl mirror.
package snapshottest

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// Scene is a cluster in memory.
type Scene struct {
	Options    plan.Options
	Namespaces []*corev1.Namespace
	Objects    []*corev1.ConfigMap
	Expired    int // how many lists of ConfigMaps expire
}

// New returns a cluster with targets team-a to team-c and, as a home of sources, platform.
func New() *Scene {
	s := &Scene{Options: plan.NewOptions()}
	s.Options.NamespacePrefixes = []string{"team-"}
	for _, name := range []string{"platform", "team-a", "team-b", "team-c"} {
		s.Namespaces = append(s.Namespaces, plantest.Namespace(name))
	}
	return s
}

// Add adds objects and returns the first one.
func (s *Scene) Add(objects ...*corev1.ConfigMap) *corev1.ConfigMap {
	s.Objects = append(s.Objects, objects...)
	return objects[0]
}

// Copy adds a copy of the source.
func (s *Scene) Copy(src *corev1.ConfigMap, namespace string, options ...plantest.Option) {
	s.Add(plantest.Copy(plan.NewRules(&s.Options), src, namespace, options...))
}

// Get returns an object as it was added.
func (s *Scene) Get(namespace, name string) *corev1.ConfigMap {
	for _, o := range s.Objects {
		if o.Namespace == namespace && o.Name == name {
			return o.DeepCopy()
		}
	}
	return nil
}

// Snapshot returns the snapshot of the scene, read from an API server that knows the selectors of a Reader.
func (s *Scene) Snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.NamespaceList{}
		for _, ns := range s.Namespaces {
			list.Items = append(list.Items, *ns.DeepCopy())
		}
		return true, list, nil
	})
	client.PrependReactor("list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if s.Expired--; s.Expired >= 0 {
			return true, nil, apierrors.NewResourceExpired("too old")
		}
		selectors, list := a.(clienttesting.ListAction).GetListRestrictions(), &corev1.ConfigMapList{}
		for _, o := range s.Objects {
			if selectors.Labels.Matches(labels.Set(o.Labels)) && selectors.Fields.Matches(fields.Set{"metadata.name": o.Name}) {
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

// EveryState returns a cluster with a source for each status, and a target for each state.
func EveryState() *Scene {
	s := New()
	for _, name := range []string{"team-d", "team-e", "team-f", "team-g", "team-h"} {
		s.Namespaces = append(s.Namespaces, plantest.Namespace(name))
	}
	s.Namespaces = append(s.Namespaces, plantest.Namespace("team-no", "mirror", "false"), plantest.Terminating("team-over"),
		plantest.Namespace("dev-a"))
	synced := s.Add(plantest.Source("platform", "synced"))
	for _, namespace := range []string{"team-a", "team-b", "team-c", "team-d", "team-e", "team-f", "team-g", "team-h"} {
		s.Copy(synced, namespace)
	}
	mixed := s.Add(plantest.Source("platform", "mixed"))
	s.Copy(mixed, "team-h")
	s.Copy(mixed, "team-b", plantest.Data("key", "edited"))
	s.Copy(mixed, "team-c", plantest.Immutable)
	s.Copy(mixed, "team-no")
	s.Copy(mixed, "dev-a")
	s.Add(plantest.ConfigMap("team-d", "mixed"),
		plantest.ConfigMap("team-e", "mixed", plantest.Annotation(plan.AdoptAnnotation, "true")),
		plantest.ConfigMap("team-f", "mixed", plantest.Annotation(plan.AdoptAnnotation, "true"), plantest.Finalizer))
	s.Add(plantest.Source("team-a", "mixed", plantest.CreatedAt(2000), plantest.Annotation(plan.PrefixAnnotation, "team-b")))
	frozen := s.Add(plantest.Source("platform", "frozen", plantest.Annotation(plan.SelectorAnnotation, "a==b==c")))
	s.Copy(frozen, "team-a")
	staged := s.Add(plantest.Source("platform", "staged", plantest.Annotation(plan.PrefixAnnotation, "team-a,team-b,team-c"),
		plantest.Annotation(plan.RolloutAnnotation, "tier=canary")))
	s.Copy(staged, "team-a")
	s.Copy(staged, "team-b", plantest.Data("key", "old"))
	s.Add(plantest.Source("platform", "kube-root-ca.crt"), plantest.Source("platform", "nowhere", plantest.Annotation(plan.PrefixAnnotation, "team-x")))
	s.Copy(plantest.Source("platform", "gone"), "team-a")
	return s
}
