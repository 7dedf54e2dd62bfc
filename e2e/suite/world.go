package suite

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

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Patience is how long a test waits before it fails. Most waits take
// milliseconds, and some a minute, because the controller retries some targets
// once a minute. The rest is for slow machines: a wait ends with its event. The
// start of a control plane has a bound of its own, in package cluster.
const Patience = 2 * time.Minute

var worlds atomic.Int32

// World is the part of the cluster that one test has for itself: namespaces with a prefix of its own, and
// controllers with a mirror label and an instance of their own, so that tests run side by side.
type World struct {
	*testing.T
	*Site
	Prefix   string // of the target namespaces
	Home     string // a namespace for sources that no prefix allows as a target
	Label    string
	Instance string
	Mark     cluster.Mark  // where the audit log stood when the world began
	Patience time.Duration // of its waits
	// Proxy is what WithProxy puts before the API server.
	Proxy *faultproxy.Proxy
}

// New creates a world, with its home namespace and one target namespace for each name.
func New(t *testing.T, targets ...string) *World {
	t.Helper()
	return newAt(t, Shared(t), targets...)
}

// NewAlone creates a world on a cluster of its own, for a test that harms the
// control plane, or whose commands reach the namespaces of every world.
func NewAlone(t *testing.T, targets ...string) *World {
	t.Helper()
	return newAt(t, siteOf(t), targets...)
}

// NewInstalled creates a world with the names that the pages have, on a cluster
// of its own, for a test that installs the controller as the pages say.
func NewInstalled(t *testing.T, targets ...string) *World {
	t.Helper()
	return InstalledAt(t, siteOf(t), targets...)
}

// InstalledAt is NewInstalled on a cluster that is there, and that tests use one
// after the other.
func InstalledAt(t *testing.T, s *Site, targets ...string) *World {
	t.Helper()
	w := &World{T: t, Site: s, Prefix: "team-", Home: "platform", Label: plan.DefaultLabel, Instance: "default",
		Patience: Patience}
	if w.Seen.Namespace(w.Home) == nil {
		w.CreateNamespace(w.Home, nil)
	}
	for _, name := range targets {
		w.CreateNamespace(w.NS(name), nil)
	}
	return w
}

// siteOf starts a cluster for one test.
func siteOf(t *testing.T) *Site {
	t.Helper()
	s, err := newSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newAt(t *testing.T, s *Site, targets ...string) *World {
	t.Helper()
	id := fmt.Sprintf("w%d", worlds.Add(1))
	mark, err := s.Cluster.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	w := &World{T: t, Site: s, Prefix: id + "-", Home: "home-" + id, Label: "mirror-" + id,
		Instance: id, Mark: mark, Patience: Patience}
	w.takeAccount()
	w.CreateNamespace(w.Home, nil)
	for _, name := range targets {
		w.CreateNamespace(w.NS(name), nil)
	}
	return w
}

// Row runs a row of a table as a subtest, which shares the world with the other rows.
func (w *World) Row(name string, f func(*World)) {
	w.Helper()
	w.Run(name, func(t *testing.T) {
		row := *w
		row.T = t
		f(&row)
	})
}

// NS returns the full name of a target namespace.
func (w *World) NS(name string) string { return w.Prefix + name }

// CreateMany creates n target namespaces, and returns their full names.
func (w *World) CreateMany(n int) []string {
	w.Helper()
	all := make([]string, n)
	for i := range all {
		all[i] = w.CreateNamespace(w.NS(fmt.Sprintf("n%04d", i)), nil).Name
	}
	return all
}

// Args are the arguments that confine a controller to the world. They come behind those of the Deployment.
func (w *World) Args() []string {
	return []string{"--namespace-prefix=" + w.Prefix, "--mirror-label=" + w.Label, "--instance=" + w.Instance}
}

// alone are arguments for a controller without lease and probes: many controllers run at a time, and few tests need
// them. Those give their own arguments, which come last.
var alone = []string{"--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0"}

// Start runs a controller for the world, with more arguments, until the test ends. It then has to stop with
// exit code 0, if the test did not end it before.
func (w *World) Start(args ...string) *shipped.Process {
	w.Helper()
	return w.StartWith(shipped.RunOptions{Args: args})
}

// StartWith is Start with more choices.
func (w *World) StartWith(o shipped.RunOptions) *shipped.Process {
	w.Helper()
	o.Args = slices.Concat(alone, w.Args(), o.Args)
	// The detector makes the controller panic if it changes an object of its cache. A test may turn it off.
	o.Env = slices.Concat([]string{"KUBE_CACHE_MUTATION_DETECTOR=true"}, o.Env)
	p, err := w.Installed.Start(o)
	w.noError(err)
	w.StopAtEnd(p)
	return p
}

// StopAtEnd stops the controller when the test ends, and expects exit code 0 and a log of short lines.
func (w *World) StopAtEnd(p *shipped.Process) {
	w.Cleanup(func() {
		select {
		case <-p.Done():
		default:
			w.Stop(p)
		}
		for line := range strings.Lines(p.Log()) {
			if len(line) > maxLine {
				w.Errorf("a line of the log has %d bytes, want %d at most: %s…", len(line), maxLine, line[:maxLine/4])
				break
			}
		}
		if w.Failed() {
			w.Logf("the controller printed:\n%s", cluster.LastLines(p.Log(), 60))
		}
	})
}

// maxLine bounds a line of the log, in bytes: tenants write parts of it, and the platform stores it.
const maxLine = 4 << 10

// Stop stops a controller, which has to end with exit code 0.
func (w *World) Stop(p *shipped.Process) {
	w.Helper()
	if err := p.Stop(w.Patience); err != nil {
		w.Errorf("stopping the controller: %v\n%s", err, cluster.LastLines(p.Log(), 60))
	}
}

// Pause stops the process of a controller where it stands.
func (w *World) Pause(p *shipped.Process) { w.Signal(p, syscall.SIGSTOP) }

// Resume is the end of a Pause.
func (w *World) Resume(p *shipped.Process) { w.Signal(p, syscall.SIGCONT) }

// Signal sends a signal to the process of a controller.
func (w *World) Signal(p *shipped.Process, sig syscall.Signal) {
	w.Helper()
	w.noError(p.Signal(sig))
}

// Sh runs commands as the admin, and returns what they print.
func (w *World) Sh(commands string) string {
	w.Helper()
	out, err := w.Shell(w.Background(), commands).CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return string(out)
}

// Until repeats try until it succeeds, in a clean-up, too.
func (w *World) Until(what string, try func() error) {
	w.Helper()
	if err := cluster.Until(w.Background(), w.Patience, try); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// Await waits until the condition holds.
func (w *World) Await(what string, condition func() bool) {
	w.Helper()
	w.Until(what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

// Wait waits until the channel is closed.
func (w *World) Wait(what string, closed <-chan struct{}) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), w.Patience)
	defer cancel()
	select {
	case <-closed:
	case <-ctx.Done():
		w.Fatalf("%s: %v", what, ctx.Err())
	}
}

// Background is a context for clean-ups after a test, when the test's own has ended.
func (w *World) Background() context.Context { return context.WithoutCancel(w.Context()) }

// CleanUp reports the error of a clean-up.
func (w *World) CleanUp(err error) {
	w.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}

// noError ends the test at an error.
func (w *World) noError(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
