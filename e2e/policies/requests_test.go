package policies

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

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
		return create(s.but(suite.WithData(map[string]string{"key": "other"})))(ctx, p)
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
