package mirror

import (
	"slices"
	"strings"
)

// Keys that never travel from a source to its copies, whatever the flags list. GitOps tools prune what
// carries their marks, injectors rewrite it for ever, and other replicators copy it on. They are listed as
// each tool documents them; besides them, the keys of our own Domain and the mirror label stay.
var (
	stayingKeys = map[string]bool{
		ManagedByLabel:                                true,
		"app.kubernetes.io/instance":                  true, // Argo CD's default mark
		"config.k8s.io/owning-inventory":              true, // kpt
		"config.openshift.io/inject-trusted-cabundle": true,
		"service.beta.openshift.io/inject-cabundle":   true,
		"clustersecret.io":                            true, // ClusterSecret
	}
	// stayingDomains are whole domains: every key "<domain>/…".
	stayingDomains = map[string]bool{
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
	// stayingSuffixes are the ends of domains, stayingPrefixes the beginnings of keys.
	stayingSuffixes = []string{".fluxcd.io", ".hnc.x-k8s.io"}
	stayingPrefixes = []string{"olm."} // Operator Lifecycle Manager
)

// keyPatterns are keys and, ending in '*', beginnings of keys.
type keyPatterns []string

func (p keyPatterns) match(key string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		stem, wild := strings.CutSuffix(pattern, "*")
		return key == pattern || wild && strings.HasPrefix(key, stem)
	})
}

// stays reports whether a label or annotation key never travels. label is the key of the mirror label.
func stays(key, label string) bool {
	if key == label || stayingKeys[key] {
		return true
	}
	if domain, _, found := strings.Cut(key, "/"); found {
		endsSo := func(suffix string) bool { return strings.HasSuffix(domain, suffix) }
		if stayingDomains[domain] || slices.ContainsFunc(stayingSuffixes, endsSo) {
			return true
		}
	}
	return slices.ContainsFunc(stayingPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// travelling returns those of the labels or annotations of a source that the patterns select and that may
// travel; nil if there are none.
func travelling(metadata map[string]string, patterns keyPatterns, label string) map[string]string {
	var out map[string]string
	if len(patterns) == 0 {
		return nil
	}
	for k, v := range metadata {
		if !patterns.match(k) || stays(k, label) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

// The value of the copied annotation is a comma-separated list of keys, each behind what it is a key of.
const (
	copiedLabel      = "label:"
	copiedAnnotation = "annotation:"
)

// copiedList returns the value of the copied annotation for these labels and annotations; empty if there are
// none.
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

// copiedKeys reads the value of a copied annotation. Items that are not in the form of copiedList, and keys
// that never travel, are passed over: nobody can make us remove those by editing the annotation.
func copiedKeys(list, label string) (labels, annotations []string) {
	for item := range strings.SplitSeq(list, ",") {
		if k, ok := strings.CutPrefix(item, copiedLabel); ok && !stays(k, label) {
			labels = append(labels, k)
		}
		if k, ok := strings.CutPrefix(item, copiedAnnotation); ok && !stays(k, label) {
			annotations = append(annotations, k)
		}
	}
	return labels, annotations
}
