package suite

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Proxied is a world whose controller reaches the API server through a proxy that misbehaves.
type Proxied struct {
	*World
	Proxy *faultproxy.Proxy
}

// NewProxied returns the world with a proxy between it and the API server.
func NewProxied(t *testing.T, w *World) *Proxied {
	t.Helper()
	return NewProxiedAs(t, w, w.Installed.Kubeconfig)
}

// NewProxiedAs is NewProxied for a controller with a kubeconfig of its own.
func NewProxiedAs(t *testing.T, w *World, kubeconfig string) *Proxied {
	t.Helper()
	p, err := faultproxy.Start(kubeconfig, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the proxy: %v", err)
		}
	})
	return &Proxied{w, p}
}

// StartProxied runs a controller that has to pass through the proxy.
func (w *Proxied) StartProxied(env []string, args ...string) *shipped.Process {
	w.Helper()
	p := w.StartWith(shipped.RunOptions{Args: args, Env: env, Kubeconfig: w.Proxy.Kubeconfig()})
	w.Cleanup(w.Proxy.Heal) // before the controller is stopped
	return p
}
