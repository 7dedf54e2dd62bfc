package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// payload returns a ConfigMap with this content and nothing else.
func payload(data texts, binaryData blobs, immutable ...bool) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{Data: data, BinaryData: binaryData}
	if len(immutable) > 0 {
		cm.Immutable = &immutable[0]
	}
	return cm
}

func payloadEncoding(cm *corev1.ConfigMap) string {
	var b bytes.Buffer
	writePayload(&b, cm)
	return b.String()
}

func contentEncoding(p digest, labels, annotations map[string]string) string {
	var b bytes.Buffer
	writeContent(&b, p, labels, annotations)
	return b.String()
}

// TestC20NoTwoPayloadsShareAnEncoding compares every two of these contents.
func TestC20NoTwoPayloadsShareAnEncoding(t *testing.T) {
	yes := true
	contents := map[string]*corev1.ConfigMap{
		"nothing":                          payload(nil, nil),
		"immutable":                        payload(nil, nil, true),
		"a key":                            payload(texts{"a": "b"}, nil),
		"the key in binaryData":            payload(nil, blobs{"a": []byte("b")}),
		"the key in both":                  payload(texts{"a": "b"}, blobs{"a": []byte("b")}),
		"the key, immutable":               {Data: texts{"a": "b"}, Immutable: &yes},
		"the key in binaryData, immutable": {BinaryData: blobs{"a": []byte("b")}, Immutable: &yes},
		"another value":                    payload(texts{"a": "c"}, nil),
		"another key":                      payload(texts{"b": "b"}, nil),
		"key and value swapped":            payload(texts{"b": "a"}, nil),
		"an empty value":                   payload(texts{"a": ""}, nil),
		"an empty binary value":            payload(nil, blobs{"a": {}}),
		"a longer key":                     payload(texts{"ab": ""}, nil),
		"a longer value":                   payload(texts{"a": "ba"}, nil),
		"the value belongs to the key":     payload(texts{"ab": "c"}, nil),
		"the key's end belongs to it":      payload(texts{"a": "bc"}, nil),
		"two keys":                         payload(texts{"a": "b", "c": "d"}, nil),
		"their values swapped":             payload(texts{"a": "d", "c": "b"}, nil),
		"one of them binary":               payload(texts{"a": "b"}, blobs{"c": []byte("d")}),
		"the other binary":                 payload(texts{"c": "d"}, blobs{"a": []byte("b")}),
		"both binary":                      payload(nil, blobs{"a": []byte("b"), "c": []byte("d")}),
		"both in one value":                payload(texts{"a": "bcd"}, nil),
		"two empty values":                 payload(texts{"a": "", "b": ""}, nil),
		"a value like an encoding":         payload(texts{"a": payloadEncoding(payload(texts{"b": "c"}, nil))}, nil),
		"a value like two fields":          payload(texts{"a": payloadEncoding(payload(texts{"a": "b"}, nil))}, nil),
		"a value with a zero byte":         payload(texts{"a": "b\x00"}, nil),
		"a value not in UTF-8":             payload(nil, blobs{"a": []byte("\xff")}),
		"a value of 256 bytes":             payload(texts{"a": strings.Repeat("b", 256)}, nil),
		"a value of 512 bytes":             payload(texts{"a": strings.Repeat("b", 512)}, nil),
		// A length of one byte would read 0 here, and then the value would read as the next field.
		"a value of 256 bytes, like a field": payload(texts{"a": payloadEncoding(payload(texts{"b": strings.Repeat("c", 237)}, nil))}, nil),
		"an empty value, and that field":     payload(texts{"a": "", "b": strings.Repeat("c", 237)}, nil),
		"kind letters, text":                 payload(texts{"d": "v"}, nil),
		"kind letters, binary":               payload(nil, blobs{"b": []byte("w")}),
		"kind letter of immutable":           payload(texts{"i": ""}, nil),
	}
	if n := len(contents["a value of 256 bytes, like a field"].Data["a"]); n != 256 {
		t.Fatalf("got a value of %d bytes, want 256", n)
	}
	encodings := map[string]string{}
	for name, cm := range contents {
		encoding := payloadEncoding(cm)
		if other, taken := encodings[encoding]; taken {
			t.Errorf("got one encoding for %q and %q, want two", name, other)
		}
		encodings[encoding] = name
		if got, want := payloadDigest(cm), sha256.Sum256([]byte(encoding)); string(got) != string(want[:]) {
			t.Errorf("%s: got digest %x, want that of the encoding, %x", name, got, want)
		}
	}
}

func TestC21EqualPayloadsHaveOneEncoding(t *testing.T) {
	long, reversed := texts{}, texts{}
	keys := numbered(50)
	for i := range keys {
		long[keys[i]], reversed[keys[49-i]] = keys[i], keys[49-i]
	}
	for name, pair := range map[string][2]*corev1.ConfigMap{
		"nil and empty data":         {payload(nil, nil), payload(texts{}, nil)},
		"nil and empty binaryData":   {payload(nil, nil), payload(nil, blobs{})},
		"nil and empty, with a key":  {payload(texts{"a": "b"}, nil), payload(texts{"a": "b"}, blobs{})},
		"nil and empty binary value": {payload(nil, blobs{"a": nil}), payload(nil, blobs{"a": {}})},
		"immutable absent and false": {payload(texts{"a": "b"}, nil), payload(texts{"a": "b"}, nil, false)},
		"another order of insertion": {payload(long, nil), payload(reversed, nil)},
		"metadata is no content": {payload(texts{"a": "b"}, nil),
			plantest.ConfigMap("x", "y", plantest.Data("a", "b"), plantest.Label("l", "1"), plantest.Annotation("n", "1"))},
		"three keys": {payload(texts{"b": "1", "a": "2", "c": "3"}, nil), payload(texts{"c": "3", "a": "2", "b": "1"}, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // maps have another order each time
				if a, b := payloadEncoding(pair[0]), payloadEncoding(pair[1]); a != b {
					t.Fatalf("got %q and %q, want one encoding", a, b)
				}
				if a, b := payloadDigest(pair[0]), payloadDigest(pair[1]); a != b {
					t.Fatalf("got digests %x and %x, want one", a, b)
				}
			}
		})
	}
}

