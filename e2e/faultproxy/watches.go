package faultproxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// watchInProtobuf is the type of an answer to a watch.
const watchInProtobuf = runtime.ContentTypeProtobuf + ";stream=watch"

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
	for {
		frame, err := readFrame(s.upstream)
		if err == nil {
			_, err = events.Write(frame)
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

// readFrame reads an event with its length before it.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// newFrame is the inverse of readFrame.
func newFrame(kind watch.EventType, object runtime.Object) []byte {
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encode(object)}}
	var out bytes.Buffer
	frames := protobuf.LengthDelimitedFramer.NewFrameWriter(&out)
	if err := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(event, frames); err != nil {
		panic(fmt.Sprintf("encode an event: %v", err))
	}
	return out.Bytes()
}

// encode is for types that the scheme knows.
func encode(object runtime.Object) []byte {
	out, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), object)
	if err != nil {
		panic(fmt.Sprintf("encode an object: %v", err))
	}
	return out
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
		_, _ = events.Write(newFrame(watch.Error, statusOf(Gone))) // fails if the client has gone
		_ = events.Close()
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
