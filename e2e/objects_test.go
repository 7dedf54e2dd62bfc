package e2e

import (
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Changes of namespaces and ConfigMaps.

func (w *world) createNamespace(name string, labels map[string]string) *corev1.Namespace {
	w.Helper()
	ns, err := w.admin.CoreV1().Namespaces().Create(w.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return ns
}

// deleteNamespace deletes a namespace without waiting for its end.
func (w *world) deleteNamespace(name string) {
	w.Helper()
	if err := w.admin.CoreV1().Namespaces().Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// waitNamespaceGone waits until a namespace is gone.
func (w *world) waitNamespaceGone(name string) {
	w.Helper()
	w.eventually("namespace "+name+" is gone", func() error {
		if w.seen.Namespace(name) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

// holdNamespace sets the finalizers of a namespace.
func (w *world) holdNamespace(name string, finalizers ...string) {
	w.Helper()
	retry(w, func() error {
		ns, err := w.admin.CoreV1().Namespaces().Get(w.ctx, name, metav1.GetOptions{})
		if err == nil {
			ns.Finalizers = finalizers
			_, err = w.admin.CoreV1().Namespaces().Update(w.ctx, ns, metav1.UpdateOptions{})
		}
		return err
	})
}

func (w *world) labelNamespace(name, key, value string) {
	w.Helper()
	retry(w, func() error {
		ns, err := w.admin.CoreV1().Namespaces().Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		if ns.Labels[key] = value; value == "" {
			delete(ns.Labels, key)
		}
		_, err = w.admin.CoreV1().Namespaces().Update(w.ctx, ns, metav1.UpdateOptions{})
		return err
	})
}

type option func(*corev1.ConfigMap)

func withData(data map[string]string) option {
	return func(cm *corev1.ConfigMap) { cm.Data = maps.Clone(data) }
}

func withBinaryData(data map[string][]byte) option {
	return func(cm *corev1.ConfigMap) { cm.BinaryData = maps.Clone(data) }
}

func withKey(k, v string) option   { return func(cm *corev1.ConfigMap) { put(&cm.Data, k, v) } }
func withoutKey(k string) option   { return func(cm *corev1.ConfigMap) { delete(cm.Data, k) } }
func withLabel(k, v string) option { return func(cm *corev1.ConfigMap) { put(&cm.Labels, k, v) } }

func withAnnotation(k, v string) option {
	return func(cm *corev1.ConfigMap) { put(&cm.Annotations, k, v) }
}

func withoutLabel(k string) option { return func(cm *corev1.ConfigMap) { delete(cm.Labels, k) } }

func withoutAnnotation(k string) option {
	return func(cm *corev1.ConfigMap) { delete(cm.Annotations, k) }
}

func setImmutable(cm *corev1.ConfigMap) { yes := true; cm.Immutable = &yes }

func put(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = v
}

// configMap returns a plain ConfigMap that is not in the cluster, with data of its own.
func configMap(namespace, name string, options ...option) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"key": "value of " + namespace},
	}
	for _, o := range options {
		o(cm)
	}
	return cm
}

// create creates a plain ConfigMap.
func (w *world) create(namespace, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	cm, err := w.admin.CoreV1().ConfigMaps(namespace).Create(w.ctx, configMap(namespace, name, options...), metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.waitSeen(cm)
	return cm
}

// createSource creates a ConfigMap with the label of a source.
func (w *world) createSource(namespace, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	return w.create(namespace, name, append([]option{withLabel(w.label, plan.SourceValue)}, options...)...)
}

// edit changes a ConfigMap as a user would, with a retry when somebody else was first.
func (w *world) edit(namespace, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	var out *corev1.ConfigMap
	retry(w, func() error {
		cm, err := w.admin.CoreV1().ConfigMaps(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, o := range options {
			o(cm)
		}
		out, err = w.admin.CoreV1().ConfigMaps(namespace).Update(w.ctx, cm, metav1.UpdateOptions{})
		return err
	})
	w.waitSeen(out)
	return out
}

func (w *world) delete(namespace, name string) {
	w.Helper()
	old := w.live(namespace, name)
	if err := w.admin.CoreV1().ConfigMaps(namespace).Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.eventually("the watch shows that "+namespace+"/"+name+" is deleted", func() error {
		if now := w.seen.ConfigMap(namespace, name); uid(now) == uid(old) && now.DeletionTimestamp == nil {
			return errors.New("not yet")
		}
		return nil
	})
}

// replaceSource deletes a source, and creates it anew at once. inTime is set if that was before its copies may go: on a
// slow machine it need not be.
func (w *world) replaceSource(name string, options ...option) (source *corev1.ConfigMap, inTime bool) {
	w.Helper()
	began := time.Now()
	w.delete(w.home, name)
	source = w.createSource(w.home, name, options...)
	return source, time.Since(began) < deletionGrace
}

// deletionGrace is how long the controller keeps the copies of a deleted source.
const deletionGrace = time.Second

// replaceAtOnce is replaceSource while the controller stands still: for the controller no time passes without a source.
func (w *world) replaceAtOnce(p *shipped.Process, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	w.pause(p)
	defer w.resume(p)
	source, _ := w.replaceSource(name, options...)
	return source
}

// replaceBy deletes a ConfigMap and creates this one in its place, unless somebody else is faster: then anew.
func (w *world) replaceBy(cm *corev1.ConfigMap) {
	w.Helper()
	w.until(cm.Namespace+"/"+cm.Name+" is replaced", func() error {
		err := w.admin.CoreV1().ConfigMaps(cm.Namespace).Delete(w.ctx, cm.Name, metav1.DeleteOptions{})
		if err == nil {
			fresh := configMap(cm.Namespace, cm.Name)
			fresh.Labels, fresh.Annotations, fresh.Data, fresh.Immutable = cm.Labels, cm.Annotations, cm.Data, cm.Immutable
			_, err = w.admin.CoreV1().ConfigMaps(cm.Namespace).Create(w.ctx, fresh, metav1.CreateOptions{})
		}
		return err
	})
}

// live returns the ConfigMap as it is now; nil if there is none.
func (w *world) live(namespace, name string) *corev1.ConfigMap {
	w.Helper()
	cm, err := w.admin.CoreV1().ConfigMaps(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return cm
}

// shown returns a ConfigMap as the outside watch has shown it, an empty one if there is none.
func (w *world) shown(namespace, name string) *corev1.ConfigMap {
	if cm := w.seen.ConfigMap(namespace, name); cm != nil {
		return cm
	}
	return &corev1.ConfigMap{}
}

// waitSeen waits until the outside watch has shown the last write, so that it does not show the state before.
func (w *world) waitSeen(cm *corev1.ConfigMap) {
	w.Helper()
	w.eventually("the outside watch has caught up", func() error {
		if !w.seen.HasSeen(cm) {
			return fmt.Errorf("it has not shown %s/%s", cm.Namespace, cm.Name)
		}
		return nil
	})
}

// waitYounger waits until a new object is younger than cm by its timestamp, which counts seconds.
func (w *world) waitYounger(cm *corev1.ConfigMap) {
	w.Helper()
	w.until("the next second", func() error {
		probe, err := w.admin.CoreV1().ConfigMaps(w.home).Create(w.ctx, configMap(w.home, "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !probe.CreationTimestamp.After(cm.CreationTimestamp.Time) {
			err = errors.New("still the same second")
		}
		return err
	})
}

// retry repeats a change that lost a race against another writer.
func retry(w *world, change func() error) {
	w.Helper()
	for {
		err := change()
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			w.Fatal(err)
		}
		return
	}
}

// having returns those of the namespaces in which the outside watch has shown a ConfigMap of the name.
func (w *world) having(namespaces []string, name string) (out []string) {
	for _, namespace := range namespaces {
		if w.seen.ConfigMap(namespace, name) != nil {
			out = append(out, namespace)
		}
	}
	return out
}

// count returns in how many of the namespaces that is.
func (w *world) count(namespaces []string, name string) int { return len(w.having(namespaces, name)) }
