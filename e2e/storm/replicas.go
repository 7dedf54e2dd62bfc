package main

// The two replicas of the controller, each behind a proxy and with an account of its own.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/stalls"
)

// electing are arguments of replicas that elect a leader, with times short enough for pauses to outlast them.
var electing = []string{
	"--leader-elect", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
	"--concurrent-writes=8", "-v=3",
}

// environment has the controller find out within seconds that nothing comes on a connection, and has it panic if it changes
// an object of its cache.
var environment = []string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1", "KUBE_CACHE_MUTATION_DETECTOR=true",
}

// replica is one process of the controller after the other.
type replica struct {
	installed *shipped.Installation // with an account of its own
	id        int
	proxy     *faultproxy.Proxy
	log       *os.File // of all processes

	disturbances stalls.Log // by faults

	mu       sync.Mutex // held by who signals, stops or starts the process
	args     []string
	process  *shipped.Process
	asked    map[*shipped.Process]bool // to end
	problems []string
}

// newReplicas starts no controller yet.
func newReplicas(ctx context.Context, c *cluster.Cluster, installed *shipped.Installation, dir string) ([]*replica, error) {
	names := []string{"storm-0", "storm-1"}
	if err := addAccounts(ctx, c, installed, names); err != nil {
		return nil, err
	}
	var out []*replica
	for id, name := range names {
		r := &replica{id: id, asked: map[*shipped.Process]bool{}}
		var err error
		if r.installed, err = installed.As(ctx, installed.Namespace, name); err != nil {
			return nil, err
		}
		if r.log, err = os.Create(filepath.Join(dir, name+".log")); err != nil {
			return nil, err
		}
		proxyDir := filepath.Join(c.Dir(), name)
		if err := os.Mkdir(proxyDir, 0o700); err != nil {
			return nil, err
		}
		r.proxy, err = faultproxy.Start(faultproxy.Options{Kubeconfig: r.installed.Kubeconfig, Dir: proxyDir})
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// addAccounts adds accounts with the permissions of the shipped one, so that the audit log tells which replica wrote.
func addAccounts(ctx context.Context, c *cluster.Cluster, installed *shipped.Installation, names []string) error {
	var objects shipped.Manifests
	var subjects []any
	for _, name := range names {
		subjects = append(subjects, map[string]any{"kind": "ServiceAccount", "name": name, "namespace": installed.Namespace})
	}
	for _, o := range installed.Manifests {
		switch o.GetKind() {
		case "ServiceAccount":
			for _, name := range names {
				account := o.DeepCopy()
				account.SetName(name)
				objects = append(objects, account)
			}
		case "ClusterRoleBinding", "RoleBinding":
			binding := o.DeepCopy()
			binding.SetName(o.GetName() + "-of-the-storm")
			binding.Object["subjects"] = subjects
			objects = append(objects, binding)
		}
	}
	return objects.Apply(ctx, c.Admin())
}

// start starts the process, and starts it again when it ends unasked, as a kubelet does. The mutex is held.
func (r *replica) start() {
	fmt.Fprintf(r.log, "--- %v %v\n", time.Now(), r.args)
	p, err := r.installed.Start(shipped.RunOptions{
		Replace: true, Args: r.args, Env: environment, Kubeconfig: r.proxy.Kubeconfig(), Log: r.log,
	})
	if err != nil {
		r.problems = append(r.problems, err.Error())
		return
	}
	r.process = p
	go r.watch(p)
}

// broken is what a controller prints that has a fault of its own.
var broken = regexp.MustCompile(`(?m)^(panic|fatal error):|Observed a panic`)

// watch waits for the end of the process, which has to be one that was asked for, or a lost lease.
func (r *replica) watch(p *shipped.Process) {
	<-p.Done()
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := p.ExitCode() == 1 && strings.Contains(tail(p.Log(), 5), "leadership lost")
	young := p.ExitCode() == -1 // a signal came before it could listen, or killed it
	if found := broken.FindString(p.Log()); found != "" {
		r.problems = append(r.problems, fmt.Sprintf("replica %d printed %q:\n%s", r.id, found, tail(p.Log(), 40)))
	}
	if asked := r.asked[p]; p.ExitCode() != 0 && !lost && !(asked && young) || p.ExitCode() == 0 && !asked {
		problem := fmt.Sprintf("replica %d ended with exit code %d:\n%s", r.id, p.ExitCode(), tail(p.Log(), 20))
		r.problems = append(r.problems, problem)
	} else if !asked {
		r.start()
	}
}

// stopPatience is how long a controller may take to stop, also if no answers come.
const stopPatience = 40 * time.Second

// stop asks the process to stop. The mutex is held.
func (r *replica) stop() {
	if r.process == nil {
		return
	}
	r.asked[r.process] = true
	patient, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	_ = r.process.Stop(patient) // watch judges how it ended
	select {
	case <-r.process.Done():
	default:
		r.problems = append(r.problems, fmt.Sprintf("replica %d did not stop:\n%s", r.id, tail(r.process.Log(), 20)))
		r.process.Kill()
	}
}

// kill kills the process. The mutex is held.
func (r *replica) kill() {
	if r.process != nil {
		r.asked[r.process] = true
		r.process.Kill()
	}
}

// pause stops the process where it stands for a time.
func (r *replica) pause(ctx context.Context, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.process.Signal(syscall.SIGSTOP) // fails if it has just ended
	sleep(ctx, d)
	_ = r.process.Signal(syscall.SIGCONT)
}

// takeProblems returns what went wrong with the processes, once.
func (r *replica) takeProblems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.problems = nil }()
	return r.problems
}

// each does something to all replicas at the same time, with their mutexes held.
func each(replicas []*replica, do func(*replica)) {
	var all sync.WaitGroup
	for _, r := range replicas {
		all.Go(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			do(r)
		})
	}
	all.Wait()
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// sleep waits as a person or a tool does that has nothing to wait for.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// arm sets the arguments of the next processes.
func arm(replicas []*replica, f flags, grace time.Duration) {
	args := append(slices.Clone(electing), "--deletion-grace="+grace.String(),
		fmt.Sprintf("--prune=%v", f.Prune), "--namespace-selector="+f.NamespaceSelector)
	for _, p := range f.NamespacePrefixes {
		args = append(args, "--namespace-prefix="+p)
	}
	each(replicas, func(r *replica) {
		shippedArgs := slices.DeleteFunc(slices.Clone(r.installed.Args), func(arg string) bool {
			return strings.HasPrefix(arg, "--namespace-prefix=")
		})
		r.args = slices.Concat(shippedArgs, args)
	})
}
