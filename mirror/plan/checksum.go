package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// digest is a SHA-256 sum as a string of 32 bytes. The zero value means that
// there is none.
type digest string

// Every field of an encoding begins with its kind and its length, so that no two
// different contents have one encoding.
const (
	kindDataKey       = 'd'
	kindDataValue     = 'v'
	kindBinaryKey     = 'b'
	kindBinaryValue   = 'w'
	kindImmutable     = 'i'
	kindPayload       = 'p'
	kindLabelKey      = 'l'
	kindLabelValue    = 'm'
	kindAnnotationKey = 'a'
	kindAnnotationVal = 'n'
)

// payloadDigest returns the digest of data, binaryData and immutable of cm.
// Absent and empty maps are equal, and so are an absent immutable and false. Of a
// ConfigMap that [Rules.Strip] stripped it returns the stored digest.
func payloadDigest(cm *corev1.ConfigMap) digest {
	if d, ok := cm.Annotations[payloadMark]; ok {
		return digest(d)
	}
	h := sha256.New()
	writeMap(h, kindDataKey, kindDataValue, cm.Data)
	writeMap(h, kindBinaryKey, kindBinaryValue, cm.BinaryData)
	if isImmutable(cm) {
		writeField(h, kindImmutable, "")
	}
	return digest(h.Sum(nil))
}

// contentChecksum returns the checksum of everything that a ConfigMap of the API
// holds of a source: its payload, and the metadata that its copied annotation
// lists. label is the key of the mirror label. The checksum is empty if the
// annotation is not as the controller writes it, so that no copy with such an
// annotation counts as in sync.
func contentChecksum(cm *corev1.ConfigMap, label string) string {
	list := cm.Annotations[CopiedAnnotation]
	labelKeys, annotationKeys := copiedKeys(list, label)
	labels := only(cm.Labels, labelKeys...)
	annotations := only(cm.Annotations, annotationKeys...)
	if list != copiedList(labels, annotations) {
		return ""
	}
	return checksum(payloadDigest(cm), labels, annotations)
}

// checksum returns the value of the checksum annotation for a payload and the
// copied metadata.
func checksum(payload digest, labels, annotations map[string]string) string {
	h := sha256.New()
	writeField(h, kindPayload, payload)
	writeMap(h, kindLabelKey, kindLabelValue, labels)
	writeMap(h, kindAnnotationKey, kindAnnotationVal, annotations)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// writeMap writes the keys and values of a map, sorted.
func writeMap[T ~string | ~[]byte](h hash.Hash, kindKey, kindValue byte, m map[string]T) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		writeField(h, kindKey, k)
		writeField(h, kindValue, m[k])
	}
}

// writeField writes the kind, the length and the value of one field. A hash does not
// fail.
func writeField[T ~string | ~[]byte](h hash.Hash, kind byte, value T) {
	var head [9]byte
	head[0] = kind
	binary.BigEndian.PutUint64(head[1:], uint64(len(value)))
	_, _ = h.Write(head[:])
	_, _ = h.Write([]byte(value))
}

func isImmutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }
