package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Roles of this binary besides the benchmark itself, as its first argument; a kubeconfig is the second.
const (
	plainRole    = "plain"
	informerRole = "informer"
)

const (
	// plainWriters is how many writes the plain program has in flight.
	plainWriters = 32
	// plainLabel marks what the plain program writes, so that the controller's watch does not carry it.
	plainLabel = "plain"
	// plainAgent is the user agent by which the audit log tells it from the controller.
	plainAgent = "plain"
)

// order is what the plain program is told to do: a write for each name in each namespace.
type order struct {
	Op                string
	Names, Namespaces []string
	Payload           int
	Version           string
	Watch             bool // watch what is written, meanwhile
}

// Ops of an order.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
)

func (o order) size() int { return len(o.Names) * len(o.Namespaces) }

// match looks for what the order does, in the outside watch.
func (o order) match() matcher {
	if o.Op == opDelete {
		return gone("")
	}
	return holds("", o.Version)
}

// plainProgram is the plain program as a process.
type plainProgram struct {
	cmd *exec.Cmd
	in  io.Writer
	out *json.Decoder
}

// startPlain starts the plain program. It ends with the cluster.
func (b *bench) startPlain(ctx context.Context) (*plainProgram, error) {
	cmd, err := b.command(ctx, plainRole)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &plainProgram{cmd: cmd, in: in, out: json.NewDecoder(out)}, cmd.Start()
}

// command is this binary in another role.
func (b *bench) command(ctx context.Context, role string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := b.cluster.Command(ctx, self, role, b.installed.Kubeconfig)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// The plain program gets an order, says that it has read it, waits for the go, and says how it went, each as a line
// of JSON. The time to hand over an order is not measured.

// prepare hands the order over.
func (p *plainProgram) prepare(o order) error {
	if err := json.NewEncoder(p.in).Encode(o); err != nil {
		return fmt.Errorf("the plain program: %w", err)
	}
	return p.answer()
}

// execute has the order that was handed over executed, and returns when it is.
func (p *plainProgram) execute() error {
	if _, err := fmt.Fprintln(p.in, "true"); err != nil {
		return fmt.Errorf("the plain program: %w", err)
	}
	return p.answer()
}

func (p *plainProgram) pid() int { return p.cmd.Process.Pid }

func (p *plainProgram) answer() error {
	var problem string
	err := p.out.Decode(&problem)
	if err == nil && problem != "" {
		err = errors.New(problem)
	}
	if err != nil {
		return fmt.Errorf("the plain program: %w", err)
	}
	return nil
}

// limit returns what it takes to have the plain program execute the order, until the watch has shown the last write.
func (b *bench) limit(ctx context.Context, w *watcher, o order) (use, error) {
	if err := b.plain.prepare(o); err != nil {
		return use{}, err
	}
	if err := b.breathe(ctx); err != nil {
		return use{}, err
	}
	u, err := b.used(b.plain.pid(), func() (time.Duration, error) { return w.timed(ctx, o.size(), o.match(), b.plain.execute) })
	time.Sleep(afterthought) // as long as ours is followed by nothing but reading the audit log
	return u, err
}

// plainWriter is the plain program from inside: it writes, and remembers what it takes for conditional writes.
type plainWriter struct {
	client kubernetes.Interface
	mu     sync.Mutex
	made   map[cache.ObjectName]made
}

// made identifies an object in the state in which it was written.
type made struct {
	uid     types.UID
	version string
}

// servePlain is the plain program.
func servePlain(ctx context.Context, kubeconfig string, in io.Reader, out io.Writer) error {
	client, err := plainClient(kubeconfig)
	if err != nil {
		return err
	}
	p := &plainWriter{client: client, made: map[cache.ObjectName]made{}}
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return fmt.Errorf("no more orders: %w", err)
		}
		stop, err := p.watch(ctx, o)
		if err != nil {
			return err
		}
		if err := answers.Encode(""); err != nil {
			return err
		}
		var proceed bool
		if err := orders.Decode(&proceed); err != nil {
			return err
		}
		problem := ""
		if err := p.execute(ctx, o); err != nil {
			problem = firstLine(err)
		}
		if err := answers.Encode(problem); err != nil {
			return err
		}
		time.AfterFunc(2*tail, stop) // when what the last write takes has been counted
	}
}

