package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// patience is how long a test waits before it fails. Most waits take milliseconds, and some a minute, because the controller
// retries some targets once a minute. The rest is for slow machines: a wait ends with its event.
const patience = 10 * time.Minute

var worlds, marks atomic.Int32

// world is the part of the cluster that one test has for itself: namespaces with a prefix of its own, and
// controllers with a mirror label and an instance of their own, so that tests run side by side.
type world struct {
	*testing.T
	*site
	ctx      context.Context
	prefix   string // of the target namespaces
	home     string // a namespace for sources that no prefix allows as a target
	label    string
	instance string
	mark     cluster.Mark // where the audit log stood when the world began
}

// newWorld creates a world, with its home namespace and one target namespace for each name.
func newWorld(t *testing.T, targets ...string) *world {
	t.Helper()
	return newWorldAt(t, shared, targets...)
}

func newWorldAt(t *testing.T, s *site, targets ...string) *world {
	t.Helper()
	id := fmt.Sprintf("w%d", worlds.Add(1))
	mark, err := s.cluster.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, site: s, ctx: t.Context(), prefix: id + "-", home: "home-" + id, label: "mirror-" + id, instance: id, mark: mark}
	w.takeAccount()
	w.createNamespace(w.home, nil)
	for _, name := range targets {
		w.createNamespace(w.ns(name), nil)
	}
	return w
}

// ns returns the full name of a target namespace.
func (w *world) ns(name string) string { return w.prefix + name }

// many returns the full names of n target namespaces.
func (w *world) many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.ns(fmt.Sprintf("n%04d", i))
	}
	return out
}

func (w *world) createMany(n int) []string {
	w.Helper()
	all := w.many(n)
	for _, name := range all {
		w.createNamespace(name, nil)
	}
	return all
}

// elsewhere creates a namespace of the world that is no target by any prefix of it, and returns its full name.
func (w *world) elsewhere(name string) string {
	w.Helper()
	return w.createNamespace(name+"-"+w.home, nil).Name
}

// sibling returns a world with the same target namespaces, for a controller of its own.
func (w *world) sibling() *world {
	w.Helper()
	s := newWorldAt(w.T, w.site)
	s.prefix = w.prefix
	s.takeAccount()
	return s
}

// args are the arguments that confine a controller to the world. They come behind those of the Deployment.
func (w *world) args() []string {
	return []string{"--namespace-prefix=" + w.prefix, "--mirror-label=" + w.label, "--instance=" + w.instance}
}

// alone are arguments for a controller without lease and probes: many controllers run at a time, and few tests need them.
// Those give their own arguments, which come last.
var alone = []string{"--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0"}

// start runs a controller for the world, with more arguments, until the test ends. It then has to stop with
// exit code 0, if the test did not end it before.
func (w *world) start(args ...string) *shipped.Process {
	w.Helper()
	return w.startWith(shipped.RunOptions{Args: args})
}

func (w *world) startWith(o shipped.RunOptions) *shipped.Process {
	w.Helper()
	// The Deployment's own prefix is left out: a list of prefixes grows, and its namespaces are not the world's.
	shippedArgs := slices.DeleteFunc(slices.Clone(w.installed.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--namespace-prefix=")
	})
	o.Replace, o.Args = true, slices.Concat(shippedArgs, alone, w.args(), o.Args)
	// The detector makes the controller panic if it changes an object of its cache. A test may turn it off.
	o.Env = slices.Concat([]string{"KUBE_CACHE_MUTATION_DETECTOR=true"}, o.Env)
	p, err := w.installed.Start(o)
	if err != nil {
		w.Fatal(err)
	}
	w.stopAtEnd(p)
	return p
}

// startExactly runs a controller for the world with a prefix of its own choice among the arguments.
func (w *world) startExactly(args ...string) *shipped.Process {
	w.Helper()
	p, err := w.installed.Start(shipped.RunOptions{
		Args:    slices.Concat(alone, []string{"--mirror-label=" + w.label, "--instance=" + w.instance}, args),
		Replace: true,
		Env:     []string{"KUBE_CACHE_MUTATION_DETECTOR=true"},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.stopAtEnd(p)
	return p
}

// stopAtEnd stops the controller when the test ends, and expects exit code 0 and a log of short lines.
func (w *world) stopAtEnd(p *shipped.Process) {
	w.Cleanup(func() {
		select {
		case <-p.Done():
		default:
			w.stop(p)
		}
		w.expectShortLines(p.Log())
		if w.Failed() {
			w.Logf("the controller printed:\n%s", lastLines(p.Log(), 60))
		}
	})
}

// maxLine bounds a line of the log, in bytes: tenants write parts of it, and the platform stores it.
const maxLine = 4 << 10

// expectShortLines fails the test if a line of the log is longer than maxLine.
func (w *world) expectShortLines(log string) {
	w.Helper()
	for line := range strings.Lines(log) {
		if len(line) > maxLine {
			w.Errorf("a line of the log has %d bytes, want %d at most: %s…", len(line), maxLine, line[:maxLine/4])
			return
		}
	}
}

// stop stops a controller, which has to end with exit code 0.
func (w *world) stop(p *shipped.Process) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		w.Errorf("stopping the controller: %v\n%s", err, lastLines(p.Log(), 60))
	}
}

// pause stops the process of a controller where it stands, resume lets it go on.
func (w *world) pause(p *shipped.Process) { w.signal(p, syscall.SIGSTOP) }

func (w *world) resume(p *shipped.Process) { w.signal(p, syscall.SIGCONT) }

func (w *world) signal(p *shipped.Process, sig syscall.Signal) {
	w.Helper()
	if err := p.Signal(sig); err != nil {
		w.Fatal(err)
	}
}

// eventually waits until the condition returns nil. It is asked again at each event of the outside watch.
func (w *world) eventually(what string, condition func() error) {
	w.Helper()
	if err := w.seen.Eventually(w.ctx, patience, condition); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// betweenTries is the time between two tries, so that the other processes can run.
const betweenTries = 50 * time.Millisecond

// until repeats try until it succeeds. It is for conditions that no watch shows: after each failure it changes an object in the
// world's home, which wakes the next try.
func (w *world) until(what string, try func() error) {
	w.Helper()
	w.eventually(what, func() error {
		err := try()
		if err == nil {
			return nil
		}
		time.Sleep(betweenTries)
		// An equal object would be no change, and wake no try.
		clock := configMap(w.home, "clock", withAnnotation("tries", fmt.Sprint(marks.Add(1))))
		_, clockErr := w.admin.CoreV1().ConfigMaps(w.home).Update(w.ctx, clock, metav1.UpdateOptions{})
		if apierrors.IsNotFound(clockErr) {
			_, clockErr = w.admin.CoreV1().ConfigMaps(w.home).Create(w.ctx, clock, metav1.CreateOptions{})
		}
		return errors.Join(err, clockErr)
	})
}

// wait waits until the channel is closed.
func (w *world) wait(what string, closed <-chan struct{}) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	select {
	case <-closed:
	case <-ctx.Done():
		w.Fatalf("%s: %v", what, ctx.Err())
	}
}

// background is a context for clean-ups after a test, when the test's own has ended.
func (w *world) background() context.Context { return context.WithoutCancel(w.ctx) }

// cleanUp reports the error of a clean-up.
func (w *world) cleanUp(err error) {
	w.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}
