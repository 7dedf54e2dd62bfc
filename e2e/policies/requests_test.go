package policies

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What tests of policies send, and what stands there before.

// place is where a request goes.
type place struct {
	corev1client.ConfigMapInterface
	namespace, name string
}

func (w *users) at(user, namespace, name string) place {
	w.Helper()
	return place{w.as(user).CoreV1().ConfigMaps(namespace), namespace, name}
}

type request func(ctx context.Context, p place) error

func create(o ...suite.Option) request {
	return func(ctx context.Context, p place) error {
		_, err := p.Create(ctx, suite.ConfigMap(p.namespace, p.name, o...), metav1.CreateOptions{})
		return err
	}
}

// change reads the ConfigMap and replaces it by itself with changes.
func change(options ...suite.Option) request {
	return func(ctx context.Context, p place) error {
		cm, err := p.Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, o := range options {
			o(cm)
		}
		_, err = p.Update(ctx, cm, metav1.UpdateOptions{})
		return err
	}
}

// patch sends a JSON patch.
func patch(operations string) request {
	return func(ctx context.Context, p place) error {
		options := metav1.PatchOptions{FieldManager: "policies"}
		_, err := p.Patch(ctx, p.name, types.JSONPatchType, []byte(operations), options)
		return err
	}
}

func remove(ctx context.Context, p place) error { return p.Delete(ctx, p.name, metav1.DeleteOptions{}) }

// to sends the request to an object of another name.
func to(name string, send request) request {
	return func(ctx context.Context, p place) error {
		p.name = name
		return send(ctx, p)
	}
}

// have is what stands there before. With no options it is a plain object.
func have(o ...suite.Option) []suite.Option { return append([]suite.Option{}, o...) }

// copied makes a ConfigMap a copy by all marks.
func (w *users) copied(cm *corev1.ConfigMap) {
	for _, o := range w.MarksOfCopy(platform, cm.Namespace, cm.Name) {
		o(cm)
	}
}

// backup makes a ConfigMap a copy that names another place.
func (w *users) backup(cm *corev1.ConfigMap) {
	w.copied(cm)
	cm.Annotations[plan.CopyAnnotation] = teamB + "/" + cm.Name
}

// copyNamed is a copy under another name.
func (w *users) copyNamed(name string) suite.Option {
	return func(cm *corev1.ConfigMap) {
		cm.Name = name
		w.copied(cm)
	}
}

// copyOf is a copy by all marks but for its source, which is in the namespace under its own name and more.
func (w *users) copyOf(source, more string) suite.Option {
	return func(cm *corev1.ConfigMap) {
		w.copied(cm)
		cm.Annotations[plan.SourceAnnotation] = source + "/" + cm.Name + more
	}
}

var (
	other    = suite.WithData(map[string]string{"key": "other"})
	noLabel  = suite.WithoutLabel(plan.DefaultLabel)
	asSource = suite.WithLabel(plan.DefaultLabel, plan.SourceValue)
	asCopy   = suite.WithLabel(plan.DefaultLabel, plan.CopyValue)
	handOver = suite.WithAnnotation(plan.AdoptAnnotation, plan.AdoptValue)
	unnamed  = func(cm *corev1.ConfigMap) { cm.Name, cm.GenerateName = "", "unnamed-" }
	noMarks  = func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	held     = func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free     = func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	owned    = func(cm *corev1.ConfigMap) {
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	}
	// theirs are a label and an annotation that mark nothing.
	theirs = func(cm *corev1.ConfigMap) {
		suite.WithLabel("team", "red")(cm)
		suite.WithAnnotation("example.com/note", "x")(cm)
	}
	otherInstance = suite.WithAnnotation(plan.InstanceAnnotation, "another")
	thirdInstance = suite.WithAnnotation(plan.InstanceAnnotation, "third")
)