// watch begins a watch like the controller's on the written objects, if the order asks for it. It only decodes the events.
func (p *plainWriter) watch(ctx context.Context, o order) (stop func(), err error) {
	if !o.Watch {
		return func() {}, nil
	}
	maps := p.client.CoreV1().ConfigMaps(metav1.NamespaceAll)
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: plainSelector, Limit: 1})
	if err != nil {
		return nil, err
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: plainSelector, ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	go func() {
		for range w.ResultChan() {
		}
	}()
	return w.Stop, nil
}

func firstLine(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// plainClient speaks protobuf, wants nothing compressed, and has no limit on requests a second, as the controller.
func plainClient(kubeconfig string) (kubernetes.Interface, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.UserAgent = plainAgent
	cfg.DisableCompression = true
	cfg.ContentConfig = rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON}
	return kubernetes.NewForConfig(cfg)
}

func (p *plainWriter) execute(ctx context.Context, o order) error {
	targets := make([]cache.ObjectName, 0, o.size())
	for _, namespace := range o.Namespaces {
		for _, name := range o.Names {
			targets = append(targets, cache.ObjectName{Namespace: namespace, Name: name})
		}
	}
	return parallel(plainWriters, targets, func(at cache.ObjectName) error { return p.write(ctx, o, at) })
}

// write makes one write, which is conditional as those of the controller are.
func (p *plainWriter) write(ctx context.Context, o order, at cache.ObjectName) error {
	maps := p.client.CoreV1().ConfigMaps(at.Namespace)
	p.mu.Lock()
	before := p.made[at]
	p.mu.Unlock()
	cm := o.copyAt(at)
	var err error
	switch o.Op {
	case opCreate:
		cm, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	case opUpdate:
		cm.ResourceVersion = before.version
		cm, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	case opDelete:
		return maps.Delete(ctx, at.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &before.uid, ResourceVersion: &before.version}})
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made[at] = made{cm.UID, cm.ResourceVersion}
	return nil
}

// copyAt is as large as a copy of the controller's, and carries as much metadata.
func (o order) copyAt(at cache.ObjectName) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: at.Name,
			Labels: map[string]string{plainLabel: plan.CopyValue, plan.ManagedByLabel: plan.ManagedByValue},
			Annotations: map[string]string{
				plan.SourceAnnotation:   home + "/" + at.Name,
				plan.CopyAnnotation:     at.String(),
				plan.ChecksumAnnotation: "sha256:" + strings.Repeat("0", 64),
				plan.InstanceAnnotation: "plain",
			}},
		Data: payload(o.Version, o.Payload),
	}
}

// syncInformer is a bare informer in a program of its own: it prints in how many nanoseconds it had all that the
// controller's watch shows, and ends.
func syncInformer(ctx context.Context, kubeconfig string, out io.Writer) error {
	client, err := plainClient(kubeconfig)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = mirrorSelector }))
	factory.Core().V1().ConfigMaps().Informer()
	start := time.Now()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, time.Since(start).Nanoseconds())
	return err
}

// informerMemory bounds what a bare informer lets lie about before it collects. Only a million ConfigMaps come near it, with their
// payload, which the controller does not keep.
const informerMemory = "GOMEMLIMIT=5GiB"

// informerSync returns how long a bare informer takes for what is there.
func (b *bench) informerSync(ctx context.Context) (time.Duration, error) {
	cmd, err := b.command(ctx, informerRole)
	if err != nil {
		return 0, err
	}
	cmd.Env = append(cmd.Env, informerMemory)
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("the bare informer: %w", err)
	}
	var took time.Duration
	_, err = fmt.Sscan(string(out), (*int64)(&took))
	return took, err
}
