package plan

import (
	"slices"
	"strings"
)

// neverCopiedKeys are patterns of the label and annotation keys that are never
// copied, besides the mirror label. GitOps tools delete objects that carry their
// keys, injectors rewrite such objects forever, and other replicators copy them
// on. Each tool documents its keys.
var neverCopiedKeys = []string{
	ManagedByLabel,
	Domain + "/*",

	// GitOps tools and package managers.
	"app.kubernetes.io/instance", // of Argo CD
	"applyset.kubernetes.io/*",
	"argocd.argoproj.io/*",
	"config.k8s.io/owning-inventory",
	"configmanagement.gke.io/*",
	"configsync.gke.io/*",
	"fleet.cattle.io/*",
	"fluxcd.io/*",
	"*.fluxcd.io/*",
	"helm.sh/*",
	"kapp.k14s.io/*",
	"kubectl.kubernetes.io/*",
	"meta.helm.sh/*",
	"objectset.rio.cattle.io/*",
	"olm.*", // of Operator Lifecycle Manager
	"operators.coreos.com/*",

	// Injectors of certificates.
	"config.openshift.io/inject-trusted-cabundle",
	"service.beta.openshift.io/inject-cabundle",

	// Other replicators.
	"clustersecret.io",
	"clustersecret.io/*",
	"generate.kyverno.io/*",
	"hnc.x-k8s.io/*",
	"*.hnc.x-k8s.io/*",
	"kubed.appscode.com/*", // of config-syncer
	"reflector.v1.k8s.emberstack.com/*",
	"replicator.nadundesilva.github.io/*",
	"replicator.v1.mittwald.de/*",
	"trust.cert-manager.io/*",
	"v1.kubernetes-replicator.olli.com/*",
}

// fluxWatch may be copied, although a pattern matches it: by this label Flux
// notices a change of a ConfigMap, and deletes nothing.
const fluxWatch = "reconcile.fluxcd.io/watch"

// matches reports whether the pattern is the key, or the beginning of the key
// followed by '*'. A pattern of neverCopiedKeys may begin with '*', too.
func matches(pattern, key string) bool {
	stem, isPrefix := strings.CutSuffix(pattern, "*")
	if domain, isSuffix := strings.CutPrefix(stem, "*"); isSuffix {
		return strings.Contains(key, domain)
	}
	return key == pattern || isPrefix && strings.HasPrefix(key, stem)
}

// matchKey reports whether one of the patterns matches the key.
func matchKey(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, key) })
}

// neverCopiedBy returns the pattern by which a label or annotation key is never
// copied; empty if it may be copied. label is the key of the mirror label.
func neverCopiedBy(key, label string) (pattern string) {
	if key == label {
		return key
	}
	i := slices.IndexFunc(neverCopiedKeys, func(pattern string) bool {
		return matches(pattern, key)
	})
	if i < 0 || key == fluxWatch {
		return ""
	}
	return neverCopiedKeys[i]
}

// selectCopied returns the labels or annotations of a source that the patterns
// select and that may be copied; nil if there are none.
func selectCopied(metadata map[string]string, patterns []string, label string) map[string]string {
	var keys []string
	for k := range metadata {
		if matchKey(patterns, k) && neverCopiedBy(k, label) == "" {
			keys = append(keys, k)
		}
	}
	return only(metadata, keys...)
}

// The value of the copied annotation is a comma-separated list of keys, each with
// one of these prefixes, such as "annotation:note,label:app".
const (
	labelItem      = "label:"
	annotationItem = "annotation:"
)

// copiedList returns the value of the copied annotation for these labels and
// annotations; empty if there are none.
func copiedList(labels, annotations map[string]string) string {
	var items []string
	for k := range labels {
		items = append(items, labelItem+k)
	}
	for k := range annotations {
		items = append(items, annotationItem+k)
	}
	slices.Sort(items)
	return strings.Join(items, ",")
}

// copiedKeys parses the value of a copied annotation, which may name a key twice.
// It skips malformed items and keys that are never copied: an edit of the
// annotation must not make the controller remove those.
func copiedKeys(list, label string) (labels, annotations []string) {
	for item := range strings.SplitSeq(list, ",") {
		kind, key, isItem := strings.Cut(item, ":")
		switch {
		case !isItem, neverCopiedBy(key, label) != "":
		case kind+":" == labelItem:
			labels = append(labels, key)
		case kind+":" == annotationItem:
			annotations = append(annotations, key)
		}
	}
	return labels, annotations
}
