package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// judgeAdoption returns the decision of the controller about a ConfigMap that is handed over, or why that cannot be. The
// options are those of the controller.
func (s *snapshot) judgeAdoption(o *plan.Options, have *corev1.ConfigMap) (d *decided, why string) {
	probe := have.DeepCopy()
	if probe.Annotations == nil {
		probe.Annotations = map[string]string{}
	}
	probe.Annotations[plan.AdoptAnnotation] = plan.AdoptValue
	g := s.names[have.Name]
	if g == nil {
		g = &group{name: have.Name, view: plan.NewView(nil)}
	}
	t := s.target(g, have.Namespace, probe)
	d = &decided{Change: s.rules.Decide(g.view, t), have: have}
	if t.Namespace != nil {
		d.losers = s.rules.Superseded(g.view, t, d.Change)
	}
	if _, ours := s.rules.SourceOf(have); !ours && d.Source != nil && (d.Op == plan.OpUpdate || d.Op == plan.OpRecreate) {
		return d, ""
	}
	return d, s.refusal(o, g.view, d)
}

// refusal says why the controller would not adopt a ConfigMap. The text goes on after its name.
func (s *snapshot) refusal(o *plan.Options, v *plan.View, d *decided) string {
	have := d.have
	owner, ours := s.rules.SourceOf(have)
	named := have.Name
	switch {
	case ours:
		return "is already a copy of " + owner.String()
	case namesItself(have):
		return fmt.Sprintf("is a copy of another instance, %s: its controller keeps it", printable(have.Annotations[plan.InstanceAnnotation]))
	case have.Labels[o.Label] == plan.SourceValue:
		return fmt.Sprintf("is a source itself%s: a source is never overwritten. To withdraw it: kubectl -n %s label configmap %s %s-",
			supersededBy(d), have.Namespace, named, o.Label)
	case plan.Reserved(named):
		return "has a name that another controller writes into every namespace: nothing is mirrored under it"
	}
	if broken := namespaceRules(o, have.Namespace, s.namespaces[have.Namespace]); !broken.holds() {
		return fmt.Sprintf("is in no target: %s", broken.firstBroken())
	}
	switch {
	case d.Source == nil:
		return "has the name of no copy: " + s.nobodyWants(o, v, d)
	case len(have.Finalizers) > 0:
		return fmt.Sprintf("has the finalizer %s, and cannot be handed over with one", printable(have.Finalizers[0]))
	case have.DeletionTimestamp != nil:
		return "is being deleted"
	}
	return "cannot be handed over" // no rule of package plan leads here
}

func supersededBy(d *decided) string {
	if d.Source == nil {
		return ""
	}
	return fmt.Sprintf(", superseded in its namespace by %s", d.Source.Key)
}

// firstBroken names the first rule that does not hold, and what is there instead.
func (s *section) firstBroken() string {
	for _, c := range s.Checks {
		if !c.Holds {
			return fmt.Sprintf("this does not hold: %q (%s)", c.Rule, printable(c.Finding))
		}
	}
	return ""
}

// nobodyWants says why no source wants a copy in a namespace that is a target.
func (s *snapshot) nobodyWants(o *plan.Options, v *plan.View, d *decided) string {
	var reasons []string
	for _, source := range v.All() {
		why := sourceNote(source)
		if why == "" {
			narrowing := narrowingRules(source, s.namespaces[d.Key.Namespace])
			why = narrowing.firstBroken()
		}
		reasons = append(reasons, fmt.Sprintf("%s does not want one there: %s", source.Key, why))
	}
	if len(reasons) == 0 {
		return fmt.Sprintf("no source has the name %s and the label %s=%s", d.have.Name, o.Label, plan.SourceValue)
	}
	return strings.Join(reasons, "; ")
}

// adopted says what has come of a ConfigMap that was handed over; nil: it is absent, as it is while an immutable one is
// re-created. An empty verdict means that it is too early to tell.
func (c *cluster) adopted(cm *corev1.ConfigMap) (verdict string, yes bool) {
	if cm == nil {
		return "", false
	}
	if owner, ours := c.rules.SourceOf(cm); ours {
		return fmt.Sprintf("ConfigMap %s is a copy of %s now.", plan.KeyOf(cm), owner), true
	}
	if cm.Annotations[plan.AdoptAnnotation] != plan.AdoptValue {
		return fmt.Sprintf("ConfigMap %s is no longer handed over: somebody has taken the annotation away.", plan.KeyOf(cm)), false
	}
	return "", false
}

// adoption is what a ConfigMap that is handed over loses and gets.
type adoption struct {
	Settings  string `json:"settings"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source"`
	// Operation is update, or recreate if the ConfigMap is immutable.
	Operation string     `json:"operation"`
	Keys      []replaced `json:"keys"`
	Diff      string     `json:"diff,omitempty"`

	have   *corev1.ConfigMap
	losers string
}

// replaced is what happens to one key of the data. Sizes are in bytes.
type replaced struct {
	Key    string `json:"key"`
	Change string `json:"change"`
	Before int    `json:"before"`
	After  int    `json:"after"`
}

func newAdoption(d *decided, source, have *corev1.ConfigMap) *adoption {
	return &adoption{Namespace: have.Namespace, Name: have.Name, Source: d.Source.Key.String(), Operation: d.Op.String(),
		Keys: replacements(payload(have), payload(source)), have: have, losers: strings.TrimSpace(precedence(d))}
}

// payload returns data and binaryData together: no key is in both.
func payload(cm *corev1.ConfigMap) map[string][]byte {
	all := maps.Clone(cm.BinaryData)
	if all == nil {
		all = map[string][]byte{}
	}
	for k, v := range cm.Data {
		all[k] = []byte(v)
	}
	return all
}

// replacements returns what happens to each key, sorted.
func replacements(before, after map[string][]byte) []replaced {
	keys := map[string]bool{}
	for k := range before {
		keys[k] = true
	}
	for k := range after {
		keys[k] = true
	}
	out := []replaced{}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		was, had := before[k]
		becomes, has := after[k]
		change := "replaced"
		switch {
		case !has:
			change = "removed"
		case !had:
			change = "added"
		case bytes.Equal(was, becomes):
			change = "unchanged"
		}
		out = append(out, replaced{k, change, len(was), len(becomes)})
	}
	return out
}

func (a *adoption) names() []string { return []string{a.Namespace + "/" + a.Name} }

func (a *adoption) table(w io.Writer, wide bool) error {
	text := fmt.Sprintf("ConfigMap %s/%s becomes a copy of %s.\n", a.Namespace, a.Name, a.Source)
	if a.losers != "" {
		text += a.losers + "\n"
	}
	if a.Operation == plan.OpRecreate.String() {
		text += "It is immutable, so it is deleted and created again: labels and annotations of others on it are lost.\n"
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	var rows [][]any
	for _, k := range a.Keys {
		rows = append(rows, []any{printable(k.Key), k.Change, k.Before, k.After})
	}
	if err := printTable(w, wide, []column{{name: "Key"}, {name: "Change"}, {name: "Bytes"}, {name: "Bytes then"}}, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, printableLines(a.Diff))
	return err
}