// TestC18EncodingNeverChanges pins the encoding. If it changes, the next version writes every copy of every cluster again.
func TestC18EncodingNeverChanges(t *testing.T) {
	cm := payload(texts{"key": "value", "a": ""}, blobs{"bin": {0, 255}}, true)
	want := "d\x00\x00\x00\x00\x00\x00\x00\x01a" + "v\x00\x00\x00\x00\x00\x00\x00\x00" +
		"d\x00\x00\x00\x00\x00\x00\x00\x03key" + "v\x00\x00\x00\x00\x00\x00\x00\x05value" +
		"b\x00\x00\x00\x00\x00\x00\x00\x03bin" + "w\x00\x00\x00\x00\x00\x00\x00\x02\x00\xff" +
		"i\x00\x00\x00\x00\x00\x00\x00\x00"
	if got := payloadEncoding(cm); got != want {
		t.Errorf("got payload encoding\n%q, want\n%q", got, want)
	}
	sum := sha256.Sum256([]byte(want))
	if got := payloadDigest(cm); string(got) != string(sum[:]) {
		t.Errorf("got digest %x, want %x", got, sum)
	}
	content := "p\x00\x00\x00\x00\x00\x00\x00\x20" + string(sum[:]) +
		"l\x00\x00\x00\x00\x00\x00\x00\x03app" + "m\x00\x00\x00\x00\x00\x00\x00\x03web" +
		"a\x00\x00\x00\x00\x00\x00\x00\x04note" + "n\x00\x00\x00\x00\x00\x00\x00\x00"
	if got := contentEncoding(digest(sum[:]), texts{"app": "web"}, texts{"note": ""}); got != content {
		t.Errorf("got content encoding\n%q, want\n%q", got, content)
	}
	whole := sha256.Sum256([]byte(content))
	if got, want := checksum(digest(sum[:]), texts{"app": "web"}, texts{"note": ""}), "sha256:"+hex.EncodeToString(whole[:]); got != want {
		t.Errorf("got checksum %s, want %s", got, want)
	}
}

func TestNoTwoContentsShareAnEncoding(t *testing.T) {
	one, two := payloadDigest(payload(texts{"a": "b"}, nil)), payloadDigest(payload(texts{"a": "c"}, nil))
	encodings := map[string]string{}
	for name, c := range map[string]struct {
		payload             digest
		labels, annotations texts
	}{
		"payload":                    {one, nil, nil},
		"another payload":            {two, nil, nil},
		"a label":                    {one, texts{"a": "b"}, nil},
		"a label, another payload":   {two, texts{"a": "b"}, nil},
		"the label as an annotation": {one, nil, texts{"a": "b"}},
		"the label as both":          {one, texts{"a": "b"}, texts{"a": "b"}},
		"a label of another value":   {one, texts{"a": "c"}, nil},
		"an empty label":             {one, texts{"a": ""}, nil},
		"an empty annotation":        {one, nil, texts{"a": ""}},
		"the value belongs to it":    {one, texts{"ab": ""}, nil},
		"two labels":                 {one, texts{"a": "b", "c": "d"}, nil},
		"their values swapped":       {one, texts{"a": "d", "c": "b"}, nil},
		"one label, one annotation":  {one, texts{"a": "b"}, texts{"c": "d"}},
		"the other two":              {one, texts{"c": "d"}, texts{"a": "b"}},
		"two annotations":            {one, nil, texts{"a": "b", "c": "d"}},
		"kind letters":               {one, texts{"l": "m", "a": "n"}, texts{"p": "d"}},
	} {
		encoding := contentEncoding(c.payload, c.labels, c.annotations)
		if other, taken := encodings[encoding]; taken {
			t.Errorf("got one encoding for %q and %q, want two", name, other)
		}
		encodings[encoding] = name
		if a, b := checksum(c.payload, c.labels, c.annotations), checksum(c.payload, maps.Clone(c.labels), maps.Clone(c.annotations)); a != b {
			t.Errorf("%s: got checksums %s and %s, want one", name, a, b)
		}
	}
	if a, b := contentEncoding(one, nil, nil), contentEncoding(one, texts{}, texts{}); a != b {
		t.Errorf("C21: got %q for nil and %q for empty maps, want one encoding", a, b)
	}
}

func TestC21OrderOfMetadataDoesNotMatter(t *testing.T) {
	keys := numbered(20)
	up, down := texts{}, texts{}
	for i := range keys {
		up[keys[i]], down[keys[len(keys)-1-i]] = "1", "1"
	}
	one := payloadDigest(payload(nil, nil))
	for range 10 { // maps have another order each time
		if a, b := contentEncoding(one, up, nil), contentEncoding(one, down, nil); a != b {
			t.Fatalf("labels: got %q and %q, want one encoding", a, b)
		}
		if a, b := contentEncoding(one, nil, up), contentEncoding(one, nil, down); a != b {
			t.Fatalf("annotations: got %q and %q, want one encoding", a, b)
		}
	}
}
