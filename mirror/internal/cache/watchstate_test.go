package cache

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// streams open one stream after the other.
type streams struct {
	t     *testing.T
	state *watchState
	last  *watch.FakeWatcher // from the API server
}

func inStreams(f func(*testing.T, *streams)) func(*testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, &streams{t: t, state: newWatchState(configMaps)}) })
	}
}

func unlogged(t *testing.T) context.Context { return klog.NewContext(t.Context(), klog.Logger{}) }

// try opens a stream, which may begin with a list.
func (s *streams) try(lists bool) error {
	o := metav1.ListOptions{}
	if lists {
		o.SendInitialEvents = &lists
	}
	from := watch.NewFake()
	open := func(context.Context, metav1.ListOptions) (watch.Interface, error) { return from, nil }
	shown, err := s.state.watch(unlogged(s.t), open, o)
	if err != nil {
		return err
	}
	s.last = from
	go func() {
		for range shown.ResultChan() { // as client-go reads it
		}
	}()
	return nil
}

// open opens a stream, and fails the test if it is not to be.
func (s *streams) open(lists bool) {
	s.t.Helper()
	if err := s.try(lists); err != nil {
		s.t.Fatal(err)
	}
}

// shows shows an event.
func (s *streams) shows(e watch.EventType, annotations ...string) {
	cm := &corev1.ConfigMap{}
	for _, key := range annotations {
		cm.Annotations = map[string]string{key: "true"}
	}
	s.last.Action(e, cm)
	synctest.Wait()
}

// ends ends the stream.
func (s *streams) ends() {
	s.last.Stop()
	synctest.Wait()
}

func (s *streams) wantInterrupted(want time.Duration) {
	s.t.Helper()
	if got := s.state.interrupted(); got != want {
		s.t.Errorf("got a watch that has been interrupted for %v, want %v", got, want)
	}
}

// TestC79Established: a stream that begins with a list makes a watch established
// by the end of the list, and any other one by an event, or after a second. The
// watch is interrupted since the end of that stream, or since the start.
func TestC79Established(t *testing.T) {
	for name, f := range map[string]func(*streams){
		"the list ends": func(s *streams) {
			s.open(true)
			s.shows(watch.Added)
			time.Sleep(time.Second)
			s.wantInterrupted(2 * time.Second)
			s.shows(watch.Bookmark) // another one
			s.wantInterrupted(2 * time.Second)
			s.shows(watch.Added, metav1.InitialEventsAnnotationKey) // a tenant annotates it
			s.wantInterrupted(2 * time.Second)
			s.shows(watch.Bookmark, metav1.InitialEventsAnnotationKey)
			s.wantInterrupted(0)
		},
		"a stream goes on for a second": func(s *streams) {
			s.open(false)
			time.Sleep(999 * time.Millisecond)
			s.wantInterrupted(1999 * time.Millisecond)
			time.Sleep(time.Millisecond)
			s.wantInterrupted(0)
		},
		"a stream brings something": func(s *streams) {
			s.open(false)
			s.wantInterrupted(time.Second)
			s.shows(watch.Modified)
			s.wantInterrupted(0)
		},
	} {
		t.Run(name, inStreams(func(t *testing.T, s *streams) {
			time.Sleep(time.Second)
			s.wantInterrupted(time.Second)
			f(s)
			time.Sleep(24 * time.Hour) // in silence
			s.wantInterrupted(0)
			s.ends()
			s.wantInterrupted(0)
			time.Sleep(time.Minute)
			s.wantInterrupted(time.Minute)
			for range 10 { // useless streams
				s.open(false)
				time.Sleep(100 * time.Millisecond)
				s.ends()
			}
			s.wantInterrupted(time.Minute + time.Second)
		}))
	}
}

