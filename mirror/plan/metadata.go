package plan

import (
	"slices"
	"strings"
)

// Keys that are never copied, besides the mirror label. GitOps tools delete objects that carry their keys, injectors
// rewrite such objects forever, and other replicators copy them on. Each tool documents its keys.
var (
	neverCopiedKeys = []string{
		ManagedByLabel, "app.kubernetes.io/instance", "config.k8s.io/owning-inventory", "clustersecret.io",
		"config.openshift.io/inject-trusted-cabundle", "service.beta.openshift.io/inject-cabundle",
	}
	// neverCopiedDomains cover every key "<domain>/…".
	neverCopiedDomains = []string{
		Domain, "applyset.kubernetes.io", "kubectl.kubernetes.io", "argocd.argoproj.io", "fluxcd.io", "fleet.cattle.io",
		"objectset.rio.cattle.io", "helm.sh", "meta.helm.sh", "kapp.k14s.io", "configmanagement.gke.io",
		"configsync.gke.io", "operators.coreos.com", "hnc.x-k8s.io", "generate.kyverno.io", "trust.cert-manager.io",
		"clustersecret.io", "kubed.appscode.com" /* config-syncer */, "replicator.v1.mittwald.de",
		"reflector.v1.k8s.emberstack.com", "replicator.nadundesilva.github.io", "v1.kubernetes-replicator.olli.com",
	}
	neverCopiedSuffixes = []string{".fluxcd.io", ".hnc.x-k8s.io"} // of domains
)

const (
	neverCopiedPrefix = "olm." // of keys of Operator Lifecycle Manager
	// fluxWatch may be copied: by this label Flux notices a change of a ConfigMap, and deletes nothing.
	fluxWatch = "reconcile.fluxcd.io/watch"
)

// matchKey reports whether a pattern matches the key: it is the key, or the beginning of it followed by '*'.
func matchKey(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		stem, wild := strings.CutSuffix(pattern, "*")
		return key == pattern || wild && strings.HasPrefix(key, stem)
	})
}

// neverCopiedBy returns the rule by which a label or annotation key is never copied; empty if it may be copied. label
// is the key of the mirror label.
func neverCopiedBy(key, label string) (rule string) {
	if key == label || slices.Contains(neverCopiedKeys, key) {
		return key
	}
	if domain, _, found := strings.Cut(key, "/"); found && key != fluxWatch {
		if slices.Contains(neverCopiedDomains, domain) {
			return domain + "/*"
		}
		for _, suffix := range neverCopiedSuffixes {
			if strings.HasSuffix(domain, suffix) {
				return "*" + suffix + "/*"
			}
		}
	}
	if strings.HasPrefix(key, neverCopiedPrefix) {
		return neverCopiedPrefix + "*"
	}
	return ""
}

// neverCopied reports whether a label or annotation key is never copied.
func neverCopied(key, label string) bool { return neverCopiedBy(key, label) != "" }

// selectCopied returns the labels or annotations of a source that the patterns select and that may be copied; nil if
// there are none.
func selectCopied(metadata map[string]string, patterns []string, label string) map[string]string {
	var keys []string
	for k := range metadata {
		if matchKey(patterns, k) && !neverCopied(k, label) {
			keys = append(keys, k)
		}
	}
	return only(metadata, keys...)
}

// The value of the copied annotation is a comma-separated list of keys, each with one of these prefixes.
const (
	copiedLabel      = "label:"
	copiedAnnotation = "annotation:"
)

// copiedList returns the value of the copied annotation for these labels and annotations; empty if there are none.
func copiedList(labels, annotations map[string]string) string {
	var items []string
	for k := range labels {
		items = append(items, copiedLabel+k)
	}
	for k := range annotations {
		items = append(items, copiedAnnotation+k)
	}
	slices.Sort(items)
	return strings.Join(items, ",")
}

// copiedKeys parses the value of a copied annotation, and returns each key once. It skips malformed items and keys that
// are never copied: an edit of the annotation must not make the controller remove those.
func copiedKeys(list, label string) (labels, annotations []string) {
	for item := range strings.SplitSeq(list, ",") {
		if k, ok := strings.CutPrefix(item, copiedLabel); ok && !neverCopied(k, label) {
			labels = append(labels, k)
		}
		if k, ok := strings.CutPrefix(item, copiedAnnotation); ok && !neverCopied(k, label) {
			annotations = append(annotations, k)
		}
	}
	slices.Sort(labels)
	slices.Sort(annotations)
	return slices.Compact(labels), slices.Compact(annotations)
}
