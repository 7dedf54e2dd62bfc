package plan

import (
	"slices"
	"strings"
)

// Keys that are never copied, whatever the flags list. GitOps tools delete objects that carry their keys, injectors
// rewrite such objects forever, and other replicators copy them on. Each tool documents its keys. Our own Domain and
// the mirror label are never copied either. Of Flux's keys [fluxWatch] may be copied.
var (
	neverCopiedKeys = map[string]bool{
		ManagedByLabel:                                true,
		"app.kubernetes.io/instance":                  true, // Argo CD's default
		"config.k8s.io/owning-inventory":              true, // kpt
		"config.openshift.io/inject-trusted-cabundle": true,
		"service.beta.openshift.io/inject-cabundle":   true,
		"clustersecret.io":                            true, // ClusterSecret
	}
	// neverCopiedDomains cover every key "<domain>/…".
	neverCopiedDomains = map[string]bool{
		Domain:                              true,
		"applyset.kubernetes.io":            true,
		"argocd.argoproj.io":                true,
		"clustersecret.io":                  true, // ClusterSecret
		"configmanagement.gke.io":           true,
		"configsync.gke.io":                 true,
		"fleet.cattle.io":                   true,
		"fluxcd.io":                         true,
		"generate.kyverno.io":               true, // Kyverno
		"helm.sh":                           true,
		"hnc.x-k8s.io":                      true,
		"kapp.k14s.io":                      true,
		"kubectl.kubernetes.io":             true,
		"kubed.appscode.com":                true, // config-syncer
		"meta.helm.sh":                      true,
		"objectset.rio.cattle.io":           true,
		"operators.coreos.com":              true,
		"reflector.v1.k8s.emberstack.com":   true, // kubernetes-reflector
		"replicator.nadundesilva.github.io": true, // k8s-replicator
		"replicator.v1.mittwald.de":         true, // kubernetes-replicator
		"trust.cert-manager.io":             true, // trust-manager
		"v1.kubernetes-replicator.olli.com": true, // a fork of kubernetes-replicator
	}
	// neverCopiedSuffixes are ends of domains, and neverCopiedPrefixes are beginnings of keys.
	neverCopiedSuffixes = []string{".fluxcd.io", ".hnc.x-k8s.io"}
	neverCopiedPrefixes = []string{"olm."} // Operator Lifecycle Manager
)

// keyPatterns are keys, or beginnings of keys that end in '*'.
type keyPatterns []string

func (p keyPatterns) match(key string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		stem, wild := strings.CutSuffix(pattern, "*")
		return key == pattern || wild && strings.HasPrefix(key, stem)
	})
}

// fluxWatch is the label by which Flux notices a change of a ConfigMap at once. It deletes nothing by it, so it may be
// copied.
const fluxWatch = "reconcile.fluxcd.io/watch"

// neverCopiedBy returns the rule by which a label or annotation key is never copied; empty if it may be copied. label
// is the key of the mirror label.
func neverCopiedBy(key, label string) (rule string) {
	if key == label || neverCopiedKeys[key] {
		return key
	}
	if domain, _, found := strings.Cut(key, "/"); found && key != fluxWatch {
		if neverCopiedDomains[domain] {
			return domain + "/*"
		}
		for _, suffix := range neverCopiedSuffixes {
			if strings.HasSuffix(domain, suffix) {
				return "*" + suffix + "/*"
			}
		}
	}
	for _, prefix := range neverCopiedPrefixes {
		if strings.HasPrefix(key, prefix) {
			return prefix + "*"
		}
	}
	return ""
}

// neverCopied reports whether a label or annotation key is never copied.
func neverCopied(key, label string) bool { return neverCopiedBy(key, label) != "" }

// selectCopied returns the labels or annotations of a source that the patterns select and that may be copied; nil if
// there are none.
func selectCopied(metadata map[string]string, patterns keyPatterns, label string) map[string]string {
	var out map[string]string
	if len(patterns) == 0 {
		return nil
	}
	for k, v := range metadata {
		if !patterns.match(k) || neverCopied(k, label) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
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

// copiedKeys parses the value of a copied annotation. It skips malformed items and keys that are never copied: an edit
// of the annotation must not make the controller remove those.
func copiedKeys(list, label string) (labels, annotations []string) {
	for item := range strings.SplitSeq(list, ",") {
		if k, ok := strings.CutPrefix(item, copiedLabel); ok && !neverCopied(k, label) {
			labels = append(labels, k)
		}
		if k, ok := strings.CutPrefix(item, copiedAnnotation); ok && !neverCopied(k, label) {
			annotations = append(annotations, k)
		}
	}
	return labels, annotations
}
