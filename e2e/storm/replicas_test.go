package storm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
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

// stopPatience is how long a controller may take to stop, also if no answers come.
const stopPatience = 40 * time.Second

// replica is one process of the controller after the other, behind a proxy.
type replica struct {
	installed *shipped.Installation
	proxy     *faultproxy.Proxy
	log       *os.File // of all processes

	mu       sync.Mutex // held by whoever signals, stops or starts the process
	flags    []string
	process  *shipped.Process // nil: none is to run
	ends     sync.WaitGroup   // of all processes
	failures []error
}

// newReplicas makes two replicas, and starts no controller yet.
func newReplicas(t *testing.T, installed *shipped.Installation) (out []*replica, err error) {
	for _, name := range []string{"storm-0", "storm-1"} {
		r := &replica{installed: installed}
		if r.log, err = os.Create(filepath.Join(t.ArtifactDir(), name+".log")); err != nil {
			return nil, err
		}
		if r.proxy, err = faultproxy.Start(installed.Kubeconfig, t.TempDir()); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
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

// start starts the first process with flags.
func (r *replica) start(flags []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flags = flags
	r.run()
	return errors.Join(r.failures...)
}

// run starts a process. The mutex is held.
func (r *replica) run() {
	p, err := r.installed.Start(shipped.RunOptions{Args: r.flags, Env: environment, Kubeconfig: r.proxy.Kubeconfig()})
	if err != nil {
		r.failures = append(r.failures, err)
		return
	}
	r.process = p
	r.ends.Go(func() { r.await(p) })
}

// await waits for the end of the process. Then the next one starts, as a kubelet has it, unless none is to run.
func (r *replica) await(p *shipped.Process) {
	<-p.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	code := p.ExitCode() // -1: by a signal
	fmt.Fprintf(r.log, "--- %v\n%s", r.flags, p.Log())
	last := cluster.LastLines(p.Log(), 40)
	if code > 1 || code == 1 && !strings.Contains(last, "leadership lost") {
		r.failures = append(r.failures, fmt.Errorf("a controller ended with exit code %d:\n%s", code, last))
	} else if p == r.process {
		r.run()
	}
}

// end ends the process, and no other one starts.
func (r *replica) end(how func(*shipped.Process) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.process; p != nil {
		r.process = nil
		if err := how(p); err != nil {
			r.failures = append(r.failures, err)
		}
	}
}

// restart ends the process, and await starts the next one.
func (r *replica) restart(how func(*shipped.Process) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := how(r.process); err != nil {
		r.failures = append(r.failures, err)
	}
}

func kill(p *shipped.Process) error {
	p.Kill()
	return nil
}

func stop(p *shipped.Process) error {
	err := p.Stop(stopPatience)
	select {
	case <-p.Done():
		return nil // await judges its exit code
	default:
		p.Kill()
		return err
	}
}

// pause has the process stand still until it is resumed.
func (r *replica) pause() (resume func()) {
	r.mu.Lock()
	p := r.process
	_ = p.Signal(syscall.SIGSTOP) // fails if it has just ended, and so does the next one
	return func() {
		defer r.mu.Unlock()
		_ = p.Signal(syscall.SIGCONT)
	}
}

// failure returns what went wrong with the processes, which have been asked to end.
func (r *replica) failure() error {
	r.ends.Wait()
	defer func() { r.failures = nil }()
	return errors.Join(r.failures...)
}
