package faultproxy

import (
	"io"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	clientwatch "k8s.io/client-go/rest/watch"
)

// watchInProtobuf is the type of an answer to a watch.
const watchInProtobuf = runtime.ContentTypeProtobuf + ";stream=watch"

// longestEvent is more than an API server makes of the largest object that it takes.
const longestEvent = 4 << 20

// stream passes the events of a running watch on to the client.
type stream struct {
	resource string
	upstream io.ReadCloser
	end      chan func(*io.PipeWriter) // how it ends on demand, if it does
}

// follow makes the body of an answer to a watch one that can be ended on demand.
func (p *Proxy) follow(resource string, resp *http.Response) {
	s := &stream{resource: resource, upstream: resp.Body, end: make(chan func(*io.PipeWriter), 1)}
	toClient, events := io.Pipe()
	resp.Body = toClient // when the client has gone, its request to the server ends as well
	p.change(func() { p.watches[s] = true })
	go func() {
		s.pass(events)
		p.change(func() { delete(p.watches, s) })
	}()
}

// pass writes event by event, until the upstream ends, or is closed for an end on demand.
func (s *stream) pass(events *io.PipeWriter) {
	from := protobuf.LengthDelimitedFramer.NewFrameReader(s.upstream)
	to := protobuf.LengthDelimitedFramer.NewFrameWriter(events)
	event := make([]byte, longestEvent)
	for {
		n, err := from.Read(event)
		if err == nil {
			_, err = to.Write(event[:n])
		}
		if err != nil {
			select {
			case end := <-s.end:
				end(events)
			default:
				_ = events.CloseWithError(err)
			}
			return
		}
	}
}

// encode writes an event as the API server does.
func encode(w io.Writer, kind watch.EventType, object runtime.Object) error {
	events := streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(w),
		protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme))
	objects := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return clientwatch.NewEncoder(events, objects).Encode(&watch.Event{Type: kind, Object: object})
}

// EndWatches ends running watches, as the API server does when their time is over. No resources means all.
func (p *Proxy) EndWatches(resources ...string) {
	p.endWatches(resources, func(events *io.PipeWriter) { _ = events.Close() })
}

// CutWatches ends running watches as a reset does, and leaves their connections as they are.
func (p *Proxy) CutWatches(resources ...string) {
	p.endWatches(resources, func(events *io.PipeWriter) { _ = events.CloseWithError(errCut) })
}

// ExpireWatches ends running watches with the ERROR event that their resourceVersion is too old, so that the
// client has to begin anew.
func (p *Proxy) ExpireWatches(resources ...string) {
	p.endWatches(resources, func(events *io.PipeWriter) {
		_ = events.CloseWithError(encode(events, watch.Error, statusOf(Gone)))
	})
}

func (p *Proxy) endWatches(resources []string, end func(*io.PipeWriter)) {
	var ended []*stream
	p.change(func() {
		ended = p.running(resources)
		for _, s := range ended {
			delete(p.watches, s) // although its client may not have heard of the end yet
		}
	})
	for _, s := range ended {
		s.end <- end // has room: this is the only time
		_ = s.upstream.Close()
	}
}

// Watches returns how many watches are running, of the given resources or, if there are none, of all.
func (p *Proxy) Watches(resources ...string) (n int) {
	p.locked(func() { n = len(p.running(resources)) })
	return n
}

func (p *Proxy) running(resources []string) (out []*stream) {
	for s := range p.watches {
		if len(resources) == 0 || slices.Contains(resources, s.resource) {
			out = append(out, s)
		}
	}
	return out
}
