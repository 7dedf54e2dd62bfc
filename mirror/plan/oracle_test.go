package plan

import (
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The oracle is a second, naive reading of the contract. It writes every key out and calls none of the code under test.

// beginsAName reports whether the name of a namespace can begin with s.
func beginsAName(s string) bool {
	const inside = "-0123456789abcdefghijklmnopqrstuvwxyz"
	return s != "" && len(s) <= 63 && s[0] != '-' && strings.Trim(s, inside) == ""
}

// isAName reports whether a namespace can have this name.
func isAName(s string) bool { return beginsAName(s) && !strings.HasSuffix(s, "-") }

// marks is what an object says about itself.
type marks struct {
	owner     string // namespace/name of the source whose copy of ours it is; empty: it is none
	asks      bool   // it has the label of a source, is no copy and not being deleted
	adoptable bool   // its owner hands it over; has no meaning for a copy of ours
}

// readMarks is the paragraphs "Source", "Ours" and "A foreign object in the way" of the contract.
func readMarks(cm *corev1.ConfigMap, instance string) (m marks) {
	if cm == nil {
		return marks{}
	}
	isCopy := cm.Annotations["mirror-controller.github.io/copy"] == cm.Namespace+"/"+cm.Name
	labelled := cm.Labels["mirror"] == "true"
	m.asks = labelled && !isCopy && cm.DeletionTimestamp == nil
	ofOurInstance := cm.Annotations["mirror-controller.github.io/instance"] == instance
	from := strings.Split(cm.Annotations["mirror-controller.github.io/source"], "/")
	if isCopy && ofOurInstance && len(from) == 2 && isAName(from[0]) && from[0] != cm.Namespace && from[1] == cm.Name {
		m.owner = from[0] + "/" + from[1]
	}
	aSource, anothersCopy := labelled && !isCopy, isCopy && !ofOurInstance
	m.adoptable = cm.Annotations["mirror-controller.github.io/adopt"] == "true" && !aSource && !anothersCopy &&
		len(cm.Finalizers) == 0
	return m
}

func (w *world) marksOf(cm *corev1.ConfigMap) marks { return readMarks(cm, w.opts.Instance) }

func (w *world) allowsTarget(ns string) bool {
	excluded := slices.ContainsFunc(w.opts.ExcludeNamespaces, func(pattern string) bool {
		matches, _ := path.Match(pattern, ns)
		return matches
	})
	hasPrefix := func(p string) bool { return strings.HasPrefix(ns, p) }
	return !excluded && (w.opts.AllNamespaces || slices.ContainsFunc(w.opts.NamespacePrefixes, hasPrefix))
}

func (w *world) isSource(cm *corev1.ConfigMap) bool {
	return w.marksOf(cm).asks && (w.opts.SourceNamespaces == nil || slices.Contains(w.opts.SourceNamespaces, cm.Namespace))
}

// holds reports whether the annotations of a source hold the target.
func (w *world) holds(src *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if !w.isSource(src) {
		return false
	}
	value, staged := src.Annotations["mirror-controller.github.io/rollout"]
	i := slices.IndexFunc(selectorNarrowings, func(n narrowing) bool { return n.value == value })
	return src.Annotations["mirror-controller.github.io/paused"] == "true" || staged && !selectorNarrowings[i].allows(ns)
}

// malformedHold reports whether an annotation that holds targets is malformed.
func malformedHold(src *corev1.ConfigMap) bool {
	paused, ok := src.Annotations["mirror-controller.github.io/paused"]
	return ok && paused != "true" || src.Annotations["mirror-controller.github.io/rollout"] == "tier==="
}

// narrowed reports whether the annotations of a source rule ns out, and whether one of its annotations is malformed.
func narrowed(src *corev1.ConfigMap, ns *corev1.Namespace) (out, malformed bool) {
	malformed = malformedHold(src)
	for key, choices := range map[string][]narrowing{
		"mirror-controller.github.io/namespace-prefix":   prefixNarrowings,
		"mirror-controller.github.io/namespace-selector": selectorNarrowings,
	} {
		value, ok := src.Annotations[key]
		if !ok {
			continue
		}
		i := slices.IndexFunc(choices, func(n narrowing) bool { return n.value == value })
		if choices[i].allows == nil {
			malformed = true
		} else if ns != nil && !choices[i].allows(ns) {
			out = true
		}
	}
	return out, malformed
}

// claimants returns the sources that select the namespace, the winner first.
func (w *world) claimants(ns *corev1.Namespace) (claimants []*corev1.ConfigMap) {
	if !w.allowsTarget(ns.Name) || !w.selected.allows(ns) || ns.Labels["mirror"] == "false" {
		return nil
	}
	for _, home := range homes {
		cm := w.objects[home]
		if !w.isSource(cm) || home == ns.Name {
			continue
		}
		if out, malformed := narrowed(cm, ns); !out && !malformed {
			claimants = append(claimants, cm)
		}
	}
	slices.SortFunc(claimants, func(a, b *corev1.ConfigMap) int {
		tenantA, tenantB := w.allowsTarget(a.Namespace), w.allowsTarget(b.Namespace)
		switch {
		case tenantA != tenantB && tenantB:
			return -1
		case tenantA != tenantB:
			return 1
		case a.CreationTimestamp != b.CreationTimestamp:
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		}
		return strings.Compare(a.Namespace, b.Namespace)
	})
	return claimants
}

// winner returns the source that has the namespace; nil if none claims it.
func (w *world) winner(ns *corev1.Namespace) *corev1.ConfigMap {
	if all := w.claimants(ns); len(all) > 0 {
		return all[0]
	}
	return nil
}

// expected is what a target has to hold in the end. If none of the first three fields is set, it is as it was.
type expected struct {
	copyOf     *corev1.ConfigMap // the source whose copy it holds
	empty      bool              // it holds nothing
	terminates bool              // its object is as it was, but for being deleted: a finalizer holds it
	state      State             // of the second plan
	losers     []string          // the namespaces of the sources that claim the target and do not have it, in their order
	maySync    bool              // it may be in sync although it is held
}

func (w *world) expects(home string) (e expected) {
	ns := w.namespaces[home]
	if ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating ||
		w.name == "kube-root-ca.crt" {
		return expected{}
	}
	have, said := w.objects[home], w.marksOf(w.objects[home])
	var winner *corev1.ConfigMap
	var claimants []string
	for _, cm := range w.claimants(ns) {
		claimants = append(claimants, cm.Namespace)
	}
	if len(claimants) > 0 {
		winner, e.losers = w.objects[claimants[0]], claimants[1:]
	}
	held := winner != nil && w.holds(winner, ns)
	switch {
	case have == nil && winner == nil:
		e.empty = true
	case have == nil && held:
		e.empty, e.state = true, StateHeld
	case have == nil:
		e.copyOf, e.state = winner, StateSynced
	case winner == nil && (said.owner == "" || have.Labels["mirror"] != "true" && have.Labels["mirror"] != "copy"):
		// No source wants the place of a foreign object, nor that of a copy that lost its label.
	case said.owner == "" && held:
		e.state = StateHeld
	case said.owner == "" && !said.adoptable:
		e.state = StateForeign
	case said.owner != "" && w.frozen(said.owner):
		e.state, e.losers = StateFrozen, claimants
	case winner == nil && !w.inScope(home) && !w.opts.Prune && have.DeletionTimestamp == nil:
		e.state = StateOutOfScope
	case said.owner != "" && !w.frozen(said.owner) && w.holds(w.source(said.owner), ns):
		home, _, _ := strings.Cut(said.owner, "/")
		e.state, e.losers = StateHeld, slices.DeleteFunc(claimants, func(c string) bool { return c == home })
		e.maySync = winner == w.source(said.owner) && canonical(have) == canonical(winner)
	case held:
		e.state = StateHeld
	case have.DeletionTimestamp != nil:
		e.state = StatePending
	case winner == nil:
		w.expectsUnwanted(&e, home)
	case len(have.Finalizers) > 0 && have.Immutable != nil && *have.Immutable && canonical(have) != canonical(winner):
		e.terminates, e.state = true, StatePending // it cannot be updated
	default:
		e.copyOf, e.state = winner, StateSynced
	}
	return e
}

// expectsUnwanted completes e for a copy of ours that no source claims.
func (w *world) expectsUnwanted(e *expected, home string) {
	if len(w.objects[home].Finalizers) > 0 {
		e.terminates, e.state = true, StatePending
	} else {
		e.empty = true
	}
}

// inScope reports whether the flags allow the copy in home, whether or not its source is there.
func (w *world) inScope(home string) bool {
	from, _, _ := strings.Cut(w.marksOf(w.objects[home]).owner, "/")
	return (w.opts.SourceNamespaces == nil || slices.Contains(w.opts.SourceNamespaces, from)) &&
		w.allowsTarget(home) && w.selected.allows(w.namespaces[home])
}

// source returns the object that the source annotation of a copy names, or nil.
func (w *world) source(key string) *corev1.ConfigMap {
	namespace, _, _ := strings.Cut(key, "/")
	return w.objects[namespace]
}

func (w *world) frozen(key string) bool {
	if src := w.source(key); w.isSource(src) {
		_, malformed := narrowed(src, nil)
		return malformed
	}
	return false
}

// checkCopy compares the object in home with the copy of src that the contract describes. before is the object that was
// there.
func (w *world) checkCopy(t *testing.T, src, before *corev1.ConfigMap, home string) {
	t.Helper()
	got := w.objects[home]
	if got == nil {
		t.Errorf("%s: got nothing, want a copy of %s", home, src.Namespace)
		return
	}
	if canonical(got) != canonical(src) {
		t.Errorf("%s: got content %s, want %s", home, canonical(got), canonical(src))
	}
	wantLabels := texts{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller"}
	wantAnnotations := texts{
		"mirror-controller.github.io/source":   src.Namespace + "/" + w.name,
		"mirror-controller.github.io/copy":     home + "/" + w.name,
		"mirror-controller.github.io/instance": "default",
	}
	if sum := got.Annotations["mirror-controller.github.io/checksum"]; len(sum) != len("sha256:")+64 ||
		!strings.HasPrefix(sum, "sha256:") {
		t.Errorf("%s: got checksum %q", home, sum)
	}
	if _, adopting := got.Annotations["mirror-controller.github.io/adopt"]; adopting {
		t.Errorf("%s: got the adopt annotation left on the copy", home)
	}
	// The metadata of other people stays, unless a copied annotation says that it came from a source.
	if before != nil {
		copied := strings.Split(before.Annotations["mirror-controller.github.io/copied"], ",")
		if v, ok := before.Labels["theirs"]; ok && !slices.Contains(copied, "label:theirs") {
			wantLabels["theirs"] = v
		}
		if v, ok := before.Annotations["theirs"]; ok && !slices.Contains(copied, "annotation:theirs") {
			wantAnnotations["theirs"] = v
		}
	}
	// Of the metadata in a world one label and one annotation may be copied, if the flags list them.
	listed := len(w.opts.CopyLabels) > 0
	if listed && src.Labels["app"] != "" {
		wantLabels["app"] = src.Labels["app"]
	}
	if listed && src.Annotations["note"] != "" {
		wantAnnotations["note"] = src.Annotations["note"]
	}
	if !contains(got.Labels, wantLabels) || !contains(got.Annotations, wantAnnotations) {
		t.Errorf("%s: got labels %v, annotations %v, want among them %v and %v", home, got.Labels, got.Annotations,
			wantLabels, wantAnnotations)
	}
	if before == nil && len(got.Labels) != len(wantLabels) {
		t.Errorf("%s: got labels %v, want %v", home, got.Labels, wantLabels)
	}
	if len(got.OwnerReferences) > 0 || got.Annotations["/payload"] != "" {
		t.Errorf("%s: got %v", home, got.ObjectMeta)
	}
	if before == nil && len(got.Finalizers) > 0 {
		t.Errorf("%s: got finalizers %v, want none", home, got.Finalizers)
	}
}

// contains reports whether all has every entry of some.
func contains(all, some texts) bool {
	for k, v := range some {
		if got, ok := all[k]; !ok || got != v {
			return false
		}
	}
	return true
}
