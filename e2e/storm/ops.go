package main

// What users do. The random histories of package mirror do much more, and in finer detail.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The places where things happen. There are so few of them that what happens meets what happened before.
var (
	homes   = []string{"home", "shared"} // no targets
	targets = []string{"team-a", "team-b", "team-c", "dev-x", "dev-y"}
	names   = []string{"settings", "ca", "proxy", "banner"}
)

// act is one thing that happens: all that is random about it was drawn before.
type act struct {
	after time.Duration // the act before
	text  string        // for people
	fault bool
	do    func(ctx context.Context, s *storm) error
}

func (a act) String() string { return fmt.Sprintf("+%s %s", a.after, a.text) }

// drawer draws from a seed what is to happen.
type drawer struct{ *rand.Rand }

func one[T any](d drawer, list ...T) T { return list[d.IntN(len(list))] }

// between draws a time.
func (d drawer) between(from, to time.Duration) time.Duration {
	return (from + time.Duration(d.Int64N(int64(to-from)))).Round(time.Millisecond)
}

// edit changes a ConfigMap.
type edit func(*corev1.ConfigMap)

func label(k, v string) edit {
	return func(cm *corev1.ConfigMap) { set(&cm.Labels, k, v) }
}

func annotation(k, v string) edit {
	return func(cm *corev1.ConfigMap) { set(&cm.Annotations, k, v) }
}

func content(n int) edit {
	return func(cm *corev1.ConfigMap) {
		cm.Data = map[string]string{"key": fmt.Sprint(n), fmt.Sprintf("key-%d", n%3): strings.Repeat("x", n%700)}
		cm.BinaryData = map[string][]byte{"bytes": {byte(n), 0xff}}
	}
}

func makeImmutable(cm *corev1.ConfigMap) { yes := true; cm.Immutable = &yes }

// prefixes has a source narrow its targets; empty: it does not.
func prefixes(list string) edit { return annotation(domain+"namespace-prefix", list) }

// set sets an entry; an empty value removes it.
func set(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	if (*m)[k] = v; v == "" {
		delete(*m, k)
	}
}

// operation draws what a user does.
func (d drawer) operation() act {
	source := key{Namespace: one(d, "home", "home", "home", "shared", "team-a"), Name: one(d, names...)}
	target := key{Namespace: one(d, targets...), Name: one(d, names...)}
	n := d.IntN(1000)
	switch d.IntN(23) {
	case 0, 1, 2, 3:
		return put("put source", source, label(mirrorLabel, "true"), content(n))
	case 4:
		return put("put immutable source", source, label(mirrorLabel, "true"), content(n), makeImmutable)
	case 5, 6, 7:
		return remove("delete", source)
	case 8:
		return change("unlabel", source, label(mirrorLabel, ""))
	case 9:
		return change("narrow", source, prefixes(one(d, "team-", "team-a,dev-", "dev-x")))
	case 10:
		return change("freeze", source, prefixes("*"))
	case 11:
		return change("widen", source, prefixes(""))
	case 12, 13:
		return change("edit", target, content(n))
	case 14:
		return remove("delete", target)
	case 15:
		return change("strip label of", target, label(mirrorLabel, ""))
	case 16:
		return change("release", target, annotation(domain+"source", ""))
	case 17:
		return put("put foreign", target, content(n))
	case 18:
		return labelNamespace(target.Namespace, one(d, mirrorLabel+"=false", mirrorLabel+"=", "tier=bronze", "tier="))
	case 19:
		return change("hold", source, annotation(domain+"paused", one(d, "true", "true", "yes")), content(n))
	case 20:
		return change("roll out", source, annotation(domain+"rollout", "tier=bronze"), content(n))
	case 21:
		return change("release targets of", source, annotation(domain+"paused", ""), annotation(domain+"rollout", ""))
	}
	return recreateNamespace(target.Namespace)
}

// put creates an object, or changes the one that is there.
func put(what string, at key, edits ...edit) act {
	return act{text: what + " " + at.String(), do: func(ctx context.Context, s *storm) error {
		if err := update(ctx, s.users, at, edits); !apierrors.IsNotFound(err) {
			return err
		}
		return create(ctx, s.users, at, edits)
	}}
}

func change(what string, at key, edits ...edit) act {
	return act{text: what + " " + at.String(), do: func(ctx context.Context, s *storm) error {
		return update(ctx, s.users, at, edits)
	}}
}

func remove(what string, at key) act {
	return act{text: what + " " + at.String(), do: func(ctx context.Context, s *storm) error {
		return s.users.CoreV1().ConfigMaps(at.Namespace).Delete(ctx, at.Name, metav1.DeleteOptions{
			Preconditions: s.present(at),
		})
	}}
}

func create(ctx context.Context, users kubernetes.Interface, at key, edits []edit) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	for _, e := range edits {
		e(cm)
	}
	_, err := users.CoreV1().ConfigMaps(at.Namespace).Create(ctx, cm, metav1.CreateOptions{})
	return err
}

// update changes what is there. Of an immutable object only the metadata can be.
func update(ctx context.Context, users kubernetes.Interface, at key, edits []edit) error {
	api := users.CoreV1().ConfigMaps(at.Namespace)
	cm, err := api.Get(ctx, at.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	before := cm.DeepCopy()
	for _, e := range edits {
		e(cm)
	}
	if immutable(before) {
		cm.Data, cm.BinaryData, cm.Immutable = before.Data, before.BinaryData, before.Immutable
	}
	_, err = api.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}

// labelNamespace sets labels: key=value each.
func labelNamespace(name string, labels ...string) act {
	return act{text: fmt.Sprintf("label namespace %s %v", name, labels), do: func(ctx context.Context, s *storm) error {
		ns, err := s.users.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, one := range labels {
			k, v, _ := strings.Cut(one, "=")
			set(&ns.Labels, k, v)
		}
		_, err = s.users.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
		return err
	}}
}

// recreateNamespace deletes a namespace and creates it as soon as it is gone.
func recreateNamespace(name string) act {
	return act{text: "recreate namespace " + name, do: func(ctx context.Context, s *storm) error {
		if err := s.users.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		err := s.history.eventually(ctx, func() error {
			if w, _ := s.history.now(); w.Namespaces[name] != nil {
				return fmt.Errorf("%s is still there", name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return s.createNamespace(ctx, name)
	}}
}

func (s *storm) createNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.users.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// present returns the preconditions of a deletion of what is there, so that it is known which state that ends.
func (s *storm) present(at key) *metav1.Preconditions {
	w, _ := s.history.now()
	cm := w.ConfigMaps[at]
	if cm == nil {
		return nil // and there is nothing to delete
	}
	return &metav1.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}
}

// clear deletes all that the round before left, while no controller runs.
func (s *storm) clear(ctx context.Context) error {
	for _, name := range slices.Concat(homes, targets) {
		if err := s.createNamespace(ctx, name); err != nil {
			return err
		}
		if err := labelNamespace(name, mirrorLabel+"=", "tier=").do(ctx, s); err != nil {
			return err
		}
		for _, cm := range names {
			err := s.users.CoreV1().ConfigMaps(name).Delete(ctx, cm, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return s.catchUp(ctx)
}
