package faultproxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
)

// errCut ends an answer in a way that the client sees as a reset.
var errCut = errors.New("cut by a fault of the test")

// stream is the answer to a running watch, on its way from the API server to the client.
type stream struct {
	proxy    *Proxy
	request  Request
	upstream io.ReadCloser

	chunks chan []byte   // what came from upstream, in order
	err    error         // why there is no more; set before chunks is closed
	fate   chan Kind     // receives how the stream is to end
	closed chan struct{} // closed by Close
	close  sync.Once

	// Used by Read only.
	pending []byte
	frames  frames
	doom    Kind  // the fate that was received
	ended   error // what every further Read returns
}

// follow makes the body of an answer to a watch in protobuf one that can be ended on demand.
func (p *Proxy) follow(q Request, resp *http.Response) {
	if resp.Header.Get("Content-Type") != streamed {
		return
	}
	s := &stream{
		proxy: p, request: q, upstream: resp.Body,
		chunks: make(chan []byte), fate: make(chan Kind, 1), closed: make(chan struct{}),
	}
	resp.Body = s
	p.mu.Lock()
	p.streams[s] = true
	p.wake()
	p.mu.Unlock()
	go s.pump()
}

// pump hands on what comes from upstream until that ends or the stream is closed.
func (s *stream) pump() {
	defer close(s.chunks)
	for {
		chunk := make([]byte, 16<<10)
		n, err := s.upstream.Read(chunk)
		if n > 0 {
			select {
			case s.chunks <- chunk[:n]:
			case <-s.closed:
				return
			}
		}
		if err != nil {
			s.err = err
			return
		}
	}
}

func (s *stream) Read(out []byte) (int, error) {
	for len(s.pending) == 0 {
		if s.ended != nil {
			return 0, s.ended
		}
		s.advance()
	}
	n := copy(out, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// advance waits for the next thing to happen. A fate other than a cut is met only between two events.
func (s *stream) advance() {
	if s.doom == WatchCut || s.doom != "" && s.frames.complete() {
		s.meet()
		return
	}
	select {
	case s.doom = <-s.fate:
	case chunk, more := <-s.chunks:
		if !more {
			s.ended = s.err
			return
		}
		s.frames.add(chunk)
		s.pending = chunk
	}
}

func (s *stream) meet() {
	s.ended = io.EOF
	switch s.doom {
	case WatchCut:
		s.ended = errCut
	case WatchExpired:
		s.pending = errorEvent(statusOf(Expired))
	}
}

func (s *stream) Close() error {
	s.close.Do(func() {
		close(s.closed)
		s.proxy.mu.Lock()
		defer s.proxy.mu.Unlock()
		delete(s.proxy.streams, s)
		s.proxy.wake()
	})
	return s.upstream.Close()
}

// frames follows the bytes of a watch from event to event. Each event comes behind its length in four bytes.
type frames struct {
	head []byte // of a length, while there are less than four bytes of it
	left uint32 // of an event whose length is known
}

// complete reports whether the last event is whole.
func (f *frames) complete() bool { return f.left == 0 && len(f.head) == 0 }

func (f *frames) add(chunk []byte) {
	for len(chunk) > 0 {
		if f.left == 0 {
			n := min(4-len(f.head), len(chunk))
			f.head, chunk = append(f.head, chunk[:n]...), chunk[n:]
			if len(f.head) < 4 {
				return
			}
			f.left, f.head = binary.BigEndian.Uint32(f.head), nil
		}
		n := min(uint64(f.left), uint64(len(chunk)))
		f.left, chunk = f.left-uint32(n), chunk[n:]
	}
}

// Watches returns how many watches are running, of the given resources or, if there are none, of all.
func (p *Proxy) Watches(resources ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.running(resources))
}

// EndWatches ends running watches between two events, as the API server does when their time is over, and
// returns how many. No resources means all.
func (p *Proxy) EndWatches(resources ...string) int { return p.doom(WatchEnded, resources) }

// CutWatches ends running watches in the middle, and leaves their connections as they are.
func (p *Proxy) CutWatches(resources ...string) int { return p.doom(WatchCut, resources) }

// ExpireWatches ends running watches with the ERROR event that their resourceVersion is too old, so that the
// client has to begin anew.
func (p *Proxy) ExpireWatches(resources ...string) int { return p.doom(WatchExpired, resources) }

func (p *Proxy) doom(k Kind, resources []string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	doomed := p.running(resources)
	for _, s := range doomed {
		// It no longer counts as running, although its client may not have heard of it yet.
		delete(p.streams, s)
		s.fate <- k // has room: this is the only time
	}
	p.count(k, len(doomed))
	return len(doomed)
}

func (p *Proxy) running(resources []string) []*stream {
	var out []*stream
	for s := range p.streams {
		if len(resources) == 0 || slices.Contains(resources, s.request.Resource) {
			out = append(out, s)
		}
	}
	return out
}
