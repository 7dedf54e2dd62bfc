package policies

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
