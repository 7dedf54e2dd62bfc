package main

// The contract once more, as far as the judge needs it, without package plan: a mistake there is no mistake here.

import (
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
)

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

func immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

var prefix = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*$`)

// narrowing returns the prefixes by which a source narrows its targets. An annotation that is malformed freezes the source.
func narrowing(cm *corev1.ConfigMap) (list []string, frozen bool) {
	paused, held := cm.Annotations[domain+"paused"]
	frozen = held && paused != "true"
	value, narrowed := cm.Annotations[domain+"namespace-prefix"]
	if !narrowed {
		return []string{""}, frozen
	}
	list = strings.Split(value, ",")
	return list, frozen || slices.ContainsFunc(list, func(p string) bool { return !prefix.MatchString(p) })
}

func frozen(cm *corev1.ConfigMap) bool {
	_, frozen := narrowing(cm)
	return isSource(cm) && frozen
}

// holds reports whether an annotation of the source holds the target in the namespace.
func holds(cm *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if !isSource(cm) || ns == nil {
		return false
	}
	tier, staged := cm.Annotations[domain+"rollout"]
	return cm.Annotations[domain+"paused"] == "true" || staged && "tier="+ns.Labels["tier"] != tier
}

func terminating(ns *corev1.Namespace) bool { return ns.DeletionTimestamp != nil }

func hasPrefix(name string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(name, p) })
}

// flags are those of the controller.
type flags struct{ plan.Options }

// allows reports whether the flags allow copies in a namespace of this name.
func (f flags) allows(namespace string) bool { return hasPrefix(namespace, f.NamespacePrefixes) }

// selects reports whether the flags allow copies in a namespace with these labels.
func (f flags) selects(ns *corev1.Namespace) bool {
	selector, err := labels.Parse(f.NamespaceSelector)
	return err == nil && selector.Matches(labels.Set(ns.Labels))
}

// claims reports whether cm is a source that asks for a copy in the namespace.
func (f flags) claims(cm *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if !isSource(cm) || ns == nil || ns.Name == cm.Namespace || !f.allows(ns.Name) {
		return false
	}
	list, frozen := narrowing(cm)
	return !frozen && hasPrefix(ns.Name, list) && !terminating(ns) && ns.Labels[mirrorLabel] != "false" && f.selects(ns)
}

// sameContent reports whether two ConfigMaps hold the same.
func sameContent(a, b *corev1.ConfigMap) bool {
	return equality.Semantic.DeepEqual(a.Data, b.Data) && equality.Semantic.DeepEqual(a.BinaryData, b.BinaryData) &&
		immutable(a) == immutable(b)
}
