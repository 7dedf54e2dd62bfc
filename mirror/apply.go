package mirror

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// requestTimeout bounds every request but the watches. An admission webhook may take 30 seconds.
const requestTimeout = 35 * time.Second

// fieldManager names the controller in the managed fields of its writes.
const fieldManager = "mirror-controller"

// writer makes the calls that change copies.
type writer struct {
	client  kubernetes.Interface
	rules   *plan.Rules
	metrics *controllerMetrics
}

// apply carries out a change and returns the object as the API server has it, nil after a delete. Each call fails if
// the object is no longer the one that was judged:
//
//	create    AlreadyExists if there is any object
//	update    Conflict if the resourceVersion is another one, NotFound if the object is gone
//	delete    Conflict if UID or resourceVersion are others, NotFound if the object is gone
//	recreate  as delete, but NotFound is no error, then as create, whose error is a deletedError
//
// If the API server stores something else than a copy in sync, apply returns that, and an error that is
// [outcome.ErrAltered].
func (w *writer) apply(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch c.Op {
	case plan.OpCreate:
		return w.create(ctx, c)
	case plan.OpUpdate:
		return w.update(ctx, c)
	case plan.OpRecreate:
		if err := w.delete(ctx, c); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		made, err := w.create(ctx, c)
		if err != nil {
			err = deletedError{err}
		}
		return made, err
	case plan.OpDelete:
		return nil, w.delete(ctx, c)
	}
	return nil, nil
}

// deletedError is the error of a re-creation whose first half, the deletion, was carried out.
type deletedError struct{ error }

func (e deletedError) Unwrap() error { return e.error }

// at returns the client for the target of a change.
func (w *writer) at(c plan.Change) typedcorev1.ConfigMapInterface {
	return w.client.CoreV1().ConfigMaps(c.Key.Namespace)
}

func (w *writer) create(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	want := w.rules.Desired(c.Source, c.Key.Namespace, nil) // a re-creation keeps nothing of the former object
	made, err := w.at(c).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	return w.verify(plan.OpCreate, c.Source, made, err)
}

// update replaces an object that has no metadata of other people. It patches any other object: their metadata stays.
func (w *writer) update(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	if !plan.HasOthers(c.Have) {
		return w.put(ctx, c, c.Have)
	}
	patch, err := w.rules.Patch(c.Source, c.Have)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: fieldManager}
	made, err := w.at(c).Patch(ctx, c.Key.Name, types.JSONPatchType, patch, options)
	made, err = w.verify(plan.OpUpdate, c.Source, made, err)
	if !isTooLarge(err) {
		return made, err
	}
	// Other people's labels and annotations may be the reason. Their finalizers and owners stay: a read shows them.
	live, failed := w.at(c).Get(ctx, c.Key.Name, metav1.GetOptions{})
	if failed != nil {
		return nil, err
	}
	live.Labels, live.Annotations = nil, nil
	return w.put(ctx, c, live)
}

// isTooLarge reports whether the API server refuses a patch because the object is too large with it, or invalid. For
// the limits of etcd it has no status of its own.
func isTooLarge(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || err != nil &&
		(strings.Contains(err.Error(), "request is too large") || strings.Contains(err.Error(), "larger than max"))
}

// put updates the object that c judged, and keeps the metadata of have that is not ours.
func (w *writer) put(ctx context.Context, c plan.Change, have *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	want := w.rules.Desired(c.Source, c.Key.Namespace, have)
	want.UID, want.ResourceVersion, want.ManagedFields = c.Have.UID, c.Have.ResourceVersion, nil
	made, err := w.at(c).Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	return w.verify(plan.OpUpdate, c.Source, made, err)
}

// verify counts a write, and compares what is stored with its source: if a webhook undid all, the watch shows nothing.
func (w *writer) verify(op plan.Op, s *plan.Source, made *corev1.ConfigMap, err error) (*corev1.ConfigMap, error) {
	if err == nil {
		if difference := w.rules.Differs(s, made); difference != "" {
			err = fmt.Errorf("%w: %s", outcome.ErrAltered, difference)
		}
	}
	w.metrics.countWrite(op, err)
	return made, err
}

func (w *writer) delete(ctx context.Context, c plan.Change) error {
	judged := &metav1.Preconditions{UID: &c.Have.UID, ResourceVersion: &c.Have.ResourceVersion}
	err := w.at(c).Delete(ctx, c.Key.Name, metav1.DeleteOptions{Preconditions: judged})
	w.metrics.countWrite(plan.OpDelete, err)
	return err
}
