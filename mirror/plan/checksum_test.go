package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
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

// canonical spells the content out. Two contents are equal if, and only if, this is.
func canonical(cm *corev1.ConfigMap) string {
	data := texts{}
	maps.Copy(data, cm.Data)
	binaryData := texts{}
	for k, v := range cm.BinaryData {
		binaryData[k] = string(v)
	}
	return fmt.Sprintf("%q %q %v", data, binaryData, cm.Immutable != nil && *cm.Immutable) // maps are printed sorted
}

// drawConfigMap draws a small ConfigMap from raw. Every value of raw is one.
func drawConfigMap(raw []byte) *corev1.ConfigMap {
	const letters = "dvbwi\x00\x01a"
	next := func() byte {
		if len(raw) == 0 {
			return 0
		}
		b := raw[0]
		raw = raw[1:]
		return b
	}
	word := func() string {
		out := make([]byte, next()%3)
		for i := range out {
			out[i] = letters[next()%byte(len(letters))]
		}
		return string(out)
	}
	cm := &corev1.ConfigMap{}
	switch next() % 4 {
	case 1:
		cm.Data = texts{}
	case 2:
		cm.BinaryData = blobs{}
	case 3:
		no := false
		cm.Immutable = &no
	}
	for len(raw) > 0 {
		switch next() % 5 {
		case 0, 1:
			if cm.Data == nil {
				cm.Data = texts{}
			}
			cm.Data[word()] = word()
		case 2, 3:
			if cm.BinaryData == nil {
				cm.BinaryData = blobs{}
			}
			cm.BinaryData[word()] = []byte(word())
		case 4:
			yes := true
			cm.Immutable = &yes
		}
	}
	return cm
}

// metadataEncoding takes the data of a drawn ConfigMap for labels, and its binaryData for annotations.
func metadataEncoding(cm *corev1.ConfigMap) string {
	annotations := texts{}
	for k, v := range cm.BinaryData {
		annotations[k] = string(v)
	}
	return contentEncoding(payloadDigest(payload(nil, nil, isImmutable(cm))), cm.Data, annotations)
}

// TestC20EncodingsOfManySmallConfigMaps draws ConfigMaps. Two have one encoding if, and only if, they have one content.
// They are so small that many are equal, and many nearly so.
func TestC20EncodingsOfManySmallConfigMaps(t *testing.T) {
	for what, encode := range map[string]func(*corev1.ConfigMap) string{"payload": payloadEncoding,
		"metadata": metadataEncoding} {
		random := rand.New(rand.NewPCG(1, 2))
		byEncoding, byContent := map[string]string{}, map[string]string{}
		const total = 30000
		for range total {
			raw := make([]byte, random.IntN(14))
			for i := range raw {
				raw[i] = byte(random.IntN(40))
			}
			cm := drawConfigMap(raw)
			encoding, content := encode(cm), canonical(cm)
			if other, seen := byEncoding[encoding]; seen && other != content {
				t.Fatalf("%s: got one encoding for %s and %s, want two", what, content, other)
			}
			if other, seen := byContent[content]; seen && other != encoding {
				t.Fatalf("%s: %s: got encodings %q and %q, want one", what, content, encoding, other)
			}
			byEncoding[encoding], byContent[content] = content, encoding
		}
		if n := len(byContent); n < total/10 || n > total*9/10 {
			t.Errorf("got %d different contents in %d draws, want some equal and some different", n, total)
		}
	}
}
