package e2e

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What tests of policies send, and what stands there before.

// A shape is what a ConfigMap has besides data of its own, which depends on where it stands.
type shape func(namespace, name string) []option

func with(o ...option) shape { return func(string, string) []option { return o } }

// but is the shape with more on top.
func (s shape) but(more ...option) shape {
	return func(namespace, name string) []option { return slices.Concat(s(namespace, name), more) }
}

// place is where a request goes.
type place struct {
	corev1client.ConfigMapInterface
	client          kubernetes.Interface // of the account
	namespace, name string
}

type request func(ctx context.Context, p place) error

func create(s shape) request {
	return func(ctx context.Context, p place) error {
		_, err := p.Create(ctx, configMap(p.namespace, p.name, s(p.namespace, p.name)...), metav1.CreateOptions{})
		return err
	}
}

// createUnnamed leaves the name to the API server.
func createUnnamed(s shape) request {
	return func(ctx context.Context, p place) error {
		cm := configMap(p.namespace, "", s(p.namespace, "")...)
		cm.GenerateName = "unnamed-"
		_, err := p.Create(ctx, cm, metav1.CreateOptions{})
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

// to sends the request to an object of another name.
func to(name string, send request) request {
	return func(ctx context.Context, p place) error {
		p.name = name
		return send(ctx, p)
	}
}

func changeBy(o ...option) request { return change(with(o...)) }

func patch(kind types.PatchType, body string) request {
	return func(ctx context.Context, p place) error {
		_, err := p.Patch(ctx, p.name, kind, []byte(body), metav1.PatchOptions{})
		return err
	}
}

// apply is a server-side apply of a label and data.
func apply(label, value string) request {
	return func(ctx context.Context, p place) error {
		cm := applycorev1.ConfigMap(p.name, p.namespace).WithLabels(map[string]string{label: value}).
			WithData(map[string]string{"key": "applied"})
		_, err := p.Apply(ctx, cm, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return err
	}
}

func remove(ctx context.Context, p place) error { return p.Delete(ctx, p.name, metav1.DeleteOptions{}) }

// removeSelected deletes all that a selector finds, which is the one.
func removeSelected(ctx context.Context, p place) error {
	return p.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + p.name})
}

// recreate deletes the ConfigMap and creates it with other data, as has to be done with an immutable one.
func recreate(s shape) request {
	return func(ctx context.Context, p place) error {
		if err := remove(ctx, p); err != nil {
			return err
		}
		return create(s.but(withData(map[string]string{"key": "other"})))(ctx, p)
	}
}

// Shapes.

// copied is a copy by all marks.
func (w *policed) copied(namespace, name string) []option {
	return w.marksOfCopy(platform, namespace, name)
}

// copyNamed is a copy under another name.
func (w *policed) copyNamed(name string) shape {
	return func(namespace, _ string) []option {
		return append(w.copied(namespace, name), func(cm *corev1.ConfigMap) { cm.Name = name })
	}
}

// copyOf is a copy by all marks but for its source, which is in the namespace under its own name and more.
func (w *policed) copyOf(source, more string) shape {
	return func(namespace, name string) []option {
		return append(w.copied(namespace, name), withAnnotation(plan.SourceAnnotation, source+"/"+name+more))
	}
}

var (
	plain    = with()
	source   = with(withLabel(plan.DefaultLabel, plan.SourceValue))
	other    = withData(map[string]string{"key": "other"})
	noLabel  = withoutLabel(plan.DefaultLabel)
	asSource = withLabel(plan.DefaultLabel, plan.SourceValue)
	asCopy   = withLabel(plan.DefaultLabel, plan.CopyValue)
	handOver = withAnnotation(plan.AdoptAnnotation, plan.AdoptValue)
	noMarks  = func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	held     = func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free     = func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	owned    = func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	}
	otherInstance = withAnnotation(plan.InstanceAnnotation, "another")
)
