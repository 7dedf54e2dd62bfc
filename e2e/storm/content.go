package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Sizes of values. A ConfigMap may have 1 MiB in all.
const (
	largeSize = 100 << 10
	hugeSize  = 1_000_000
)

// shapes are the kinds of content that a ConfigMap may have. The content follows from a number.
var shapes = map[string]func(cm *corev1.ConfigMap, r *rand.Rand){
	"empty": func(*corev1.ConfigMap, *rand.Rand) {},
	"small": func(cm *corev1.ConfigMap, r *rand.Rand) {
		for i := range 1 + r.IntN(3) {
			cm.Data["key"+strconv.Itoa(i)] = word(r)
		}
	},
	"blank": func(cm *corev1.ConfigMap, r *rand.Rand) {
		cm.Data["blank"], cm.Data["key"] = "", word(r)
		cm.BinaryData["nothing"] = []byte{}
	},
	"many": func(cm *corev1.ConfigMap, r *rand.Rand) {
		for i := range 200 {
			cm.Data[fmt.Sprintf("key-%03d", i)] = word(r)
		}
	},
	"binary": func(cm *corev1.ConfigMap, r *rand.Rand) {
		cm.BinaryData["key0"] = []byte{0, 0xff, byte(r.UintN(256))} // key0 is in the data of others
		cm.BinaryData["key1"] = []byte(word(r))
	},
	"both": func(cm *corev1.ConfigMap, r *rand.Rand) {
		cm.Data["key0"], cm.BinaryData["key1"] = word(r), []byte(word(r))
	},
	"large": func(cm *corev1.ConfigMap, r *rand.Rand) { cm.Data["key0"] = text(r, largeSize+r.IntN(2*largeSize)) },
	"huge":  func(cm *corev1.ConfigMap, r *rand.Rand) { cm.Data["key0"] = text(r, hugeSize) },
}

// fill replaces the data of cm by what a token such as "large:7" stands for.
func fill(cm *corev1.ConfigMap, token string) {
	shape, number, _ := strings.Cut(token, ":")
	n, _ := strconv.ParseUint(number, 10, 64) // a token from nowhere is as good as zero
	cm.Data, cm.BinaryData = map[string]string{}, map[string][]byte{}
	if write := shapes[shape]; write != nil {
		write(cm, rand.New(rand.NewPCG(n, 0)))
	}
}

func word(r *rand.Rand) string { return strconv.FormatUint(r.Uint64(), 36) }

// text returns text of that size, in lines, that no compression makes small.
func text(r *rand.Rand, size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(word(r) + "\n")
	}
	return b.String()[:size]
}
