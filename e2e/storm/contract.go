package main

// The contract once more, as far as the storm goes, without package plan: a mistake there is no mistake here.

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// key is the namespace and the name of a ConfigMap.
type key = types.NamespacedName

func keyOf(cm *corev1.ConfigMap) key { return key{Namespace: cm.Namespace, Name: cm.Name} }

const (
	mirrorLabel = "mirror"
	domain      = "mirror-controller.github.io/"
	copiedLabel = "team"
)

// known are the annotations of the domain that do not freeze a source.
var known = []string{"source", "copy", "checksum", "instance", "copied", "adopt", "namespace-prefix", "namespace-selector"}

// ownerOf returns the source of which cm is a copy of ours.
func ownerOf(cm *corev1.ConfigMap) (owner key, ours bool) {
	namespace, name, _ := strings.Cut(cm.Annotations[domain+"source"], "/")
	ours = namesItself(cm) && cm.Annotations[domain+"instance"] == "default" && name == cm.Name && namespace != cm.Namespace
	return key{Namespace: namespace, Name: name}, ours && namespace != ""
}

func namesItself(cm *corev1.ConfigMap) bool {
	return cm.Annotations[domain+"copy"] == keyOf(cm).String()
}

func isSource(cm *corev1.ConfigMap) bool {
	return cm != nil && cm.Labels[mirrorLabel] == "true" && !namesItself(cm) && cm.DeletionTimestamp == nil
}

// handedOver reports whether the owner of a foreign object lets the controller have it.
func handedOver(cm *corev1.ConfigMap) bool {
	return cm.Annotations[domain+"adopt"] == "true" && len(cm.Finalizers) == 0 && !isSource(cm) && !namesItself(cm)
}

func immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

var prefix = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*$`)

// prefixes returns those by which a source narrows its targets, none if it does not, and whether it is frozen.
func prefixes(cm *corev1.ConfigMap) (list []string, frozen bool) {
	for k := range cm.Annotations {
		if name, ours := strings.CutPrefix(k, domain); ours && !slices.Contains(known, name) {
			return nil, true
		}
	}
	value, narrowed := cm.Annotations[domain+"namespace-prefix"]
	if !narrowed {
		return []string{""}, false
	}
	list = strings.Split(value, ",")
	return list, slices.ContainsFunc(list, func(p string) bool { return !prefix.MatchString(p) })
}

func frozen(cm *corev1.ConfigMap) bool {
	_, frozen := prefixes(cm)
	return isSource(cm) && frozen
}

func terminating(ns *corev1.Namespace) bool { return ns.DeletionTimestamp != nil }

func hasPrefix(name string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(name, p) })
}

// flags are those of the controller.
type flags struct{ plan.Options }

// allows reports whether the flags allow copies in a namespace of this name.
func (f flags) allows(namespace string) bool { return hasPrefix(namespace, f.NamespacePrefixes) }

// claims reports whether cm is a source that asks for a copy in the namespace.
func (f flags) claims(cm *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if !isSource(cm) || ns == nil || ns.Name == cm.Namespace || !f.allows(ns.Name) {
		return false
	}
	list, frozen := prefixes(cm)
	selector, err := labels.Parse(f.NamespaceSelector)
	return err == nil && !frozen && hasPrefix(ns.Name, list) && !terminating(ns) && ns.Labels[mirrorLabel] != "false" &&
		selector.Matches(labels.Set(ns.Labels))
}

// outranks reports whether source a wins a target against source b.
func (f flags) outranks(a, b *corev1.ConfigMap) bool {
	switch ofPlatform := !f.allows(a.Namespace); {
	case ofPlatform != !f.allows(b.Namespace):
		return ofPlatform
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace < b.Namespace
}

// winner returns the source that has a place; nil if none claims it.
func (f flags) winner(w world, at key) (first *corev1.ConfigMap) {
	for k, cm := range w.ConfigMaps {
		if k.Name == at.Name && f.claims(cm, w.Namespaces[at.Namespace]) && (first == nil || f.outranks(cm, first)) {
			first = cm
		}
	}
	return first
}

// compare returns what is not as the contract says when all is quiet. blocked says that the prune limit blocks.
func (f flags) compare(w world, blocked bool) error {
	names := map[string]bool{}
	for k := range w.ConfigMaps {
		names[k.Name] = true
	}
	var errs []error
	for namespace, ns := range w.Namespaces {
		for name := range names {
			at := key{Namespace: namespace, Name: name}
			if why := f.wrong(w, at, blocked); why != "" && !terminating(ns) && !plan.Reserved(name) {
				errs = append(errs, fmt.Errorf("%s %s", at, why))
			}
		}
	}
	return errors.Join(errs...)
}

// wrong returns what is wrong in a place; empty if nothing is.
func (f flags) wrong(w world, at key, blocked bool) string {
	have, winner := w.ConfigMaps[at], f.winner(w, at)
	switch {
	case have == nil && winner != nil:
		return "is missing"
	case have == nil:
		return ""
	}
	owner, ours := ownerOf(have)
	source := w.ConfigMaps[owner]
	outOfScope := isSource(source) && !f.claims(source, w.Namespaces[at.Namespace]) && blocked
	switch {
	case !ours && winner != nil && handedOver(have):
		return "is not adopted"
	case !ours, source != nil && frozen(source):
		return ""
	case winner != nil:
		return differs(winner, have)
	case have.Labels[mirrorLabel] != "" && !outOfScope:
		return "is wanted by nobody"
	}
	return ""
}

// differs returns in which respect a copy is no copy of the source.
func differs(source, have *corev1.ConfigMap) string {
	marks := map[string]string{
		domain + "source": keyOf(source).String(), domain + "copy": keyOf(have).String(), domain + "instance": "default",
	}
	_, adopting := have.Annotations[domain+"adopt"]
	marked := !adopting && have.Labels[mirrorLabel] == "copy" &&
		have.Labels["app.kubernetes.io/managed-by"] == "mirror-controller"
	for k, v := range marks {
		marked = marked && have.Annotations[k] == v
	}
	switch {
	case !sameContent(source, have):
		return "has another content than " + keyOf(source).String()
	case !marked:
		return fmt.Sprintf("has the labels %v and annotations %v", have.Labels, slices.Sorted(maps.Keys(have.Annotations)))
	case source.Labels[copiedLabel] != "" && have.Labels[copiedLabel] != source.Labels[copiedLabel]:
		return "lacks a copied label"
	}
	return ""
}

func sameContent(a, b *corev1.ConfigMap) bool {
	return equality.Semantic.DeepEqual(a.Data, b.Data) && equality.Semantic.DeepEqual(a.BinaryData, b.BinaryData) &&
		immutable(a) == immutable(b)
}
