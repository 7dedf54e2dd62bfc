// Package model says, from the contract alone, what a cluster has to look like when all is quiet. It is an oracle
// for tests: it shares no code with package mirror, not even the names of its keys, so that a mistake there is
// no mistake here.
//
// What users put into the cluster, sources, namespaces and foreign objects, is its input. The marks on a copy are
// believed where the contract lets ownership hang on them, and nowhere else.
package model

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The keys and values of the contract.
const (
	Label      = "mirror" // on sources (Source), copies (CopyMark) and namespaces (OptOut)
	Source     = "true"
	CopyMark   = "copy"
	OptOut     = "false"
	ManagedBy  = "app.kubernetes.io/managed-by"
	Controller = "mirror-controller" // the value of ManagedBy

	domain             = "mirror-controller.github.io/"
	SourceAnnotation   = domain + "source"
	CopyAnnotation     = domain + "copy"
	ChecksumAnnotation = domain + "checksum"
	InstanceAnnotation = domain + "instance"
	CopiedAnnotation   = domain + "copied"
	AdoptAnnotation    = domain + "adopt"
	PrefixAnnotation   = domain + "namespace-prefix"
	SelectorAnnotation = domain + "namespace-selector"
)

// known are all annotations of the domain that a ConfigMap may have.
var known = []string{
	SourceAnnotation, CopyAnnotation, ChecksumAnnotation, InstanceAnnotation, CopiedAnnotation, AdoptAnnotation, PrefixAnnotation, SelectorAnnotation,
}

// reserved are the names that another controller writes into every namespace.
var reserved = []string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}

// Reserved reports whether ConfigMaps of this name are never mirrored.
func Reserved(name string) bool { return slices.Contains(reserved, name) }

// Key is the namespace and the name of a ConfigMap.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// KeyOf returns the key of cm.
func KeyOf(cm *corev1.ConfigMap) Key { return Key{cm.Namespace, cm.Name} }

// Flags are those of the controller, as far as the contract hangs on them.
type Flags struct {
	Prefixes         []string
	AllNamespaces    bool
	Selector         string   // of the labels of namespaces; none: all
	Excluded         []string // names, or prefixes ending in '*'
	SourceNamespaces []string // none: all
	CopyLabels       []string // keys, or prefixes ending in '*'
	CopyAnnotations  []string // likewise
	Instance         string
	PruneLimit       int           // percent
	Grace            time.Duration // for which a copy that no source claims stays
}

// AllowsTarget reports whether the flags allow copies in a namespace of this name. Labels do not count.
func (f Flags) AllowsTarget(namespace string) bool {
	return (f.AllNamespaces || hasPrefix(namespace, f.Prefixes)) && !matches(namespace, f.Excluded)
}

// selects reports whether the flags allow copies in a namespace with these labels.
func (f Flags) selects(ns *corev1.Namespace) bool {
	selector, err := labels.Parse(f.Selector)
	return err == nil && selector.Matches(labels.Set(ns.Labels))
}

func (f Flags) allowsSource(namespace string) bool {
	return len(f.SourceNamespaces) == 0 || slices.Contains(f.SourceNamespaces, namespace)
}

// Ours returns the source of which cm is a copy of ours, or false if cm is not ours.
func (f Flags) Ours(cm *corev1.ConfigMap) (Key, bool) {
	namespace, name, _ := strings.Cut(cm.Annotations[SourceAnnotation], "/")
	ours := namesItself(cm) && cm.Annotations[InstanceAnnotation] == f.Instance &&
		namespaceName.MatchString(namespace) && len(namespace) <= longestName && name == cm.Name && namespace != cm.Namespace
	return Key{namespace, name}, ours
}

