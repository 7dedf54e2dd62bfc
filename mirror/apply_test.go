package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
)

// terminatingNamespace is what the API server answers to a create in a namespace that is going away.
func terminatingNamespace() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestTroubleOf(t *testing.T) {
	cm := schema.GroupResource{Resource: "configmaps"}
	why := errors.New("why")
	broken := &url.Error{Op: "Put", URL: "https://x", Err: io.ErrUnexpectedEOF}
	for name, tc := range map[string]struct {
		err error
		// The trouble of each operation; that of a recreate is the one of an update.
		create, update, delete trouble
		answered               bool
	}{
		"nothing":                       {nil, noTrouble, noTrouble, noTrouble, false},
		"C28 namespace terminating":     {terminatingNamespace(), closing, closing, closing, true},
		"not found":                     {apierrors.NewNotFound(cm, "settings"), closing, behind, behind, true},
		"conflict":                      {apierrors.NewConflict(cm, "settings", why), transient, behind, behind, true},
		"already exists":                {apierrors.NewAlreadyExists(cm, "settings"), behind, behind, behind, true},
		"C30 forbidden":                 {apierrors.NewForbidden(cm, "settings", why), refused, refused, refused, true},
		"C30 invalid":                   {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "settings", nil), refused, refused, refused, true},
		"C30 bad request":               {apierrors.NewBadRequest("why"), refused, refused, refused, true},
		"C25 too large":                 {apierrors.NewRequestEntityTooLargeError("why"), refused, refused, refused, true},
		"method not supported":          {apierrors.NewMethodNotSupported(cm, "create"), refused, refused, refused, true},
		"C34 too many requests":         {apierrors.NewTooManyRequests("why", 1), transient, transient, transient, false},
		"C34 unavailable":               {apierrors.NewServiceUnavailable("why"), transient, transient, transient, false},
		"C34 internal error":            {apierrors.NewInternalError(why), transient, transient, transient, true},
		"C34 timeout of the API server": {apierrors.NewTimeoutError("why", 1), transient, transient, transient, true},
		"C34 connection broken":         {broken, transient, transient, transient, false},
		"unauthorized":                  {apierrors.NewUnauthorized("why"), transient, transient, transient, true},
		"out of time":                   {context.DeadlineExceeded, transient, transient, transient, false},
		"the leadership was lost":       {errNotLeading, transient, transient, transient, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.err, wrapped(tc.err)} {
				for o, want := range map[op]trouble{opCreate: tc.create, opUpdate: tc.update, opRecreate: tc.update, opDelete: tc.delete} {
					if got := troubleOf(o, err); got != want {
						t.Errorf("%v of %v: got %v, want %v", err, o, got, want)
					}
				}
				if got := answered(err); got != tc.answered {
					t.Errorf("%v: got answered %v, want %v", err, got, tc.answered)
				}
			}
		})
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write the copy: %w", err)
}

// writerOn returns a writer on the API server of a small world that has a copy of platform/settings in team-a, that copy
// as the cache has it, and the client, which knows what was sent.
func writerOn(t *testing.T, copyOptions ...cmOption) (w *world, wr *writer, have *corev1.ConfigMap, client *fake.Clientset) {
	t.Helper()
	w = drawWorld(nil)
	clear(w.objects)
	src := w.put(sourceCM("platform", "settings"))
	have = w.put(copyCM(w.rules, src, "team-a", copyOptions...))
	w.rules.strip(have)
	client = w.client().(*fake.Clientset)
	return w, newWriter(client, w.rules, newMeasures()), have, client
}

// changeOf returns the change of that copy.
func (w *world) changeOf(o op, have *corev1.ConfigMap) change {
	return change{op: o, namespace: "team-a", source: w.rules.readSource(w.objects["platform"]), have: have}
}

func TestC35NothingIsSentWithoutLeadership(t *testing.T) {
	w, wr, have, client := writerOn(t)
	wr.valid = func() bool { return false }
	for _, o := range []op{opCreate, opUpdate, opRecreate, opDelete} {
		if err := wr.apply(t.Context(), w.changeOf(o, have)); !errors.Is(err, errNotLeading) {
			t.Errorf("%v: got error %v, want %v", o, err, errNotLeading)
		}
	}
	if sent := client.Actions(); len(sent) > 0 {
		t.Errorf("got %v sent, want nothing", sent)
	}
	// The leadership may end between the two calls of one change.
	asked := 0
	wr.valid = func() bool { asked++; return asked == 1 }
	if err := wr.apply(t.Context(), w.changeOf(opRecreate, have)); !errors.Is(err, errNotLeading) || len(client.Actions()) != 1 {
		t.Errorf("got error %v after %v, want %v after the delete", err, client.Actions(), errNotLeading)
	}
}

// TestC36AlteredWrites: what the API server accepts and makes something else of is no success.
func TestC36AlteredWrites(t *testing.T) {
	w, wr, have, _ := writerOn(t)
	c := w.changeOf(opUpdate, have)
	good := w.rules.desired(c.source, "team-a", nil)
	if err := wr.wrote(opUpdate, c.source, good, nil); err != nil {
		t.Errorf("got error %v for what was written as it should be", err)
	}
	altered := good.DeepCopy()
	altered.Data["injected"] = "theirs"
	if err := wr.wrote(opUpdate, c.source, altered, nil); !errors.Is(err, errAltered) {
		t.Errorf("got error %v, want %v", err, errAltered)
	}
}

