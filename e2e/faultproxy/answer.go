package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// statuses are what the proxy answers in place of the API server. For Expired it is what the event holds.
var statuses = map[Kind]metav1.Status{
	TooManyRequests: {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests},
	InternalError:   {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError},
	Unavailable:     {Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable},
	Conflict:        {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
	Gone:            {Code: http.StatusGone, Reason: metav1.StatusReasonExpired},
	Expired:         {Code: http.StatusGone, Reason: metav1.StatusReasonExpired},
}

// answer answers a request with a fault, in protobuf: clients go by the type of the answer.
func answer(w http.ResponseWriter, r *http.Request, f Fault) {
	// The API server reads a request before it answers.
	_, _ = io.Copy(io.Discard, r.Body) // fails if the client has gone, as the answer will
	status := statusOf(f.Kind)
	code, contentType, body := int(status.Code), runtime.ContentTypeProtobuf, encode(status)
	if f.Kind == Expired {
		code, contentType, body = http.StatusOK, streamed, errorEvent(status)
	}
	w.Header().Set("Content-Type", contentType)
	if (f.Kind == TooManyRequests || f.Kind == Unavailable) && f.For > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.For.Seconds()))))
	}
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails if the client has gone
}

func statusOf(k Kind) *metav1.Status {
	status := statuses[k]
	status.Status, status.Message = metav1.StatusFailure, "a fault of the test: "+string(k)
	return &status
}

// streamed is the type of a watch in protobuf.
const streamed = runtime.ContentTypeProtobuf + ";stream=watch"

// protobuf is how objects and watches are written.
var protobuf, _ = runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)

func encode(object runtime.Object) []byte {
	out, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion), object)
	return must(out, err)
}

// errorEvent returns the frame of a watch event of the type ERROR.
func errorEvent(status *metav1.Status) []byte { return event(watch.Error, status) }

// event returns the frame of a watch event.
func event(kind watch.EventType, object runtime.Object) []byte {
	e := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encode(object)}}
	var out bytes.Buffer
	err := protobuf.StreamSerializer.Encode(e, protobuf.StreamSerializer.Framer.NewFrameWriter(&out))
	return must(out.Bytes(), err)
}

// must is for the encoding of types that the scheme knows.
func must(out []byte, err error) []byte {
	if err != nil {
		panic(fmt.Sprintf("encode a fault: %v", err))
	}
	return out
}
