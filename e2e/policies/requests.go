package policies

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What tests of policies send, and what stands there before.

// A shape is what a ConfigMap has besides data of its own, which depends on where it stands.
type shape func(namespace, name string) []suite.Option

func with(o ...suite.Option) shape { return func(string, string) []suite.Option { return o } }

// place is where a request goes.
type place struct {
	corev1client.ConfigMapInterface
	client          kubernetes.Interface // of the account
	namespace, name string
}

type request func(ctx context.Context, p place) error

func create(s shape) request {
	return func(ctx context.Context, p place) error {
		_, err := p.Create(ctx, suite.ConfigMap(p.namespace, p.name, s(p.namespace, p.name)...), metav1.CreateOptions{})
		return err
	}
}

// change reads the ConfigMap and replaces it by itself with changes.
func change(s shape) request {
	return func(ctx context.Context, p place) error {
		cm, err := p.Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, o := range s(p.namespace, p.name) {
			o(cm)
		}
		_, err = p.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	}
}

func changeBy(o ...suite.Option) request { return change(with(o...)) }

func remove(ctx context.Context, p place) error { return p.Delete(ctx, p.name, metav1.DeleteOptions{}) }

// Shapes.

// Copied is a copy by all marks.
func (w *Policed) Copied(namespace, name string) []suite.Option {
	return w.MarksOfCopy(platform, namespace, name)
}

var (
	plain    = with()
	source   = with(suite.WithLabel(plan.DefaultLabel, plan.SourceValue))
	other    = suite.WithData(map[string]string{"key": "other"})
	noLabel  = suite.WithoutLabel(plan.DefaultLabel)
	asSource = suite.WithLabel(plan.DefaultLabel, plan.SourceValue)
	asCopy   = suite.WithLabel(plan.DefaultLabel, plan.CopyValue)
	handOver = suite.WithAnnotation(plan.AdoptAnnotation, plan.AdoptValue)
	noMarks  = func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	held     = func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free     = func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	owned    = func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	}
	otherInstance = suite.WithAnnotation(plan.InstanceAnnotation, "another")
)

// CheckAllNamespaces expects of the policy that it holds the user to copies of the world, and out of excluded namespaces.
func (w *Policed) CheckAllNamespaces(t *testing.T, policy, user string) {
	t.Helper()
	copied, source := shape(w.Copied), with(suite.WithLabel(w.Label, plan.SourceValue))
	w.check(t, policy, []row{
		{"copy created", user, w.NS("a"), nil, create(copied), ""},
		{"copy created anywhere", user, w.Home, nil, create(copied), ""},
		{"copy changed", user, w.Home, copied, changeBy(other), ""},
		{"copy created in an excluded namespace of all", user, excluded, nil, create(copied), suite.NotThere},
		{"plain object created", user, w.Home, nil, create(plain), "would not be a copy of instance"},
		{"source created", user, w.Home, nil, create(source), "would not be a copy of instance"},
		{"foreign object changed", user, w.Home, plain, changeBy(other), "is not a copy of instance"},
		{"foreign object deleted", user, w.Home, plain, remove, "is not a copy of instance"},
		{"source changed", user, w.Home, source, changeBy(other), "is not a copy of instance"},
	})
}
