package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// diff returns what a change does to the content of its target. Source and target are read anew: a snapshot has no
// payloads.
func (s *session) diff(ctx context.Context, c plan.Change) (string, error) {
	have, err := s.Get(ctx, c.Key)
	var source *corev1.ConfigMap
	if err == nil && c.Source != nil {
		source, err = s.Get(ctx, c.Source.Key)
	}
	if err != nil || c.Source != nil && source == nil { // the source has gone meanwhile
		return "", err
	}
	return diffOf(s.Rules, c.Op, c.Key, source, have)
}

// diffOf returns what an operation changes at a target, as a unified diff. source and have are what is there now, or
// nil.
func diffOf(rules *plan.Rules, op plan.Op, key types.NamespacedName, source, have *corev1.ConfigMap) (string, error) {
	var want *corev1.ConfigMap
	if op != plan.OpDelete && source != nil {
		var kept *corev1.ConfigMap // a copy that is created again loses the metadata of others
		if op != plan.OpRecreate {
			kept = have
		}
		want = rules.Desired(rules.ParseSource(source), key.Namespace, kept)
	}
	name := key.String()
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: content(have), B: content(want), FromFile: name, ToFile: name, FromDate: "is", ToDate: "would be", Context: 3,
	})
}

// content returns the lines of a ConfigMap that a diff shows, each with its section and key; none if cm is nil. A value
// that ends with a newline has an empty line behind it. Data may hold anything: what a terminal could take for more
// than text is escaped.
func content(cm *corev1.ConfigMap) (lines []string) {
	if cm == nil {
		return nil
	}
	add := func(section string, entries map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(entries)) {
			for line := range strings.SplitSeq(entries[k], "\n") {
				lines = append(lines, section+" "+printable(k)+": "+printable(line)+"\n")
			}
		}
	}
	binary := map[string]string{}
	for k, v := range cm.BinaryData {
		binary[k] = fmt.Sprintf("%d bytes, sha256 %.6x", len(v), sha256.Sum256(v))
	}
	add("annotation", cm.Annotations)
	add("label", cm.Labels)
	add("binaryData", binary)
	add("data", cm.Data)
	if cm.Immutable != nil {
		lines = append(lines, fmt.Sprintf("immutable: %v\n", *cm.Immutable))
	}
	return lines
}
