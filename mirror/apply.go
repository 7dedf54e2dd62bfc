package mirror

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// fieldManager names us in the managed fields of what we write.
const fieldManager = "mirror-controller"

// requestTimeout bounds every request but the watches, so that a connection on which nothing comes back does
// not hold a write slot for ever. An admission webhook may take 30 seconds, and what the API server has to say of it
// then is to be heard.
const requestTimeout = 35 * time.Second

// echoPatience is the time between two looks at a target where the watch has not shown our own last write yet. As a rule
// the event that shows it comes within milliseconds and is the next look.
const echoPatience = time.Second

// writer makes the calls, one for each change, all of them conditional.
type writer struct {
	client kubernetes.Interface
	rules  *rules
	valid  func() bool // asked right before each call: whether we lead; set before the first

	measures *measures

	mu sync.Mutex
	// deleting are the UIDs of objects that we delete and whose disappearance the watch has not shown yet, and since when.
	deleting map[types.UID]time.Time
	// written are the resourceVersions of our writes that the watch may not have shown yet.
	written map[cache.ObjectName]echo
}

// echo is what the watch is to show of a write.
type echo struct {
	rv string
	at time.Time
}

// echoLifetime is for how long a write is waited for at most: resourceVersions that went back, as of a restored etcd, may not
// come there for days.
const echoLifetime = time.Minute

func (e echo) awaited(synced string) bool {
	order, err := resourceversion.CompareResourceVersion(synced, e.rv)
	return err == nil && order < 0 && time.Since(e.at) < echoLifetime
}

// errNotLeading is why a write was not sent: another process may lead by now.
var errNotLeading = errors.New("the leadership was not renewed in time")

// errAltered is the error of a write that the API server accepted, and of which it made something else than was wanted.
var errAltered = errors.New("accepted and altered on its way, by an admission webhook or policy")

func newWriter(client kubernetes.Interface, r *rules, m *measures) *writer {
	return &writer{client: client, rules: r, measures: m, valid: func() bool { return true }, deleting: map[types.UID]time.Time{}, written: map[cache.ObjectName]echo{}}
}

// apply carries out a change. Nothing is written if the object is no longer the one that was judged:
//
//	create    AlreadyExists if there is any object
//	update    Conflict if the resourceVersion is not the judged one, NotFound if the object is gone
//	delete    Conflict if UID or resourceVersion are not the judged ones; NotFound counts as done
//	recreate  as delete, then as create
//
// errAltered says that it was written, and not as it should be.
func (w *writer) apply(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch c.op {
	case opCreate:
		return w.create(ctx, c)
	case opUpdate:
		return w.update(ctx, c)
	case opRecreate:
		if err := w.delete(ctx, c.have); err != nil {
			return err
		}
		return w.create(ctx, c)
	case opDelete:
		return w.delete(ctx, c.have)
	}
	return nil
}

// read returns an object as it is now.
func (w *writer) read(ctx context.Context, key cache.ObjectName) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return w.client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}

func (w *writer) create(ctx context.Context, c change) error {
	want := w.rules.desired(c.source, c.namespace, c.have)
	// Of what stood there before, a new object keeps the metadata that is not ours.
	want.ObjectMeta = metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name, Labels: want.Labels, Annotations: want.Annotations}
	if !w.valid() {
		return errNotLeading
	}
	made, err := w.client.CoreV1().ConfigMaps(c.namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	return w.wrote(opCreate, c.source, made, err)
}

func (w *writer) update(ctx context.Context, c change) error {
	want := w.rules.desired(c.source, c.namespace, c.have)
	if !w.valid() {
		return errNotLeading
	}
	made, err := w.client.CoreV1().ConfigMaps(c.namespace).Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	return w.wrote(opUpdate, c.source, made, err)
}

func (w *writer) delete(ctx context.Context, have *corev1.ConfigMap) error {
	if !w.valid() {
		return errNotLeading
	}
	// Only what the watch shows will be shown to be gone.
	if w.rules.seen(have) {
		w.expectDeletion(have.UID, true)
	}
	uid, rv := have.UID, have.ResourceVersion
	err := w.client.CoreV1().ConfigMaps(have.Namespace).Delete(ctx, have.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv},
	})
	if err != nil {
		w.expectDeletion(have.UID, false)
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return w.measures.sent(opDelete, err)
}

func (w *writer) expectDeletion(uid types.UID, expected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if expected {
		w.deleting[uid] = time.Now()
	} else {
		delete(w.deleting, uid)
	}
}

// deleted reports whether the object that the watch has just shown to be gone was deleted by us.
func (w *writer) deleted(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ours := w.deleting[uid]
	delete(w.deleting, uid)
	return ours
}

// wrote remembers what the API server made of a write, and returns what is wrong with that.
func (w *writer) wrote(operation op, s *source, made *corev1.ConfigMap, err error) error {
	if err := w.measures.sent(operation, err); err != nil {
		return err
	}
	w.mu.Lock()
	w.written[cache.MetaObjectToName(made)] = echo{made.ResourceVersion, time.Now()}
	w.mu.Unlock()
	if !w.rules.asWritten(s, made) {
		return errAltered
	}
	return nil
}

// ahead reports whether the change was judged by a cache that does not show our own last write to that target
// yet, so that the API server would only refuse it. synced is the resourceVersion up to which the cache has
// seen everything. Nothing hangs on the answer but that call: see echoPatience.
func (w *writer) ahead(target cache.ObjectName, c change, synced string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.have != nil {
		if _, going := w.deleting[c.have.UID]; going {
			return true
		}
	}
	e, ok := w.written[target]
	if ok && e.awaited(synced) {
		return true
	}
	if c.op != opCreate { // where a create is due, what was written is not there: that is for the sweep to tell
		delete(w.written, target)
	}
	return false
}

// forget forgets the write at a target.
func (w *writer) forget(target cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.written, target)
}

// forgetNamespace forgets the writes in a namespace that is gone.
func (w *writer) forgetNamespace(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.written, func(target cache.ObjectName, _ echo) bool { return target.Namespace == namespace })
}

// deletionLifetime is for how long the end of an object is waited for that we delete: somebody's finalizers may hold it, or a
// relist have passed over it.
const deletionLifetime = 24 * time.Hour

// sweep forgets the writes that the cache has shown, or has gone past, and returns their targets.
func (w *writer) sweep(synced string) (past []cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.deleting, func(_ types.UID, since time.Time) bool { return time.Since(since) >= deletionLifetime })
	for target, e := range w.written {
		if !e.awaited(synced) {
			delete(w.written, target)
			past = append(past, target)
		}
	}
	return past
}

// answered reports whether the error is the API server's answer to that one request, not a connection that broke, nor
// a server that has no time for anybody.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err)
}

// troubleOf says how the error of a write is to be met.
func troubleOf(op op, err error) trouble {
	switch {
	case err == nil:
		return noTrouble
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), op == opCreate && apierrors.IsNotFound(err):
		return closing
	case op == opCreate && apierrors.IsConflict(err): // of a quota, with a write beside ours
		return transient
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return behind
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err):
		return refused
	}
	return transient
}