// TestC79ListsInPages: after 30 seconds without the end of the list that a stream
// begins with, or after two streams that ended before, no stream begins with a
// list until the watch was established.
func TestC79ListsInPages(t *testing.T) {
	for name, tc := range map[string]struct {
		lasts   time.Duration // each stream
		streams int
	}{
		"the end does not come": {31 * time.Second, 1},
		"cut twice":             {29 * time.Second, 2},
		"cut at once":           {0, 2},
	} {
		t.Run(name, inStreams(func(t *testing.T, s *streams) {
			for range 3 {
				for range tc.streams {
					s.open(true)
					for passed := time.Second; passed <= tc.lasts; passed += time.Second {
						time.Sleep(time.Second)
						synctest.Wait()
						if s.last.IsStopped() != (passed >= streamTimeout) {
							t.Fatalf("after %v: got a stream that has ended: %v", passed, s.last.IsStopped())
						}
					}
					s.ends()
				}
				for range 2 {
					const in30s = "the end of what it begins with in 30s, or ended twice before it: listing in pages"
					if err := s.try(true); err == nil || !strings.Contains(err.Error(), in30s) {
						t.Fatalf("got %v, want a list", err)
					}
				}
				s.open(false)
				time.Sleep(time.Second)
				s.ends()
			}
		}))
	}
}

// TestC79ErrorsHaveNoType: client-go retries what it recognizes for ever, calls no
// handler, and does not list. That a resourceVersion is too old is no failure.
func TestC79ErrorsHaveNoType(t *testing.T) {
	tooMany := apierrors.NewTooManyRequests("later", 1)
	t.Run("of a request", inStreams(func(t *testing.T, s *streams) {
		_, err := s.state.watch(unlogged(t),
			func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, tooMany }, metav1.ListOptions{})
		if err == nil || errors.As(err, new(apierrors.APIStatus)) || !strings.Contains(err.Error(), "later") {
			t.Errorf("got %#v, want the text alone", err)
		}
	}))
	for name, tc := range map[string]struct {
		status metav1.Status
		keeps  bool
	}{
		"in a stream":             {tooMany.ErrStatus, false},
		"resourceVersion too old": {apierrors.NewResourceExpired("too old").ErrStatus, true},
	} {
		t.Run(name, inStreams(func(t *testing.T, s *streams) {
			event := watch.Event{Type: watch.Error, Object: &tc.status}
			err := apierrors.FromObject((&stream{watchState: s.state}).judged(unlogged(t), event).Object)
			keeps := apierrors.ReasonForError(err) == tc.status.Reason
			if keeps != tc.keeps || err.Error() != tc.status.Message {
				t.Errorf("got %#v, want that it keeps its type: %v", err, tc.keeps)
			}
		}))
	}
}

// TestC79Lines is the table of the lines about errors. A line has the remedy, and
// the seconds since the watch was established. None comes within a minute of the
// last one, nor when the controller stops, and each error is returned all the same.
func TestC79Lines(t *testing.T) {
	const (
		permission = "check the credentials, and grant list and watch in all namespaces"
		server     = "check the log of the API server, where one object that it cannot decode is enough"
	)
	for name, tc := range map[string]struct {
		err    error
		text   string
		remedy string
	}{
		"401": {apierrors.NewUnauthorized("who is it"), `err="who is it"`, permission},
		"403": {apierrors.NewForbidden(corev1.Resource(configMaps), "", errors.New("no rule")),
			`: no rule"`, permission},
		"500":       {apierrors.NewInternalError(errors.New("etcd")), `: etcd"`, server},
		"timed out": {context.DeadlineExceeded, `err="no answer in time, or only 429: context`, server},
		"canceled":  {context.Canceled, `err="no answer in time, or only 429: context`, server},
	} {
		t.Run(name, inStreams(func(t *testing.T, s *streams) {
			var out bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
			running, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
			fails := func(after time.Duration, parts ...string) {
				t.Helper()
				time.Sleep(after)
				out.Reset()
				if err := s.state.failed(running, "list", tc.err); err == nil {
					t.Error("got no error")
				}
				for _, part := range parts {
					if !strings.Contains(out.String(), part) {
						t.Errorf("got the line %q, want in it %q", out.String(), part)
					}
				}
				if len(parts) == 0 && out.Len() > 0 {
					t.Errorf("got the line %q, want none", out.String())
				}
			}
			fails(1400*time.Millisecond, tc.text, `verb="list" resource="configmaps" interrupted="1s"`, tc.remedy)
			fails(59 * time.Second)
			fails(time.Second, tc.text)
			stop()
			fails(time.Hour)
		}))
	}
}
