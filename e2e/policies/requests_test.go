package policies

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	namespace, name string
}

func (w *Policed) at(user, namespace, name string) place {
	w.Helper()
	return place{w.as(user).CoreV1().ConfigMaps(namespace), namespace, name}
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

// recreate deletes the ConfigMap, and creates one in its place.
func recreate(s shape) request {
	return func(ctx context.Context, p place) error {
		if err := remove(ctx, p); err != nil {
			return err
		}
		return create(s)(ctx, p)
	}
}

// but is the shape with more on top.
func (s shape) but(more ...suite.Option) shape {
	return func(namespace, name string) []suite.Option { return slices.Concat(s(namespace, name), more) }
}

// createUnnamed leaves the name to the API server.
func createUnnamed(s shape) request {
	return func(ctx context.Context, p place) error {
		cm := suite.ConfigMap(p.namespace, "", s(p.namespace, "")...)
		cm.GenerateName = "unnamed-"
		_, err := p.Create(ctx, cm, metav1.CreateOptions{})
		return err
	}
}

// to sends the request to an object of another name.
func to(name string, send request) request {
	return func(ctx context.Context, p place) error {
		p.name = name
		return send(ctx, p)
	}
}

// copyNamed is a copy under another name.
func (w *Policed) copyNamed(name string) shape {
	return func(namespace, _ string) []suite.Option {
		return append(w.Copied(namespace, name), func(cm *corev1.ConfigMap) { cm.Name = name })
	}
}

// copyOf is a copy by all marks but for its source, which is in the namespace under its own name and more.
func (w *Policed) copyOf(source, more string) shape {
	return func(namespace, name string) []suite.Option {
		return append(w.Copied(namespace, name), suite.WithAnnotation(plan.SourceAnnotation, source+"/"+name+more))
	}
}

// Shapes.

// Copied is a copy by all marks.
func (w *Policed) Copied(namespace, name string) []suite.Option {
	return w.MarksOfCopy(platform, namespace, name)
}

var (
	plain     = with()
	source    = with(suite.WithLabel(plan.DefaultLabel, plan.SourceValue))
	other     = suite.WithData(map[string]string{"key": "other"})
	noLabel   = suite.WithoutLabel(plan.DefaultLabel)
	asSource  = suite.WithLabel(plan.DefaultLabel, plan.SourceValue)
	asCopy    = suite.WithLabel(plan.DefaultLabel, plan.CopyValue)
	handOver  = suite.WithAnnotation(plan.AdoptAnnotation, plan.AdoptValue)
	immutable = func(cm *corev1.ConfigMap) { cm.Immutable = new(true) }
	noMarks   = func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	held      = func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free      = func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	owned     = func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	}
	otherInstance = suite.WithAnnotation(plan.InstanceAnnotation, "another")
)