// Names of namespaces, and their beginnings. None is longer than longestName.
var (
	namespaceName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	namespacePrefix = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*$`)
)

const longestName = 63

func namesItself(cm *corev1.ConfigMap) bool {
	return cm.Annotations[CopyAnnotation] == KeyOf(cm).String()
}

// Labelled reports whether cm carries the label by which the controller sees it.
func Labelled(cm *corev1.ConfigMap) bool {
	return cm.Labels[Label] == Source || cm.Labels[Label] == CopyMark
}

// Asks reports whether cm asks to be mirrored: whether it is a source for some flags.
func Asks(cm *corev1.ConfigMap) bool {
	return cm.Labels[Label] == Source && !namesItself(cm) && cm.DeletionTimestamp == nil
}

// IsSource reports whether cm is a source.
func (f Flags) IsSource(cm *corev1.ConfigMap) bool { return Asks(cm) && f.allowsSource(cm.Namespace) }

// OutOfScope reports whether a source asks for copies that the flags do not allow in a namespace of this name.
func (f Flags) OutOfScope(source *corev1.ConfigMap, namespace string) bool {
	return Asks(source) && !(f.allowsSource(source.Namespace) && f.AllowsTarget(namespace))
}

// Adoptable reports whether cm, which is not ours, was handed over by its owner, and can be adopted.
func (f Flags) Adoptable(cm *corev1.ConfigMap) bool {
	source := cm.Labels[Label] == Source && !namesItself(cm)
	another := namesItself(cm) && cm.Annotations[InstanceAnnotation] != f.Instance
	return cm.Annotations[AdoptAnnotation] == "true" && !source && !another && len(cm.Finalizers) == 0
}

// Frozen reports whether the narrowing of a source cannot be read, or has an annotation that is not known.
func Frozen(cm *corev1.ConfigMap) bool {
	_, _, ok := narrowing(cm)
	return !ok
}

// narrowing reads the annotations by which a source narrows its targets. Nil prefixes allow all.
func narrowing(cm *corev1.ConfigMap) (prefixes []string, selector labels.Selector, ok bool) {
	for k := range cm.Annotations {
		if strings.HasPrefix(k, domain) && !slices.Contains(known, k) {
			return nil, nil, false
		}
	}
	if list, there := cm.Annotations[PrefixAnnotation]; there {
		for p := range strings.SplitSeq(list, ",") {
			p = strings.TrimSpace(p)
			if !namespacePrefix.MatchString(p) || len(p) > longestName {
				return nil, nil, false // no namespace can begin so
			}
			prefixes = append(prefixes, p)
		}
	}
	selector, err := labels.Parse(cm.Annotations[SelectorAnnotation])
	return prefixes, selector, err == nil
}

// Claims reports whether cm is a source that wants a copy in the namespace.
func (f Flags) Claims(cm *corev1.ConfigMap, ns *corev1.Namespace) bool {
	return f.selects(ns) && f.claimsUnselected(cm, ns)
}

// Unselected reports whether only the selector of the flags keeps a source from the namespace.
func (f Flags) Unselected(cm *corev1.ConfigMap, ns *corev1.Namespace) bool {
	return !f.selects(ns) && f.claimsUnselected(cm, ns)
}

// claimsUnselected is Claims whatever the selector of the flags says.
func (f Flags) claimsUnselected(cm *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if !f.IsSource(cm) || Reserved(cm.Name) || ns.Name == cm.Namespace ||
		Terminating(ns) || !f.AllowsTarget(ns.Name) || ns.Labels[Label] == OptOut {
		return false
	}
	prefixes, selector, ok := narrowing(cm)
	return ok && (prefixes == nil || hasPrefix(ns.Name, prefixes)) && selector.Matches(labels.Set(ns.Labels))
}

// Terminating reports whether the namespace is being deleted.
func Terminating(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

// before reports whether source a has precedence over source b of the same name.
func (f Flags) before(a, b *corev1.ConfigMap) bool {
	platformA, platformB := !f.AllowsTarget(a.Namespace), !f.AllowsTarget(b.Namespace)
	switch {
	case platformA != platformB:
		return platformA
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Namespace < b.Namespace
}

// never are keys, and beginnings of keys, of labels and annotations that do not travel whatever the flags list.
var never = []string{
	Label, domain + "*", ManagedBy, "app.kubernetes.io/instance",
	"kubectl.kubernetes.io/*", "argocd.argoproj.io/*", "fluxcd.io/*", "meta.helm.sh/*", "helm.sh/*",
	"applyset.kubernetes.io/*", "config.k8s.io/owning-inventory", "kapp.k14s.io/*", "operators.coreos.com/*", "olm.*",
	"objectset.rio.cattle.io/*", "fleet.cattle.io/*", "configmanagement.gke.io/*", "configsync.gke.io/*",
	"hnc.x-k8s.io/*", "config.openshift.io/inject-trusted-cabundle", "service.beta.openshift.io/inject-cabundle",
}

// travels reports whether a key of a label or an annotation is copied by the patterns of a flag.
func travels(key string, patterns []string) bool {
	ownedByFlux, _, _ := strings.Cut(key, "/")
	return matches(key, patterns) && !matches(key, never) && !strings.HasSuffix(ownedByFlux, ".fluxcd.io")
}

// travelling returns what is copied of labels or annotations.
func travelling(of map[string]string, patterns []string) map[string]string {
	out := map[string]string{}
	for k, v := range of {
		if travels(k, patterns) {
			out[k] = v
		}
	}
	return out
}

// Carries reports whether a copy has the labels and annotations that travel from its source.
func (f Flags) Carries(of, source *corev1.ConfigMap) bool {
	return includes(of.Labels, travelling(source.Labels, f.CopyLabels)) &&
		includes(of.Annotations, travelling(source.Annotations, f.CopyAnnotations))
}

// The copied annotation lists keys, separated by commas, each behind what it is the key of.
const (
	labelItem      = "label:"
	annotationItem = "annotation:"
)

// Copied reads the copied annotation. Items of another form, which only others write, are passed over.
func Copied(list string) (labels, annotations []string) {
	for item := range strings.SplitSeq(list, ",") {
		if k, ok := strings.CutPrefix(item, labelItem); ok {
			labels = append(labels, k)
		}
		if k, ok := strings.CutPrefix(item, annotationItem); ok {
			annotations = append(annotations, k)
		}
	}
	return labels, annotations
}

// matches reports whether s is one of the patterns, or begins as one that ends in '*'.
func matches(s string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		stem, wild := strings.CutSuffix(p, "*")
		return s == p || wild && strings.HasPrefix(s, stem)
	})
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
