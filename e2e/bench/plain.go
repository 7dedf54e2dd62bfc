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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// plainRole makes this binary the plain program, as its first argument; a kubeconfig is the second.
	plainRole = "plain"
	// plainLabel marks what the plain program writes, so that the controller's watch does not carry it.
	plainLabel = "plain"
)

// order is what the plain program has to do: a write for each name in each namespace, or to fill an informer.
type order struct {
	Op                string
	Names, Namespaces []string
	Version           string
	Watch             bool // watch what is written, meanwhile
}

// Ops of an order.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
	opInform = "inform"
)

func (o order) size() int { return len(o.Names) * len(o.Namespaces) }

// plainProgram is the plain program as a process. It gets an order, says that it has read it, waits for the go, and
// says that it is done, each as a line of JSON. It ends when it fails. The time to hand over an order is not measured.
type plainProgram struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

// startPlain starts the plain program. It ends with the cluster at the latest.
func (b *bench) startPlain() *plainProgram {
	cmd := b.cluster.Command(b.ctx, get(os.Executable()), plainRole, b.installed.Kubeconfig)
	// Only an informer of a million ConfigMaps comes near that, with their payload, which the controller does not keep.
	cmd.Env = append(cmd.Env, "GOMEMLIMIT=5GiB")
	cmd.Stderr = os.Stderr
	p := &plainProgram{cmd: cmd, in: json.NewEncoder(get(cmd.StdinPipe())), out: json.NewDecoder(get(cmd.StdoutPipe()))}
	check(cmd.Start())
	return p
}

// tell sends the plain program something and waits for its answer.
func (p *plainProgram) tell(what any) {
	if err := errors.Join(p.in.Encode(what), p.out.Decode(new(bool))); err != nil {
		check(fmt.Errorf("the plain program: %w", err)) // it has printed why it ended
	}
}

// limit returns what it takes to have the plain program execute the order, until an outside watch has shown the last
// write.
func (b *bench) limit(o order) use {
	w := b.watch(plainSelector)
	defer w.stop()
	match := holds("", o.Version)
	if o.Op == opDelete {
		match = gone("")
	}
	b.plain.tell(o)
	b.sleep(pause)
	u := b.used(b.plain.cmd.Process.Pid, func() time.Duration {
		return w.timed(o.size(), match, func() { b.plain.tell(true) })
	})
	b.sleep(afterthought) // as long as ours is followed by nothing but reading the audit log
	return u
}

// informerSync returns how long a bare informer, in a program of its own, takes for all that the controller's watch
// shows.
func (b *bench) informerSync() time.Duration {
	b.sleep(pause)
	p := b.startPlain()
	defer func() { _ = errors.Join(p.cmd.Process.Kill(), p.cmd.Wait()) }() // its exit code is that of a killed process
	p.tell(order{Op: opInform})
	start := time.Now()
	p.tell(true)
	return time.Since(start)
}

// plainWriter is the plain program from inside: it writes, and remembers what it takes for conditional writes.
type plainWriter struct {
	ctx    context.Context
	client kubernetes.Interface
	made   sync.Map // metav1.Preconditions by cache.ObjectName
}

// servePlain is the plain program.
func servePlain(ctx context.Context, kubeconfig string, in io.Reader, out io.Writer) {
	p := &plainWriter{ctx: ctx, client: plainClient(kubeconfig)}
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		check(orders.Decode(&o)) // the order to end is the end of the cluster
		stop := p.watch(o)
		check(answers.Encode(true))
		check(orders.Decode(new(bool)))
		p.execute(o)
		check(answers.Encode(true))
		time.AfterFunc(2*tail, stop) // when what the last write takes has been counted
	}
}

// watch begins a watch like the controller's on the written objects, if the order asks for it. It only decodes the
// events.
func (p *plainWriter) watch(o order) (stop func()) {
	if !o.Watch {
		return func() {}
	}
	maps := p.client.CoreV1().ConfigMaps(metav1.NamespaceAll)
	list := get(maps.List(p.ctx, metav1.ListOptions{LabelSelector: plainSelector, Limit: 1}))
	w := get(maps.Watch(p.ctx, metav1.ListOptions{LabelSelector: plainSelector, ResourceVersion: list.ResourceVersion}))
	go func() {
		for range w.ResultChan() {
		}
	}()
	return w.Stop
}

// plainClient wants nothing compressed, and has no limit on requests a second, as the controller. Like that it speaks
// protobuf, as is usual for ConfigMaps.
func plainClient(kubeconfig string) kubernetes.Interface {
	cfg := get(clientcmd.BuildConfigFromFlags("", kubeconfig))
	cfg.QPS = -1
	cfg.UserAgent = plainRole // by which the audit log tells it from the controller
	cfg.DisableCompression = true
	return get(kubernetes.NewForConfig(cfg))
}

func (p *plainWriter) execute(o order) {
	if o.Op == opInform {
		p.inform()
		return
	}
	targets := make([]cache.ObjectName, 0, o.size())
	for _, namespace := range o.Namespaces {
		for _, name := range o.Names {
			targets = append(targets, cache.ObjectName{Namespace: namespace, Name: name})
		}
	}
	parallel(targets, func(at cache.ObjectName) { p.write(o, at) })
}

// write makes one write, which is conditional as those of the controller are.
func (p *plainWriter) write(o order, at cache.ObjectName) {
	maps := p.client.CoreV1().ConfigMaps(at.Namespace)
	made, _ := p.made.Load(at)
	before, _ := made.(metav1.Preconditions)
	cm := o.copyAt(at)
	switch o.Op {
	case opCreate:
		cm = get(maps.Create(p.ctx, cm, metav1.CreateOptions{}))
	case opUpdate:
		cm.ResourceVersion = *before.ResourceVersion
		cm = get(maps.Update(p.ctx, cm, metav1.UpdateOptions{}))
	case opDelete:
		check(maps.Delete(p.ctx, at.Name, metav1.DeleteOptions{Preconditions: &before}))
	}
	p.made.Store(at, metav1.Preconditions{UID: new(cm.UID), ResourceVersion: new(cm.ResourceVersion)})
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
		Data: data(o.Version),
	}
}

// inform has an informer get all that the controller's watch shows.
func (p *plainWriter) inform() {
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = mirrorSelector }))
	factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(p.ctx)
	check(factory.WaitForCacheSyncWithContext(p.ctx).AsError())
}
