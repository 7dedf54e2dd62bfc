package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Case C47: tenants fill what they may write, and anybody connects to the ports. The policies of deploy/ prevent some
// of that; the controller has to bear it without them. These tests are not parallel: Go's collector needs its time to
// keep a limit.

const (
	// maxMemory, in MiB, is far below the memory limit of the Deployment, and far above what the controller takes in a
	// small cluster.
	maxMemory = 110
	// maxMemoryOfLists, in MiB, is for an API server that cannot stream: a page of a list is in memory whole before it
	// is stripped. It is below GOMEMLIMIT of the Deployment. How much of a page is garbage at a moment depends on the
	// machine.
	maxMemoryOfLists = 450
)

// manyLabels returns labels of 1.3 MB in all, others for each i: they have no limit but that of a request.
func manyLabels(i int) map[string]string {
	out := map[string]string{}
	for j := range 3500 {
		out[fmt.Sprintf("%0253d/%063d", i, j)] = fmt.Sprintf("%063d", i)
	}
	return out
}

// TestC47MemoryIsBounded has a controller bear the ConfigMaps that tenants write, as large as the API server accepts,
// while they come, and when the controller starts with them. Whoever may write namespaces is trusted with their labels.
func TestC47MemoryIsBounded(t *testing.T) {
	type all []func(w *suite.World, i int) client.Object
	for name, c := range map[string]struct {
		n       int
		objects all
		starts  map[string]int // the most memory, without a stream and with one
	}{
		"forged copies":             {250, all{forgedCopy}, map[string]int{"false": maxMemoryOfLists, "true": maxMemory}},
		"sources of copies that go": {50, all{largeObject, copyOfLargeObject}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := suite.New(t, "a", "b", "tenant")
			p := startAsShipped(w)
			w.Settle(w.NS("a"), w.NS("b"))
			for _, object := range c.objects {
				fill(w, c.n, func(i int) client.Object { return object(w, i) })
			}
			for i := 0; i < c.n && c.starts == nil; i++ {
				w.WaitGone(forged(i), w.NS("tenant"))
			}
			w.Settle(w.NS("a"), w.NS("b")) // one watch shows all in order: it has seen the others
			expectBounded(w, "while they came", p, maxMemory)
			w.Stop(p)
			for stream, most := range c.starts {
				p := startAsShipped(w, "KUBE_FEATURE_WatchListClient="+stream)
				w.Settle(w.NS("a"), w.NS("b"))
				expectBounded(w, "started with them, stream "+stream, p, most)
				w.Stop(p)
			}
		})
	}
}

func forged(i int) string { return fmt.Sprint("forged-", i) }

// forgedCopy is not ours, or the controller would delete it, and has large annotations or labels.
func forgedCopy(w *suite.World, i int) client.Object {
	cm := suite.ConfigMap(w.NS("tenant"), forged(i), w.MarksOfCopy(w.NS("tenant"), w.NS("tenant"), forged(i))...)
	if i%5 == 0 {
		cm.Annotations, cm.Labels = nil, manyLabels(i)
		cm.Labels[w.Label] = plan.CopyValue
		return cm
	}
	keys := []string{"example.com/note", plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation}
	cm.Annotations[keys[i%len(keys)]] = fmt.Sprint(i, strings.Repeat("x", 250<<10))
	return cm
}

func largeObject(w *suite.World, i int) client.Object {
	cm := suite.ConfigMap(w.NS("b"), forged(i))
	cm.Labels = manyLabels(i)
	return cm
}

// copyOfLargeObject is ours. The controller reads the source live, which is none, and deletes the copy.
func copyOfLargeObject(w *suite.World, i int) client.Object {
	return suite.ConfigMap(w.NS("tenant"), forged(i), w.MarksOfCopy(w.NS("b"), w.NS("tenant"), forged(i))...)
}

// fill creates n objects until the test ends.
func fill(w *suite.World, n int, object func(i int) client.Object) {
	w.Helper()
	c, err := client.New(w.Cluster.Admin(), client.Options{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		w.CleanUp(inParallel(n, func(i int) error { return client.IgnoreNotFound(c.Delete(w.Background(), object(i))) }))
	})
	err = inParallel(n, func(i int) error { return client.IgnoreAlreadyExists(c.Create(w.Context(), object(i))) })
	if err != nil {
		w.Fatal(err)
	}
}

