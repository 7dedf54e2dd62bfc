// Package plantest builds ConfigMaps and Namespaces for tests. It writes the keys of the contract out and imports
// nothing of this project: the tests of package plan use it too, and they must notice when a key changes.
package plantest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Option changes a ConfigMap that is being built.
type Option func(*corev1.ConfigMap)

// ConfigMap returns a ConfigMap as the API server stores it: with a UID of its own, a resourceVersion and a creation
// time.
func ConfigMap(namespace, name string, options ...Option) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: "7",
		CreationTimestamp: metav1.Unix(1000, 0),
		Labels:            map[string]string{}, Annotations: map[string]string{},
	}}
	return with(cm, options)
}

func with(cm *corev1.ConfigMap, options []Option) *corev1.ConfigMap {
	for _, o := range options {
		o(cm)
	}
	return cm
}

// Source returns a ConfigMap that asks to be mirrored. Its data is key: value.
func Source(namespace, name string, options ...Option) *corev1.ConfigMap {
	return with(ConfigMap(namespace, name, Label("mirror", "true"), Data("key", "value")), options)
}

// Rules is what Copy needs of plan.Rules. S is *plan.Source.
type Rules[S any] interface {
	ParseSource(*corev1.ConfigMap) S
	Desired(source S, namespace string, have *corev1.ConfigMap) *corev1.ConfigMap
}

// Copy returns the copy of src in namespace as the API server stores it after a create. The options act on that: an
// option that changes its data makes it drift.
func Copy[S any](r Rules[S], src *corev1.ConfigMap, namespace string, options ...Option) *corev1.ConfigMap {
	cm := r.Desired(r.ParseSource(src), namespace, nil).DeepCopy() // Desired shares its data with the source
	stored := ConfigMap(namespace, src.Name)
	stored.Labels, stored.Annotations = cm.Labels, cm.Annotations
	stored.Data, stored.BinaryData, stored.Immutable = cm.Data, cm.BinaryData, cm.Immutable
	return with(stored, options)
}

// Marked returns a ConfigMap in namespace with the label and the three annotations that make it a copy of
// platform/name, of the instance "default". It has no data and no checksum.
func Marked(namespace, name string, options ...Option) *corev1.ConfigMap {
	return with(ConfigMap(namespace, name,
		Label("mirror", "copy"),
		Annotation("mirror-controller.github.io/source", "platform/"+name),
		Annotation("mirror-controller.github.io/copy", namespace+"/"+name),
		Annotation("mirror-controller.github.io/instance", "default"),
	), options)
}

// Label sets a label.
func Label(key, value string) Option {
	return func(cm *corev1.ConfigMap) { cm.Labels[key] = value }
}

// Annotation sets an annotation.
func Annotation(key, value string) Option {
	return func(cm *corev1.ConfigMap) { cm.Annotations[key] = value }
}

// Without removes a label or annotation.
func Without(key string) Option {
	return func(cm *corev1.ConfigMap) {
		delete(cm.Labels, key)
		delete(cm.Annotations, key)
	}
}

// Data sets a key of data.
func Data(key, value string) Option {
	return func(cm *corev1.ConfigMap) {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[key] = value
	}
}

// BinaryData sets a key of binaryData.
func BinaryData(key string, value ...byte) Option {
	return func(cm *corev1.ConfigMap) {
		if cm.BinaryData == nil {
			cm.BinaryData = map[string][]byte{}
		}
		cm.BinaryData[key] = value
	}
}

// Immutable makes the ConfigMap immutable.
func Immutable(cm *corev1.ConfigMap) { cm.Immutable = new(true) }

// CreatedAt sets the creation time, in seconds since 1970. Without it a ConfigMap is created at 1000.
func CreatedAt(seconds int64) Option {
	return func(cm *corev1.ConfigMap) { cm.CreationTimestamp = metav1.Unix(seconds, 0) }
}

// Deleting marks the ConfigMap as being deleted.
func Deleting(cm *corev1.ConfigMap) { cm.DeletionTimestamp = deletedAt() }

// Finalizer adds a finalizer of somebody else.
func Finalizer(cm *corev1.ConfigMap) { cm.Finalizers = append(cm.Finalizers, "example.com/keep") }

// Managed adds managed fields, as every object from the API server has them.
func Managed(cm *corev1.ConfigMap) {
	cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
}

// Namespace returns an active namespace. The labels are keys and values in turn.
func Namespace(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

// Terminating returns a namespace that is being deleted.
func Terminating(name string) *corev1.Namespace {
	ns := Namespace(name)
	ns.DeletionTimestamp = deletedAt()
	ns.Status.Phase = corev1.NamespaceTerminating
	return ns
}

func deletedAt() *metav1.Time {
	at := metav1.NewTime(time.Unix(2000, 0))
	return &at
}
