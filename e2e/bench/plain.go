package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/mirror-controller/mirror-controller/e2e/outside"
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
	Version           string // of the data; of deletions empty
	Watch             bool   // watch what is written, meanwhile
}

// Ops of an order.
const (
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"
	opInform = "inform"
)

func (o order) size() int { return len(o.Names) * len(o.Namespaces) }

// copyAt is as large as a copy of the controller's, and carries as much metadata.
func (o order) copyAt(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{plainLabel: plan.CopyValue, plan.ManagedByLabel: plan.ManagedByValue},
			Annotations: map[string]string{
				plan.SourceAnnotation:   home + "/" + name,
				plan.CopyAnnotation:     namespace + "/" + name,
				plan.ChecksumAnnotation: "sha256:" + strings.Repeat("0", 64),
				plan.InstanceAnnotation: "plain",
			}},
		Data: data(o.Version),
	}
}

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
	p := &plainProgram{cmd, json.NewEncoder(get(cmd.StdinPipe())), json.NewDecoder(get(cmd.StdoutPipe()))}
	check(cmd.Start())
	return p
}

// tell sends the plain program something and waits for its answer.
func (p *plainProgram) tell(what any) {
	if err := errors.Join(p.in.Encode(what), p.out.Decode(new(bool))); err != nil {
		check(fmt.Errorf("the plain program: %w", err)) // it has printed why it ended
	}
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
func servePlain(ctx context.Context, kubeconfig string) {
	// Nothing compressed and no limit on requests a second, as the controller. Like that it speaks protobuf, as is usual
	// for ConfigMaps.
	cfg := get(clientcmd.BuildConfigFromFlags("", kubeconfig))
	cfg.QPS = -1
	cfg.UserAgent = plainRole // by which the audit log tells it from the controller
	cfg.DisableCompression = true
	p := &plainWriter{ctx: ctx, client: get(kubernetes.NewForConfig(cfg))}
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var o order
		check(orders.Decode(&o)) // the order to end is the end of the cluster
		watching, stop := context.WithCancel(ctx)
		if o.Watch {
			events := get(outside.Watch(watching, p.client, plainSelector)).ResultChan()
			go func() {
				for range events {
				}
			}()
		}
		check(answers.Encode(true))
		check(orders.Decode(new(bool)))
		p.execute(o)
		check(answers.Encode(true))
		time.AfterFunc(2*tail, stop) // when what the last write takes has been counted
	}
}

func (p *plainWriter) execute(o order) {
	if o.Op == opInform {
		factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0,
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = mirrorSelector }))
		factory.Core().V1().ConfigMaps().Informer()
		factory.StartWithContext(p.ctx)
		check(factory.WaitForCacheSyncWithContext(p.ctx).AsError())
		return
	}
	targets := make([]cache.ObjectName, 0, o.size())
	for _, namespace := range o.Namespaces {
		for _, name := range o.Names {
			targets = append(targets, cache.NewObjectName(namespace, name))
		}
	}
	parallel(targets, func(at cache.ObjectName) { p.write(o, at) })
}

// write makes one write, which is conditional as those of the controller are.
func (p *plainWriter) write(o order, at cache.ObjectName) {
	maps := p.client.CoreV1().ConfigMaps(at.Namespace)
	made, _ := p.made.Load(at)
	before, _ := made.(metav1.Preconditions)
	cm := o.copyAt(at.Namespace, at.Name)
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
