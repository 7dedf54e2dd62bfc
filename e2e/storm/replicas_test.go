package storm

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// electing are flags of replicas that elect a leader, with times so short that faults outlast them.
var electing = []string{
	"--leader-elect", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s",
	"--leader-elect-retry-period=500ms", "--concurrent-writes=8", "-v=3",
}

// environment has the controller find out within seconds that nothing comes on a connection, and has it panic if it
// changes an object of its cache.
var environment = []string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1", "KUBE_CACHE_MUTATION_DETECTOR=true",
}

// stopPatience is how long a controller may take to stop, also if no answers
// come. It promises less, by a clock that a slow machine does not slow down.
const stopPatience = suite.Patience

// replica is one process of the controller after the other, behind a proxy.
type replica struct {
	*storm
	proxy   *faultproxy.Proxy
	log     io.Writer // of all processes
	flags   []string
	process atomic.Pointer[shipped.Process]
}

// flagsOf returns the flags of the controllers of a part.
func flagsOf(o plan.Options, grace time.Duration) []string {
	flags := append(slices.Clone(electing), fmt.Sprintf("--deletion-grace=%s", grace), fmt.Sprintf("--prune=%v", o.Prune),
		"--namespace-selector="+o.NamespaceSelector)
	for _, prefix := range o.NamespacePrefixes {
		flags = append(flags, "--namespace-prefix="+prefix)
	}
	return flags
}

func (r *replica) start() error {
	p, err := r.installed.Start(shipped.RunOptions{
		Args: r.flags, Env: environment, Kubeconfig: r.proxy.Kubeconfig(), Log: r.log,
	})
	if err == nil {
		r.process.Store(p)
	}
	return err
}

// run starts the next process when one has ended, as a kubelet does, and stops the last one when ctx ends.
func (r *replica) run(ctx context.Context) {
	for {
		p := r.process.Load()
		select {
		case <-p.Done():
		case <-ctx.Done():
			r.stop(p)
		}
		code, last := p.ExitCode(), cluster.LastLines(p.Log(), 40) // -1: by a signal
		if code > 1 || code == 1 && !strings.Contains(last, "leadership lost") {
			r.Errorf("a controller ended with exit code %d:\n%s", code, last)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if err := r.start(); err != nil {
			r.Error(err)
			return
		}
	}
}

// stop stops the process, which has to do so in time. run judges its exit code.
func (r *replica) stop(p *shipped.Process) {
	err := p.Stop(stopPatience)
	select {
	case <-p.Done():
	default:
		r.Error(err)
		p.Kill()
	}
}

// pause has the process stand still until it is resumed.
func pause(r *replica) (resume func()) {
	p := r.process.Load()
	_ = p.Signal(syscall.SIGSTOP) // fails if it has just ended, and so does the next one
	return func() { _ = p.Signal(syscall.SIGCONT) }
}
