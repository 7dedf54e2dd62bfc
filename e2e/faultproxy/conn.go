package faultproxy

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
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
	c := &conn{TCPConn: accepted.(*net.TCPConn), proxy: l.proxy}
	l.proxy.locked(func() {
		l.proxy.conns[c] = true
		l.proxy.accepted++
	})
	return c, nil
}

// conn is a connection from a client, below TLS, which can be made to go wrong.
type conn struct {
	*net.TCPConn
	proxy *Proxy
	lost  chan struct{} // closed with the proxy; nil: it is not lost; guarded by the proxy's mutex
}

// Read returns what the client sent. In silence it comes when that is over.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err == nil {
		c.awaitPassage()
	}
	return n, err
}

// Write sends to the client, when a silence is over.
func (c *conn) Write(b []byte) (int, error) {
	c.awaitPassage()
	return c.TCPConn.Write(b)
}

// awaitPassage returns when there is no silence: on a lost connection, when the proxy is closed.
func (c *conn) awaitPassage() {
	var silence chan struct{}
	if c.proxy.locked(func() { silence = cmp.Or(c.lost, c.proxy.silence) }); silence != nil {
		<-silence
	}
}

func (c *conn) Close() error {
	c.proxy.locked(func() { delete(c.proxy.conns, c) })
	return c.TCPConn.Close()
}

// BreakConnections resets open connections. New ones work.
func (p *Proxy) BreakConnections() {
	var open []*conn
	p.locked(func() { open = slices.Collect(maps.Keys(p.conns)) })
	for _, c := range open {
		_ = errors.Join(c.SetLinger(0), c.Close()) // fails for one that was closed in this moment
	}
}

// LoseConnections makes open connections half-open, for good: they stay open, but nothing that either side sends
// arrives. New ones work. That is what a firewall or a load balancer does that has forgotten them, or a server that
// was moved away.
func (p *Proxy) LoseConnections() {
	p.locked(func() {
		for c := range p.conns {
			c.lost = p.closed
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
	p.locked(func() {
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
