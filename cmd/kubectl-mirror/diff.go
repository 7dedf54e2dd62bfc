package main

import (
	"context"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// addDiffs sets the diff of each change. Source and target are read anew, because a snapshot has no payloads.
func (s *session) addDiffs(ctx context.Context, p *planned) error {
	for _, c := range p.Changes {
		var err error
		if c.Diff, err = s.diff(ctx, c.decision.Change); err != nil {
			return err
		}
	}
	return nil
}

// diff returns what a change does to the content of its target.
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

// diffOf returns what an operation changes at a target, as a unified diff. source and have are what is there now, or nil.
func diffOf(rules *plan.Rules, op plan.Op, key types.NamespacedName, source, have *corev1.ConfigMap) (string, error) {
	var want *corev1.ConfigMap
	if op != plan.OpDelete && source != nil {
		var kept *corev1.ConfigMap // a copy that is created again loses the metadata of others
		if have != nil && op != plan.OpRecreate {
			kept = have.DeepCopy()
			rules.Strip(kept)
		}
		want = rules.Desired(rules.ParseSource(source), key.Namespace, kept)
	}
	before, err := content(have)
	if err != nil {
		return "", err
	}
	after, err := content(want)
	if err != nil {
		return "", err
	}
	name := key.String()
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(before), B: lines(after), FromFile: name, ToFile: name, FromDate: "is", ToDate: "would be", Context: 3,
	})
}

// lines splits text behind each line break.
func lines(text string) []string { return slices.Collect(strings.Lines(text)) }

// content returns what of a ConfigMap is shown in a diff, as YAML; empty if cm is nil.
func content(cm *corev1.ConfigMap) (string, error) {
	if cm == nil {
		return "", nil
	}
	out, err := yaml.Marshal(struct {
		Annotations map[string]string `json:"annotations,omitempty"`
		BinaryData  map[string][]byte `json:"binaryData,omitempty"`
		Data        map[string]string `json:"data,omitempty"`
		Immutable   *bool             `json:"immutable,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
	}{cm.Annotations, cm.BinaryData, cm.Data, cm.Immutable, cm.Labels})
	return string(out), err
}
