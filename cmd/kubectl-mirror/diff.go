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
	if err != nil || c.Op == plan.OpDelete {
		return diffOf(c.Key, have, nil), err
	}
	source, err := s.Get(ctx, c.Source.Key)
	if source == nil { // it has gone meanwhile
		return "", err
	}
	return diffOf(c.Key, have, desired(s.Rules, c, source, have)), nil
}

// desired returns what the target will be. A copy that is created again loses the metadata of others.
func desired(rules *plan.Rules, c plan.Change, source, have *corev1.ConfigMap) *corev1.ConfigMap {
	if c.Op == plan.OpRecreate {
		have = nil
	}
	return rules.Desired(rules.ParseSource(source), c.Key.Namespace, have)
}

// diffOf returns a unified diff of two ConfigMaps, each of which may be nil.
func diffOf(key types.NamespacedName, is, wouldBe *corev1.ConfigMap) string {
	name := key.String()
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // fails as its writer does, which is a buffer
		A: content(is), B: content(wouldBe), FromFile: name, ToFile: name, FromDate: "is", ToDate: "would be", Context: 3,
	})
	return text
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
