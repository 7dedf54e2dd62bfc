package faultproxy

import (
	"bytes"
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

// stream is the body of the answer to a running watch.
type stream struct {
	io.ReadCloser
	proxy    *Proxy
	resource string
	last     io.Reader // what comes when it has been ended on demand; nil: it has not; guarded by the proxy's mutex
}

// follow makes the body of an answer to a watch one that can be ended on demand.
func (p *Proxy) follow(resource string, resp *http.Response) {
	s := &stream{ReadCloser: resp.Body, proxy: p, resource: resource}
	resp.Body = s
	p.locked(func() { p.watches[s] = true })
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	var last io.Reader
	if s.proxy.locked(func() { last = s.last }); n == 0 && err != nil && last != nil {
		return last.Read(b)
	}
	return n, err
}

func (s *stream) Close() error {
	s.proxy.locked(func() { delete(s.proxy.watches, s) })
	return s.ReadCloser.Close()
}

// encode writes an event as the API server does.
func encode(w io.Writer, kind watch.EventType, object runtime.Object) error {
	events := streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(w),
		protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme))
	objects := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return clientwatch.NewEncoder(events, objects).Encode(&watch.Event{Type: kind, Object: object})
}

// EndWatches ends running watches, as the API server does when their time is over. No resources means all.
func (p *Proxy) EndWatches(resources ...string) { p.endWatches(nil, resources) }

// ExpireWatches ends running watches with the ERROR event that their resourceVersion is too old, so that the
// client has to begin anew.
func (p *Proxy) ExpireWatches(resources ...string) {
	var event bytes.Buffer
	_ = encode(&event, watch.Error, statusOf(Gone)) // a buffer takes everything
	p.endWatches(event.Bytes(), resources)
}

// endWatches ends running watches of the resources with this event. Each has shown whole events, unless one is on its
// way in this moment: then the client sees a part of it.
func (p *Proxy) endWatches(event []byte, resources []string) {
	var ended []*stream
	p.locked(func() {
		for s := range p.watches {
			if len(resources) == 0 || slices.Contains(resources, s.resource) {
				s.last = bytes.NewReader(event)
				ended = append(ended, s)
			}
		}
	})
	for _, s := range ended {
		_ = s.ReadCloser.Close() // it has been read to here
	}
}
