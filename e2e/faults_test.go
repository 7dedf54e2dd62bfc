package e2e

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Variables in the environment of the controller. The first two have it look after a connection on which
// nothing comes in sooner than the 30 and 15 seconds that are client-go's defaults; the last makes it list.
var (
	impatient = []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}
	listing   = []string{"KUBE_FEATURE_WatchListClient=false"}
)

// proxied is a world whose controller reaches the API server through a proxy that misbehaves.
type proxied struct {
	*world
	proxy *faultproxy.Proxy
}

func newProxied(t *testing.T, w *world) *proxied {
	t.Helper()
	return newProxiedAs(t, w, w.installed.Kubeconfig)
}

// newProxiedAs is newProxied for a controller with a kubeconfig of its own.
func newProxiedAs(t *testing.T, w *world, kubeconfig string) *proxied {
	t.Helper()
	p, err := faultproxy.Start(faultproxy.Options{
		Kubeconfig: kubeconfig,
		Dir:        t.TempDir(),
		Rand:       rand.New(rand.NewPCG(42, 42)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("faults: %v", p.Counts())
		}
		if err := p.Close(); err != nil {
			t.Errorf("closing the proxy: %v", err)
		}
	})
	return &proxied{w, p}
}

// run runs a controller that has to pass through the proxy.
func (w *proxied) run(env []string, args ...string) *shipped.Process {
	w.Helper()
	p := w.startWith(shipped.RunOptions{Args: args, Env: env, Kubeconfig: w.proxy.Kubeconfig()})
	w.Cleanup(w.proxy.Heal) // before the controller is stopped
	return p
}

// await waits until the condition holds, which the proxy has asked again whenever something happens there.
func (w *proxied) await(what string, condition func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := w.proxy.Await(ctx, condition); err != nil {
		w.Fatalf("%s: %v; faults: %v", what, err, w.proxy.Counts())
	}
}

// in returns the world as one of the subtest t.
func (w *proxied) in(t *testing.T) *proxied {
	inner := *w.world
	inner.T = t
	return &proxied{&inner, w.proxy}
}

// slowPlaces is how many calls to slow targets the controller has in flight, beside --concurrent-writes.
const slowPlaces = 16

// watched are the resources that the controller watches.
var watched = []string{"configmaps", "namespaces"}
