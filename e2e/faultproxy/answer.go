package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
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

// answer answers a request with a fault, in the encoding that the client asks for.
func answer(w http.ResponseWriter, r *http.Request, f Fault) {
	// The API server reads a request before it answers.
	_, _ = io.Copy(io.Discard, r.Body) // fails if the client has gone, as the answer will
	info := accepted(r.Header.Get("Accept"))
	status := statusOf(f.Kind)
	code, contentType, body := int(status.Code), info.MediaType, encode(info, status)
	if f.Kind == Expired {
		code, contentType, body = http.StatusOK, contentType+";stream=watch", errorEvent(info, status)
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

// accepted returns the first encoding of an Accept header that there is; JSON if there is none.
func accepted(header string) runtime.SerializerInfo {
	for entry := range strings.SplitSeq(header, ",") {
		if info, ok := encoding(entry); ok {
			return info
		}
	}
	info, _ := encoding(runtime.ContentTypeJSON)
	return info
}

// encoding returns how a content type that can be streamed is written.
func encoding(contentType string) (runtime.SerializerInfo, bool) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return runtime.SerializerInfo{}, false
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	return info, ok && info.MediaType == mediaType && info.StreamSerializer != nil
}

func encode(info runtime.SerializerInfo, status *metav1.Status) []byte {
	out, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), status)
	return must(out, err)
}

// errorEvent returns the frame of a watch event of the type ERROR.
func errorEvent(info runtime.SerializerInfo, status *metav1.Status) []byte {
	event := &metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: encode(info, status)}}
	var out bytes.Buffer
	err := info.StreamSerializer.Encode(event, info.StreamSerializer.Framer.NewFrameWriter(&out))
	return must(out.Bytes(), err)
}

// isOutdated reports whether the first event of a watch is the ERROR that its resourceVersion is too old.
func isOutdated(info runtime.SerializerInfo, beginning []byte) bool {
	frames := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(beginning)))
	var event metav1.WatchEvent
	_, _, err := streaming.NewDecoder(frames, info.StreamSerializer.Serializer).Decode(nil, &event)
	if err != nil || event.Type != string(watch.Error) {
		return false
	}
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), event.Object.Raw)
	status, ok := object.(*metav1.Status)
	return err == nil && ok && status.Code == http.StatusGone
}

// must is for the encoding of types that the scheme knows.
func must(out []byte, err error) []byte {
	if err != nil {
		panic(fmt.Sprintf("encode a fault: %v", err))
	}
	return out
}
