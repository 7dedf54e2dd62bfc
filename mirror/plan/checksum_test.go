package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// TestC18EncodingNeverChanges pins the encoding. If it changes, the next version writes every copy of every cluster
// again.
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
	if got, want := checksum(digest(sum[:]), texts{"app": "web"},
		texts{"note": ""}), "sha256:"+hex.EncodeToString(whole[:]); got != want {
		t.Errorf("got checksum %s, want %s", got, want)
	}
}
