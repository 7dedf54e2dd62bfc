package faultproxy

import (
	"errors"
	"net"
	"slices"
	"sync"
)

// listener wraps the connections that it accepts.
type listener struct {
	net.Listener
	proxy *Proxy
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wrapped := &conn{Conn: c, proxy: l.proxy, closed: make(chan struct{}), carried: map[string]bool{}}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.proxy.conns[wrapped] = true
	l.proxy.accepted++
	l.proxy.wake()
	return wrapped, nil
}

// conn is a connection from a client, below TLS, which can be made to go wrong.
type conn struct {
	net.Conn
	proxy  *Proxy
	closed chan struct{}
	close  sync.Once

	// Guarded by the proxy's mutex.
	lost    bool
	carried map[string]bool // resources that requests on it were about
}

// Read returns what the client sent. In silence it comes when that is over; on a lost connection never.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		lost, open := c.await()
		if !open {
			return 0, net.ErrClosed
		}
		if lost && err == nil {
			continue
		}
		return n, err
	}
}

// Write sends to the client. On a lost connection it seems so.
func (c *conn) Write(b []byte) (int, error) {
	lost, open := c.await()
	switch {
	case !open:
		return 0, net.ErrClosed
	case lost:
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// await returns when there is no silence. It reports whether the connection is lost, and whether it is open.
func (c *conn) await() (lost, open bool) {
	for {
		c.proxy.mu.Lock()
		silence, lost := c.proxy.silence, c.lost
		c.proxy.mu.Unlock()
		if silence == nil || lost {
			return lost, true
		}
		select {
		case <-silence:
		case <-c.closed:
			return lost, false
		}
	}
}

func (c *conn) Close() error {
	c.close.Do(func() {
		close(c.closed)
		c.proxy.mu.Lock()
		defer c.proxy.mu.Unlock()
		delete(c.proxy.conns, c)
		c.proxy.wake()
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
func (p *Proxy) carriers(resources []string) []*conn {
	var out []*conn
	for c := range p.conns {
		if len(resources) == 0 || slices.ContainsFunc(resources, func(r string) bool { return c.carried[r] }) {
			out = append(out, c)
		}
	}
	return out
}

// BreakConnections resets open connections that have carried requests about any of the resources, or all if none is
// given, and returns how many. New ones work.
func (p *Proxy) BreakConnections(resources ...string) int {
	p.mu.Lock()
	broken := p.carriers(resources)
	p.count(ConnectionBroken, len(broken))
	p.mu.Unlock()
	for _, c := range broken {
		_ = c.reset() // fails for one that was closed in this moment
	}
	return len(broken)
}

// LoseConnections makes open connections half-open, for good, and returns how many: they stay open, but nothing
// that either side sends arrives. It chooses them as BreakConnections does. New ones work. That is what a
// firewall or a load balancer does that has forgotten them, or a server that was moved away.
func (p *Proxy) LoseConnections(resources ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.carriers(resources) {
		if !c.lost {
			c.lost = true
			n++
		}
	}
	p.count(ConnectionLost, n)
	return n
}

// Silence has nothing pass any more, in either direction, until Heal: open connections stay open, and new
// ones are accepted, and are silent too. Requests sent in the meantime arrive when it is over, as they do
// after a partition of the network. Requests that the proxy was already forwarding may still reach the server.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silence == nil && !p.closing {
		p.silence = make(chan struct{})
		p.count(Silenced, 1)
	}
}

// Heal ends a silence.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silence != nil {
		close(p.silence)
		p.silence = nil
		p.wake()
	}
}

// Connections returns how many connections are open, and how many there have ever been.
func (p *Proxy) Connections() (open, ever int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns), p.accepted
}
