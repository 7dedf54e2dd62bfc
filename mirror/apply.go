package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// requestTimeout bounds every request but the watches. An admission webhook may take 30 seconds, and the API server's
// answer about it should arrive.
const requestTimeout = 35 * time.Second

// fieldManager names the controller in the managed fields of its writes.
const fieldManager = "mirror-controller"

// errNotLeading is the error of a write that was not sent: another process may lead by now.
var errNotLeading = errors.New("the leadership was not renewed in time")

// errAltered is the error of a write that the API server accepted and stored with other content.
var errAltered = errors.New("accepted, but an admission webhook or policy altered it")

// writer makes the calls for one copy.
type writer struct {
	client  kubernetes.Interface
	rules   *plan.Rules
	metrics *controllerMetrics
	valid   func() bool // reports whether this process leads; asked right before each write
}

// apply carries out a change and returns the object as the API server has it, nil after a delete. If the object is no
// longer the one that was judged, apply changes nothing and returns an error:
//
//	create    AlreadyExists if there is any object
//	update    Conflict if the resourceVersion is another one, NotFound if the object is gone
//	delete    Conflict if UID or resourceVersion are others, NotFound if the object is gone
//	recreate  as delete, but NotFound is no error, then as create
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
		return w.create(ctx, c)
	case plan.OpDelete:
		return nil, w.delete(ctx, c)
	}
	return nil, nil
}

func (w *writer) create(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	want := w.rules.Desired(c.Source, c.Key.Namespace, nil) // a re-creation keeps nothing of the former object
	if !w.valid() {
		return nil, errNotLeading
	}
	made, err := w.client.CoreV1().ConfigMaps(c.Key.Namespace).Create(ctx, want,
		metav1.CreateOptions{FieldManager: fieldManager})
	made, err = w.verify(plan.OpCreate, c.Source, made, err)
	if errors.Is(err, outcome.ErrUnmarked) { // it would be foreign, and nobody's
		err = errors.Join(err, w.delete(ctx, plan.Change{Key: c.Key, Have: made}))
	}
	return made, err
}

func (w *writer) update(ctx context.Context, c plan.Change) (*corev1.ConfigMap, error) {
	want := w.rules.Desired(c.Source, c.Key.Namespace, c.Have)
	if !w.valid() {
		return nil, errNotLeading
	}
	made, err := w.client.CoreV1().ConfigMaps(c.Key.Namespace).Update(ctx, want,
		metav1.UpdateOptions{FieldManager: fieldManager})
	return w.verify(plan.OpUpdate, c.Source, made, err)
}

// verify counts a write, and compares the stored object with its source. If a webhook undoes the change, the object is
// as before and the watch shows no event.
func (w *writer) verify(op plan.Op, s *plan.Source, made *corev1.ConfigMap, err error) (*corev1.ConfigMap, error) {
	if err == nil {
		if mark := w.rules.Lacks(made); mark != "" {
			err = fmt.Errorf("%w: %s", outcome.ErrUnmarked, mark)
		}
	}
	w.metrics.wrote(op, err)
	if err != nil {
		return made, err
	}
	if !w.rules.InSync(s, made) {
		return made, errAltered
	}
	return made, nil
}

func (w *writer) delete(ctx context.Context, c plan.Change) error {
	if !w.valid() {
		return errNotLeading
	}
	uid, rv := c.Have.UID, c.Have.ResourceVersion
	err := w.client.CoreV1().ConfigMaps(c.Key.Namespace).Delete(ctx, c.Key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv},
	})
	w.metrics.wrote(plan.OpDelete, err)
	return err
}
