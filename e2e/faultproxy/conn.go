package faultproxy

import (
	"errors"
	"net"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// listener wraps the connections that it accepts.
type listener struct {
	net.Listener
	proxy *Proxy
}

func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, proxy: l.proxy, closed: make(chan struct{}), carried: sets.New[string]()}
	l.proxy.change(func() {
		l.proxy.conns[c] = true
		l.proxy.accepted++
	})
	return c, nil
}

// conn is a connection from a client, below TLS, which can be made to go wrong.
type conn struct {
	net.Conn
	proxy  *Proxy
	closed chan struct{}
	close  sync.Once

	// Guarded by the proxy's mutex.
	lost    bool
	carried sets.Set[string] // resources that requests on it were about
}

// Read returns what the client sent. In silence it comes when that is over; on a lost connection never.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if n, err := c.Conn.Read(b); err != nil || c.passes() {
			return n, err
		}
	}
}

// Write sends to the client. On a lost connection it seems so.
func (c *conn) Write(b []byte) (int, error) {
	if !c.passes() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// passes returns when there is no silence, and reports whether anything arrives: not if the connection is lost, or was
// closed meanwhile.
func (c *conn) passes() (yes bool) {
	for {
		var silence chan struct{}
		c.proxy.locked(func() { silence, yes = c.proxy.silence, !c.lost })
		if silence == nil || !yes {
			return yes
		}
		select {
		case <-silence:
		case <-c.closed:
			return false
		}
	}
}

func (c *conn) Close() error {
	c.close.Do(func() {
		close(c.closed)
		c.proxy.change(func() { delete(c.proxy.conns, c) })
	})
	return c.Conn.Close()
}

// reset ends the connection so that the client sees a reset.
func (c *conn) reset() error {
	var err error
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		err = tcp.SetLinger(0)
	}
	return errors.Join(err, c.Close())
}

// carriers returns the open connections on which there was a request about one of the resources; no resources mean all
// connections. The mutex is held.
func (p *Proxy) carriers(resources []string) (out []*conn) {
	for c := range p.conns {
		if len(resources) == 0 || c.carried.HasAny(resources...) {
			out = append(out, c)
		}
	}
	return out
}

// BreakConnections resets open connections that have carried requests about any of the resources, or all if none is
// given. New ones work.
func (p *Proxy) BreakConnections(resources ...string) {
	var broken []*conn
	p.locked(func() { broken = p.carriers(resources) })
	for _, c := range broken {
		_ = c.reset() // fails for one that was closed in this moment
	}
}

// LoseConnections makes open connections half-open, for good: they stay open, but nothing that either side sends
// arrives. It chooses them as BreakConnections does. New ones work. That is what a firewall or a load balancer does
// that has forgotten them, or a server that was moved away.
func (p *Proxy) LoseConnections(resources ...string) {
	p.locked(func() {
		for _, c := range p.carriers(resources) {
			c.lost = true
		}
	})
}

// Silence has nothing pass any more, in either direction, until Heal: open connections stay open, and new
// ones are accepted, and are silent too. Requests sent in the meantime arrive when it is over, as they do
// after a partition of the network. Requests that the proxy was already forwarding may still reach the server.
func (p *Proxy) Silence() {
	p.locked(func() {
		if p.silence == nil {
			p.silence = make(chan struct{})
		}
	})
}

// Heal ends a silence.
func (p *Proxy) Heal() {
	p.change(func() {
		if p.silence != nil {
			close(p.silence)
			p.silence = nil
		}
	})
}

// Connections returns how many connections are open, and how many there have ever been.
func (p *Proxy) Connections() (open, ever int) {
	p.locked(func() { open, ever = len(p.conns), p.accepted })
	return open, ever
}