func TestC13ACopyThatWasReplacedIsNotRecreated(t *testing.T) {
	w, wr, have, client := writerOn(t, immutable)
	theirs := w.put(configMap("team-a", "settings", data("mine", "1")))
	if err := wr.apply(t.Context(), w.changeOf(opRecreate, have)); !apierrors.IsConflict(err) {
		t.Errorf("got error %v, want a conflict", err)
	}
	if len(client.Actions()) != 1 || w.objects["team-a"].ResourceVersion != theirs.ResourceVersion {
		t.Errorf("got %v sent and %v there, want nothing behind the delete", client.Actions(), w.objects["team-a"])
	}
	if wr.deleted(have.UID) {
		t.Error("got the object taken for one that we deleted")
	}
}

func TestOurOwnDeletionsAreKnown(t *testing.T) {
	w, wr, have, _ := writerOn(t)
	if wr.deleted(have.UID) {
		t.Error("before: got the deletion taken for ours")
	}
	if err := wr.apply(t.Context(), w.changeOf(opDelete, have)); err != nil {
		t.Fatal(err)
	}
	if !wr.ahead(inA, w.changeOf(opUpdate, have), "") {
		t.Error("got the object judged once more whose deletion the watch has not shown yet")
	}
	if wr.ahead(inA, w.changeOf(opUpdate, configMap("team-a", "settings", func(cm *corev1.ConfigMap) { cm.UID = "other" })), "") ||
		wr.ahead(inA, change{op: opCreate}, "") {
		t.Error("got another object held up by the deletion")
	}
	if !wr.deleted(have.UID) {
		t.Error("got the deletion taken for somebody else's")
	}
	if wr.deleted(have.UID) || wr.ahead(inA, w.changeOf(opUpdate, have), "") {
		t.Error("got the deletion remembered after the watch has shown it")
	}
	if err := wr.apply(t.Context(), w.changeOf(opDelete, have)); err != nil {
		t.Errorf("got error %v of the deletion of what is gone, want none", err)
	}
	if wr.deleted(have.UID) {
		t.Error("got a deletion remembered that changed nothing: the watch will not show it")
	}
}

func TestC43ADeletionThatTheWatchWillNotShowIsNotRemembered(t *testing.T) {
	w, wr, have, _ := writerOn(t, without(DefaultLabel))
	if err := wr.apply(t.Context(), w.changeOf(opDelete, have)); err != nil || w.objects["team-a"] != nil {
		t.Fatalf("got error %v and %v, want the copy gone", err, w.objects["team-a"])
	}
	if wr.deleted(have.UID) {
		t.Error("got it remembered")
	}
}

func TestAheadOfTheCache(t *testing.T) {
	w, wr, have, _ := writerOn(t, editData("key", "edited"))
	c := w.changeOf(opUpdate, have)
	if wr.ahead(inA, c, "1") {
		t.Error("got it ahead before any write")
	}
	w.version = 41
	if err := wr.apply(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if len(wr.written) != 1 {
		t.Fatalf("got %v remembered, want the write", wr.written)
	}
	for synced, want := range map[string]bool{"9": true, "41": true} { // as numbers, not as words
		if got := wr.ahead(inA, c, synced); got != want {
			t.Errorf("synced to %q: got ahead %v, want %v", synced, got, want)
		}
	}
	if wr.ahead(inB, c, "41") {
		t.Error("got another target ahead")
	}
	wr.sweep("41")
	if !wr.ahead(inA, c, "41") {
		t.Error("got the write forgotten before the cache has shown it")
	}
	if wr.ahead(inA, c, "42") || len(wr.written) > 0 {
		t.Errorf("got it ahead, or remembered, after the cache has shown it: %v", wr.written)
	}

	for _, synced := range []string{"43", ""} { // where client-go does not tell, nothing is held up
		wr.written[inA], wr.written[inB] = echo{"43", time.Now()}, echo{"9", time.Now()}
		wr.sweep(synced)
		if len(wr.written) > 0 {
			t.Errorf("swept at %q: got %v kept, want nothing", synced, wr.written)
		}
		wr.written[inA] = echo{"43", time.Now()}
		if wr.ahead(inA, c, synced) {
			t.Errorf("synced to %q: got it ahead", synced)
		}
	}
}

func TestAWriteThatFailedIsNotRemembered(t *testing.T) {
	w, wr, have, _ := writerOn(t)
	w.put(configMap("team-a", "settings"))
	for _, o := range []op{opCreate, opUpdate} {
		if err := wr.apply(t.Context(), w.changeOf(o, have)); err == nil {
			t.Errorf("%v: got no error, want that somebody was faster", o)
		}
	}
	if len(wr.written) > 0 {
		t.Errorf("got %v remembered, want nothing", wr.written)
	}
}

func TestNothingToDoIsNothingSent(t *testing.T) {
	w, wr, have, client := writerOn(t)
	for _, o := range []op{opNone, opLook} {
		if err := wr.apply(t.Context(), w.changeOf(o, have)); err != nil || len(client.Actions()) > 0 {
			t.Errorf("%v: got error %v and %v sent, want nothing", o, err, client.Actions())
		}
	}
}

func TestC34ARequestMayTakeAsLongAsAWebhook(t *testing.T) {
	// An admission webhook may take 30 seconds; the API server itself gives up after a minute.
	if requestTimeout <= 30*time.Second || requestTimeout > time.Minute {
		t.Errorf("got %v for a request, want more than 30s and at most a minute", requestTimeout)
	}
}
