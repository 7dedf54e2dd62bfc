package main

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// tape is a watch on all objects of one resource that shows every state of each, in order. An informer shows only the
// last ones.
type tape struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// take takes in the next state of an object, nil if it is gone, as of a resourceVersion. gap is set if states
	// before it may have been missed.
	take func(key model.Key, object metav1.Object, rv string, gap bool)
	// known returns the objects that were there by what was taken in.
	known func() []model.Key
	// reached is told how far the tape has come.
	reached func(rv string)

	seen  string // resourceVersion; empty: to be listed anew
	begun bool   // it was listed before
}

// historyRetry is the time between two tries to watch, while there is no API server.
const historyRetry = 100 * time.Millisecond

// follow watches until ctx ends.
func (t *tape) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := t.goOn(ctx)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			t.seen = ""
		} else if err != nil {
			_ = sleep(ctx, historyRetry)
		}
	}
}

func (t *tape) goOn(ctx context.Context) error {
	if t.seen == "" {
		return t.begin(ctx)
	}
	return t.run(ctx)
}

// begin takes in what is there, with what came to pass since the last watch as a gap.
func (t *tape) begin(ctx context.Context) error {
	list, err := t.list(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	there := map[model.Key]bool{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object := o.(metav1.Object)
		there[keyOfObject(object)] = true
		t.take(keyOfObject(object), object, object.GetResourceVersion(), t.begun)
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range t.known() {
		if !there[key] {
			t.take(key, nil, of.GetResourceVersion(), true)
		}
	}
	t.begun = true
	t.advance(of.GetResourceVersion())
	return nil
}

func (t *tape) run(ctx context.Context) error {
	w, err := t.watch(ctx, metav1.ListOptions{ResourceVersion: t.seen, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(metav1.Object)
		if !ok {
			return apierrors.FromObject(e.Object)
		}
		switch e.Type {
		case watch.Added, watch.Modified:
			t.take(keyOfObject(object), object, object.GetResourceVersion(), false)
		case watch.Deleted:
			t.take(keyOfObject(object), nil, object.GetResourceVersion(), false)
		}
		t.advance(object.GetResourceVersion())
	}
	return errors.New("the watch has ended")
}

func (t *tape) advance(rv string) {
	t.seen = rv
	t.reached(rv)
}

func keyOfObject(object metav1.Object) model.Key {
	return model.Key{Namespace: object.GetNamespace(), Name: object.GetName()}
}
