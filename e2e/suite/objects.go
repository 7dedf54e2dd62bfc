package suite

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Changes of namespaces and ConfigMaps.

// CreateNamespace creates a namespace with labels.
func (w *World) CreateNamespace(name string, labels map[string]string) *corev1.Namespace {
	w.Helper()
	ns, err := w.Admin.CoreV1().Namespaces().Create(w.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	w.noError(err)
	return ns
}

// DeleteNamespace deletes a namespace without waiting for its end.
func (w *World) DeleteNamespace(name string) {
	w.Helper()
	w.noError(w.Admin.CoreV1().Namespaces().Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// WaitNamespaceGone waits until a namespace is gone.
func (w *World) WaitNamespaceGone(name string) {
	w.Helper()
	w.Await("namespace "+name+" is gone", func() bool { return w.Seen.Namespace(name) == nil })
}

// LabelNamespace sets a label of a namespace, or removes it if the value is empty.
func (w *World) LabelNamespace(name, key, value string) {
	w.Helper()
	set := "null"
	if value != "" {
		set = strconv.Quote(value)
	}
	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %s}}}`, key, set)
	_, err := w.Admin.CoreV1().Namespaces().Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	w.noError(err)
}

// Option changes a ConfigMap before it is written.
type Option func(*corev1.ConfigMap)

// WithData replaces the data.
func WithData(data map[string]string) Option {
	return func(cm *corev1.ConfigMap) { cm.Data = maps.Clone(data) }
}

// WithBinaryData replaces the binary data.
func WithBinaryData(data map[string][]byte) Option {
	return func(cm *corev1.ConfigMap) { cm.BinaryData = maps.Clone(data) }
}

// WithKey sets a key of the data.
func WithKey(k, v string) Option {
	return func(cm *corev1.ConfigMap) {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[k] = v
	}
}

// WithLabel sets a label.
func WithLabel(k, v string) Option {
	return func(cm *corev1.ConfigMap) { metav1.SetMetaDataLabel(&cm.ObjectMeta, k, v) }
}

// WithoutLabel removes a label.
func WithoutLabel(k string) Option { return func(cm *corev1.ConfigMap) { delete(cm.Labels, k) } }

// WithAnnotation sets an annotation.
func WithAnnotation(k, v string) Option {
	return func(cm *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&cm.ObjectMeta, k, v) }
}

// WithoutAnnotation removes an annotation.
func WithoutAnnotation(k string) Option {
	return func(cm *corev1.ConfigMap) { delete(cm.Annotations, k) }
}

// SetImmutable is the Option of an immutable ConfigMap.
func SetImmutable(cm *corev1.ConfigMap) { cm.Immutable = new(true) }

// ConfigMap returns a plain ConfigMap that is not in the cluster, with data of its own.
func ConfigMap(namespace, name string, options ...Option) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"key": "value of " + namespace},
	}
	for _, o := range options {
		o(cm)
	}
	return cm
}

// Create creates a plain ConfigMap.
func (w *World) Create(namespace, name string, options ...Option) *corev1.ConfigMap {
	w.Helper()
	cm := ConfigMap(namespace, name, options...)
	cm, err := w.Admin.CoreV1().ConfigMaps(namespace).Create(w.Context(), cm, metav1.CreateOptions{})
	w.noError(err)
	w.waitSeen(cm)
	return cm
}

// CreateSource creates a ConfigMap with the label of a source.
func (w *World) CreateSource(namespace, name string, options ...Option) *corev1.ConfigMap {
	w.Helper()
	return w.Create(namespace, name, append([]Option{WithLabel(w.Label, plan.SourceValue)}, options...)...)
}

// Edit changes a ConfigMap as a user would, with a retry when somebody else was first.
func (w *World) Edit(namespace, name string, options ...Option) *corev1.ConfigMap {
	w.Helper()
	var cm *corev1.ConfigMap
	tries := wait.Backoff{Steps: 1000, Duration: time.Millisecond}
	w.noError(retry.RetryOnConflict(tries, func() (err error) {
		if cm, err = w.Admin.CoreV1().ConfigMaps(namespace).Get(w.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, o := range options {
			o(cm)
		}
		cm, err = w.Admin.CoreV1().ConfigMaps(namespace).Update(w.Context(), cm, metav1.UpdateOptions{})
		return err
	}))
	w.waitSeen(cm)
	return cm
}

// Delete deletes a ConfigMap, and waits until the watch shows it.
func (w *World) Delete(namespace, name string) {
	w.Helper()
	old := w.Live(namespace, name)
	w.noError(w.Admin.CoreV1().ConfigMaps(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}))
	w.Await("the watch shows that "+namespace+"/"+name+" is deleted", func() bool {
		now := w.Seen.ConfigMap(namespace, name)
		return UID(now) != UID(old) || now.DeletionTimestamp != nil
	})
}

// ReplaceAtOnce deletes a source and creates it anew while the controller stands still: for the controller no time
// passes without.
func (w *World) ReplaceAtOnce(p *shipped.Process, name string, options ...Option) *corev1.ConfigMap {
	w.Helper()
	w.Pause(p)
	defer w.Resume(p)
	w.Delete(w.Home, name)
	return w.CreateSource(w.Home, name, options...)
}

// Live returns the ConfigMap as it is now; nil if there is none.
func (w *World) Live(namespace, name string) *corev1.ConfigMap {
	w.Helper()
	cm, err := w.Admin.CoreV1().ConfigMaps(namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.noError(err)
	return cm
}

// waitSeen waits until the outside watch has shown the last write, so that it does not show the state before.
func (w *World) waitSeen(cm *corev1.ConfigMap) {
	w.Helper()
	w.Await("the watch shows "+cm.Namespace+"/"+cm.Name, func() bool { return w.Seen.HasSeen(cm) })
}

// Having returns those of the namespaces in which the outside watch has shown a ConfigMap of the name.
func (w *World) Having(namespaces []string, name string) (out []string) {
	for _, namespace := range namespaces {
		if w.Seen.ConfigMap(namespace, name) != nil {
			out = append(out, namespace)
		}
	}
	return out
}

// OptOut sets the mirror label of target namespaces, or takes it away.
func (w *World) OptOut(value string, names ...string) {
	w.Helper()
	for _, name := range names {
		w.LabelNamespace(w.NS(name), w.Label, value)
	}
}

// MarksOfCopy makes of a ConfigMap what a copy of namespace/name in target carries, true to the last mark.
func (w *World) MarksOfCopy(namespace, target, name string) []Option {
	return []Option{
		WithLabel(w.Label, "copy"),
		WithLabel("app.kubernetes.io/managed-by", "mirror-controller"),
		WithAnnotation(plan.SourceAnnotation, namespace+"/"+name),
		WithAnnotation(plan.CopyAnnotation, target+"/"+name),
		WithAnnotation(plan.InstanceAnnotation, w.Instance),
		WithAnnotation(plan.ChecksumAnnotation, "sha256:"+strings.Repeat("0", 64)),
	}
}