// inParallel sends n requests, several at a time, and again if the API server gave one up, which it does after 34
// seconds. Such a request may have taken effect.
func inParallel(n int, request func(i int) error) error {
	errs := make([]error, n)
	workqueue.ParallelizeUntil(context.Background(), 8, n, func(i int) {
		errs[i] = retry.OnError(wait.Backoff{Steps: 10}, apierrors.IsTimeout, func() error { return request(i) })
	})
	return errors.Join(errs...)
}

// startAsShipped runs a controller with the environment of the Deployment, and serves both ports. The mutation
// detector is off: it keeps a second copy of each object.
func startAsShipped(w *suite.World, env ...string) *shipped.Process {
	w.Helper()
	deployment, err := w.Installed.Manifests.Deployment()
	if err != nil {
		w.Fatal(err)
	}
	env = append(env, "KUBE_CACHE_MUTATION_DETECTOR=false")
	for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
		env = append(env, variable.Name+"="+variable.Value)
	}
	return w.StartWith(shipped.RunOptions{Env: env,
		Args: []string{"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"}})
}

// expectBounded fails the test if the controller has, or had, too much in memory. most is in MiB.
func expectBounded(w *suite.World, when string, p *shipped.Process, most int) {
	w.Helper()
	process, err := procfs.NewProc(p.Pid())
	if err != nil {
		w.Fatal(err)
	}
	status, err := process.NewStatus()
	if err != nil {
		w.Fatal(err)
	}
	peak := int(status.VmHWM >> 20)
	w.Logf("%s: %d MiB", when, peak)
	if peak >= most {
		w.Errorf("%s: the controller had %d MiB in memory, want less than %d MiB", when, peak, most)
	}
}

// TestC47HostileConnections opens connections to both ports as anybody in the cluster can, and keeps them. The probes
// of a kubelet are answered beside them, and memory is bounded.
func TestC47HostileConnections(t *testing.T) {
	w := suite.New(t, "a", "b")
	p := startAsShipped(w)
	w.Until("ready", func() error { return w.Probe(p, "/readyz") })
	for what, attack := range map[string]struct {
		connections int // to each port
		request     string
	}{
		"a header of 1 MB": {600, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 1_000_000)},
		"a whole request":  {4000, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n"},
		"half a request":   {1500, "GET /none HTTP/1.1\r\nHost: a\r\n"},
	} {
		w.Row(what, func(w *suite.World) {
			var conns []io.Closer
			for _, served := range []string{"health", "metrics"} {
				address, err := p.Address(served)
				if err != nil {
					w.Fatal(err)
				}
				opened := connect(address, attack.connections, attack.request)
				if len(opened) < 100 {
					w.Fatalf("%s: got %d connections, want an attack", served, len(opened))
				}
				conns = append(conns, opened...)
			}
			for _, path := range []string{"/livez", "/readyz"} {
				// The attacker may keep a probe waiting until its connections are closed for their age. A kubelet asks again.
				w.Until("a probe beside them", func() error { return w.Probe(p, path) })
			}
			expectBounded(w, "beside them", p, maxMemory)
			w.Settle(w.NS("a"), w.NS("b"))
			for _, conn := range conns {
				_ = conn.Close()
			}
		})
	}
	w.Until("the metrics are served", func() error {
		_, err := w.Scrape(p)
		return err
	})
}

// connect opens n connections and writes the request to each. The attacker has this machine's processors, too: it
// opens some at a time. Errors are the attacker's, and do not fail the test.
func connect(address string, n int, request string) (conns []io.Closer) {
	const moment = 2 * time.Second
	var mu sync.Mutex
	workqueue.ParallelizeUntil(context.Background(), 64, n, func(int) {
		conn, err := net.DialTimeout("tcp", address, moment)
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(moment))
		_, _ = io.WriteString(conn, request)
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, conn)
	})
	return conns
}
