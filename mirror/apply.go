package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// requestTimeout bounds every request but the watches. An admission webhook may
// take 30 seconds.
const requestTimeout = 35 * time.Second

// fieldManager names the controller in the managed fields of its writes.
const fieldManager = "mirror-controller"

// writer makes the calls that change copies.
type writer struct {
	client  kubernetes.Interface
	rules   *plan.Rules
	metrics *controllerMetrics
}

// apply carries out a change and returns the object as the API server has it,
// nil after a delete. Each call fails if the object is no longer the one that
// was judged:
//
//	create    AlreadyExists if there is any object
//	update    Conflict if the resourceVersion is another one, NotFound if the object is gone
//	delete    Conflict if UID or resourceVersion are others, NotFound if the object is gone
//	recreate  as delete, but NotFound is no error, then as create, whose error is a deletedError
//
// If the API server stores something else than a copy in sync, apply returns
// that, and an error that is [outcome.ErrAltered].
func (w *writer) apply(ctx context.Context, c plan.Change, live *corev1.ConfigMap) (
	*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch c.Op {
	case plan.OpCreate:
		return w.create(ctx, c)
	case plan.OpUpdate:
		return w.update(ctx, c, live)
	case plan.OpRecreate:
		if err := w.delete(ctx, c); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		stored, err := w.create(ctx, c)
		if err != nil {
			err = deletedError{err}
		}
		return stored, err
	case plan.OpDelete:
		return nil, w.delete(ctx, c)
	}
	return nil, nil
}

// deletedError is the error of a re-creation whose first half, the deletion,
// was carried out.
type deletedError struct{ error }

func (e deletedError) Unwrap() error { return e.error }

// at returns the client for the target of a change.
func (w *writer) at(c plan.Change) typedcorev1.ConfigMapInterface {
	return w.client.CoreV1().ConfigMaps(c.Key.Namespace)
}

func (w *writer) create(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	// A re-creation keeps nothing of the former object.
	want := w.rules.Desired(c.Source, c.Key.Namespace, nil)
	stored, err := w.at(c).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	return w.verify(plan.OpCreate, c.Source, stored, err)
}

// update brings an object in sync. live is the object as it was just read, if it
// has metadata of other people. The update keeps that, unless it leaves no room for
// the copy.
func (w *writer) update(ctx context.Context, c plan.Change, live *corev1.ConfigMap) (
	*corev1.ConfigMap, error) {
	want := w.rules.Desired(c.Source, c.Key.Namespace, live)
	if live == nil {
		want.UID = c.Have.UID
		want.ResourceVersion = c.Have.ResourceVersion
	}
	stored, err := w.put(ctx, c, want)
	if live != nil && isTooLarge(err) {
		// Finalizers and owners stay.
		live.Labels = nil
		live.Annotations = nil
		stored, err = w.put(ctx, c, w.rules.Desired(c.Source, c.Key.Namespace, live))
	}
	return stored, err
}

// readJudged reads the object that c updates, if it has metadata of other people:
// the cache does not hold that. It answers a conflict if the object differs from
// the one that was judged in more than such metadata: the watch brings the target
// again.
func (w *writer) readJudged(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	live, err := w.at(c).Get(ctx, c.Key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if !w.rules.DiffersInOthersAlone(live, c.Have) {
		return nil, apierrors.NewConflict(corev1.Resource("configmaps"), c.Key.Name, errChanged)
	}
	return live, nil
}

var errChanged = errors.New("the object has changed since it was judged")

// isTooLarge reports whether the API server refuses an object for its size: by
// its own limit of a request, by a limit of validation, or by that of etcd, for
// which it has no status of its own. The refusal of a policy is none of these.
func isTooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsInvalid(err) && apierrors.HasStatusCause(err, metav1.CauseTypeTooLong) ||
		apierrors.IsInternalError(err) && (strings.Contains(err.Error(), "request is too large") ||
			strings.Contains(err.Error(), "larger than max"))
}

// put updates an object.
func (w *writer) put(ctx context.Context, c plan.Change, want *corev1.ConfigMap) (
	*corev1.ConfigMap, error) {
	stored, err := w.at(c).Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	return w.verify(plan.OpUpdate, c.Source, stored, err)
}

// verify counts a write, and compares what is stored with its source: if a
// webhook undid all, the watch shows nothing.
func (w *writer) verify(op plan.Op, s *plan.Source, stored *corev1.ConfigMap, err error) (
	*corev1.ConfigMap, error) {
	if err == nil {
		if difference := w.rules.Differs(s, stored); difference != "" {
			err = fmt.Errorf("%w: %s", outcome.ErrAltered, difference)
		}
	}
	w.metrics.countWrite(op, err)
	return stored, err
}

func (w *writer) delete(ctx context.Context, c plan.Change) error {
	judged := &metav1.Preconditions{UID: &c.Have.UID, ResourceVersion: &c.Have.ResourceVersion}
	err := w.at(c).Delete(ctx, c.Key.Name, metav1.DeleteOptions{Preconditions: judged})
	w.metrics.countWrite(plan.OpDelete, err)
	return err
}
