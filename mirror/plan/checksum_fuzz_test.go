package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

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

// FuzzPayloadEncoding draws two ConfigMaps. They have one encoding if, and only if, they have one content.
func FuzzPayloadEncoding(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte) {
		one, other := drawConfigMap(a), drawConfigMap(b)
		if equal, same := canonical(one) == canonical(other), payloadEncoding(one) == payloadEncoding(other); equal != same {
			t.Errorf("%s and %s: got encodings equal %v, want %v", canonical(one), canonical(other), same, equal)
		}
		if payloadEncoding(one.DeepCopy()) != payloadEncoding(one) {
			t.Errorf("%s: got two encodings, want one", canonical(one))
		}
	})
}

// TestPayloadEncodingOfManySmallConfigMaps is FuzzPayloadEncoding with random ConfigMaps, for every run of the tests. They
// are so small that many are equal, and many nearly so.
func TestPayloadEncodingOfManySmallConfigMaps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	byEncoding, byContent := map[string]string{}, map[string]string{}
	const total = 30000
	for range total {
		raw := make([]byte, random.IntN(14))
		for i := range raw {
			raw[i] = byte(random.IntN(40))
		}
		cm := drawConfigMap(raw)
		encoding, content := payloadEncoding(cm), canonical(cm)
		if other, seen := byEncoding[encoding]; seen && other != content {
			t.Fatalf("got one encoding for %s and %s, want two", content, other)
		}
		if other, seen := byContent[content]; seen && other != encoding {
			t.Fatalf("%s: got encodings %q and %q, want one", content, encoding, other)
		}
		byEncoding[encoding], byContent[content] = content, encoding
	}
	if n := len(byContent); n < total/10 || n > total*9/10 {
		t.Errorf("got %d different contents in %d draws, want some equal and some different", n, total)
	}
}

// FuzzContentEncoding draws two contents with metadata. They have one encoding if, and only if, they are equal.
func FuzzContentEncoding(f *testing.F) {
	// The data of a drawn ConfigMap serve as labels, and its binaryData as annotations.
	content := func(cm *corev1.ConfigMap) (digest, texts, texts) {
		annotations := texts{}
		for k, v := range cm.BinaryData {
			annotations[k] = string(v)
		}
		return payloadDigest(payload(nil, nil, isImmutable(cm))), cm.Data, annotations
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		one, other := drawConfigMap(a), drawConfigMap(b)
		equal, same := canonical(one) == canonical(other), contentEncoding(content(one)) == contentEncoding(content(other))
		if equal != same {
			t.Errorf("%s and %s: got encodings equal %v, want %v", canonical(one), canonical(other), same, equal)
		}
		if sameSum := checksum(content(one)) == checksum(content(other)); equal != sameSum {
			t.Errorf("%s and %s: got checksums equal %v, want %v", canonical(one), canonical(other), sameSum, equal)
		}
		if want := contentEncoding(content(one)); contentEncoding(content(one.DeepCopy())) != want {
			t.Errorf("%s: got two encodings, want one", canonical(one))
		}
	})
}
