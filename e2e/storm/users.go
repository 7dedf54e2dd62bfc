package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// errMiss is the error of an operation that found nothing to act on, or came too late. errUnsure is that of one of
// which it is not known what became of it.
var (
	errMiss   = errors.New("nothing to act on")
	errUnsure = errors.New("no answer")
)

// user names users in the managed fields of what they create.
const user = "storm"

// state is one state of one object. A write begins it, and the next write or a deletion ends it.
type state struct {
	uid types.UID
	rv  string
}

func stateOf(cm *corev1.ConfigMap) state { return state{cm.UID, cm.ResourceVersion} }

// users change the cluster as people and their tools do, and remember what they did: the controller made all
// other writes. Each write of theirs is conditional, so that it is known which state it ended.
type users struct {
	client kubernetes.Interface
	// api is held for reading while there is a request, and for writing while there is no API server: so it is known
	// of each request what became of it.
	api sync.RWMutex

	mu       sync.Mutex
	wrote    map[string]time.Time // resourceVersions, and when at the earliest they can have come to be
	deleted  map[state]time.Time  // states that a deletion ended, and likewise
	replaced map[state]bool       // those of them that were followed by a new object within the grace
	unsure   map[model.Key]bool   // where it is not known after all
	touched  map[model.Key]bool   // what they wrote to or tried to
	given    map[model.Key]bool   // places where they left, be it for a moment, nothing or what the controller may write to
}

func newUsers(client kubernetes.Interface) *users {
	u := &users{client: client}
	u.forget()
	return u
}

// forget begins anew to remember.
func (u *users) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wrote, u.deleted, u.replaced = map[string]time.Time{}, map[state]time.Time{}, map[state]bool{}
	u.unsure, u.touched, u.given = map[model.Key]bool{}, map[model.Key]bool{}, map[model.Key]bool{}
}

// note takes down what became of a request about a ConfigMap that was sent at some time or later, and returns errMiss where
// somebody else was first or the API server does not allow it.
func (u *users) note(key model.Key, made *corev1.ConfigMap, sent time.Time, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.touched[key] = true
	switch {
	case err == nil:
		if made != nil && !wasLast(made) {
			u.wrote[made.ResourceVersion] = sent
		}
		u.given[key] = u.given[key] || !theirs(made)
		return nil
	case isMiss(err):
		return errMiss
	}
	u.unsure[key] = true
	return fmt.Errorf("%w: %w", errUnsure, err)
}

// wasLast reports whether the write took the last finalizer from an object that was being deleted. Such a write
// makes no state: the answer has the resourceVersion of the one before.
func wasLast(made *corev1.ConfigMap) bool {
	return made.DeletionTimestamp != nil && len(made.Finalizers) == 0
}

// sent returns when the request was sent, at the earliest, that made a state of a ConfigMap or namespace, or ended the state before it.
// Zero: it is not known.
func (u *users) sent(key model.Key, before *corev1.ConfigMap, rv string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.wrote[rv]
	if at.IsZero() && before != nil && !u.unsure[key] {
		at = u.deleted[stateOf(before)]
	}
	return at
}

func isMiss(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
}

// get returns the ConfigMap as it is now.
func (u *users) get(ctx context.Context, key model.Key) (*corev1.ConfigMap, error) {
	cm, err := u.client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case isMiss(err):
		return nil, errMiss
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnsure, err)
	}
	return cm, nil
}

func (u *users) create(ctx context.Context, cm *corev1.ConfigMap) error {
	u.api.RLock()
	defer u.api.RUnlock()
	sent := time.Now()
	made, err := u.client.CoreV1().ConfigMaps(cm.Namespace).Create(ctx, cm, metav1.CreateOptions{FieldManager: user})
	return u.note(model.KeyOf(cm), made, sent, err)
}

// edit changes a ConfigMap, again if somebody else was first. It misses if change returns false.
func (u *users) edit(ctx context.Context, key model.Key, change func(*corev1.ConfigMap) bool) error {
	u.api.RLock()
	defer u.api.RUnlock()
	err := errMiss
	for try := 0; try < 5 && errors.Is(err, errMiss); try++ {
		cm, getErr := u.get(ctx, key)
		if getErr != nil {
			return getErr
		}
		if !change(cm) {
			return errMiss
		}
		sent := time.Now()
		made, updateErr := u.client.CoreV1().ConfigMaps(key.Namespace).Update(ctx, cm, metav1.UpdateOptions{FieldManager: user})
		if err = u.note(key, made, sent, updateErr); !apierrors.IsConflict(updateErr) {
			break
		}
	}
	return err
}

// delete deletes a ConfigMap, if it still is as judge wants it, and returns what it was.
func (u *users) delete(ctx context.Context, key model.Key, judge func(*corev1.ConfigMap) bool) (*corev1.ConfigMap, error) {
	u.api.RLock()
	defer u.api.RUnlock()
	cm, err := u.get(ctx, key)
	if err != nil {
		return nil, err
	}
	if !judge(cm) || cm.DeletionTimestamp != nil {
		return nil, errMiss
	}
	u.mu.Lock()
	sent := time.Now()
	if u.deleted[stateOf(cm)].IsZero() { // else another user was first
		u.deleted[stateOf(cm)] = sent
	}
	u.given[key] = true
	u.mu.Unlock()
	err = u.client.CoreV1().ConfigMaps(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion},
	})
	if isMiss(err) {
		// Somebody else was first, or an API server that stood still: it may have done it and then find nothing to do.
		u.mu.Lock()
		u.unsure[key] = true
		u.mu.Unlock()
	}
	return cm, u.note(key, nil, sent, err)
}

// onNamespace does something to a namespace.
func (u *users) onNamespace(request func() error) error {
	u.api.RLock()
	defer u.api.RUnlock()
	err := request()
	switch {
	case err == nil || errors.Is(err, errMiss):
		return err
	case isMiss(err):
		return errMiss
	}
	return fmt.Errorf("%w: %w", errUnsure, err)
}

func (u *users) createNamespace(ctx context.Context, name string, labels map[string]string) error {
	return u.onNamespace(func() error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_, err := u.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	})
}

func (u *users) deleteNamespace(ctx context.Context, name string) error {
	return u.onNamespace(func() error {
		return u.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// labelNamespace sets labels of a namespace; an empty value removes one.
func (u *users) labelNamespace(ctx context.Context, name string, labels map[string]string) error {
	return u.onNamespace(func() error {
		ns, err := u.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := maps.Clone(ns.Labels)
		for k, v := range labels {
			set(&ns.Labels, k, v)
		}
		if maps.Equal(before, ns.Labels) {
			return errMiss
		}
		sent := time.Now()
		made, err := u.client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
		if err == nil {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.wrote[made.ResourceVersion] = sent
		}
		return err
	})
}

// set sets an entry; an empty value removes it.
func set(m *map[string]string, k, v string) {
	switch {
	case v == "":
		delete(*m, k)
	case *m == nil:
		*m = map[string]string{k: v}
	default:
		(*m)[k] = v
	}
}
