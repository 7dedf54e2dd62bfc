package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// source is a ConfigMap that asks to be mirrored, read once: what its copies hold and where they belong.
type source struct {
	cm  *corev1.ConfigMap
	key cache.ObjectName

	// outside is set if the flags do not let it be a source. It has no targets, but may have copies, by the hand of
	// another controller or of an earlier start.
	outside bool
	// reserved is set if the name is one that another controller writes into every namespace: no target.
	reserved bool
	// frozen is why the source's own narrowing cannot be read; until it is mended nothing is done for it.
	frozen error
	// platform is set if the source lives where the flags allow no copies.
	platform bool

	prefixes []string        // narrowing by the source; nil: none
	selector labels.Selector // narrowing by the source; matches all if there is none

	payload     digest
	labels      map[string]string // what travels
	annotations map[string]string // what travels
	checksum    string            // value of the checksum annotation of a copy
	copied      string            // value of the copied annotation of a copy; empty: none
}

// readSource reads a ConfigMap for which asksToBeMirrored holds. It keeps cm, and modifies nothing in it.
func (r *rules) readSource(cm *corev1.ConfigMap) *source {
	s := &source{
		cm:          cm,
		key:         cache.MetaObjectToName(cm),
		outside:     !r.allowsSource(cm.Namespace),
		reserved:    reservedNames[cm.Name],
		platform:    !r.allowsTarget(cm.Namespace),
		payload:     payloadDigest(cm),
		labels:      travelling(cm.Labels, r.copyLabels, r.label),
		annotations: travelling(cm.Annotations, r.copyAnnotations, r.label),
	}
	s.checksum = checksum(s.payload, s.labels, s.annotations)
	s.copied = copiedList(s.labels, s.annotations)
	s.prefixes, s.selector, s.frozen = readNarrowing(cm.Annotations)
	return s
}

// readNarrowing reads the annotations by which a source narrows its targets. The error joins all that is
// malformed, each in words for the owner of the source.
func readNarrowing(annotations map[string]string) (prefixes []string, selector labels.Selector, err error) {
	selector = labels.Everything()
	var errs []error
	if value, ok := annotations[PrefixAnnotation]; ok {
		for p := range strings.SplitSeq(value, ",") {
			p = strings.TrimSpace(p)
			if problem := checkNamespacePrefix(p); problem != "" {
				errs = append(errs, fmt.Errorf("annotation %s=%q: prefix %q: %s", PrefixAnnotation, value, p, problem))
				break // one is enough to be mended: the annotation may hold thousands
			}
			prefixes = append(prefixes, p)
		}
	}
	if value, ok := annotations[SelectorAnnotation]; ok {
		parsed, parseErr := labels.Parse(value)
		if parseErr != nil {
			errs = append(errs, fmt.Errorf("annotation %s=%q: not a label selector: %w", SelectorAnnotation, value, parseErr))
		} else {
			selector = parsed
		}
	}
	return prefixes, selector, errors.Join(errs...)
}

// claims reports whether the source wants a copy in the namespace, by the flags, the namespace's own
// say and the source's narrowing.
func (s *source) claims(r *rules, ns *corev1.Namespace) bool {
	return s.claimsName(r, ns.Name) && r.accepts(ns) && s.selector.Matches(labels.Set(ns.Labels))
}

// claimsName is the part of claims that depends on the name of the namespace alone.
func (s *source) claimsName(r *rules, namespace string) bool {
	return !s.outside && !s.reserved && s.frozen == nil && namespace != s.key.Namespace && r.allowsTarget(namespace) &&
		(s.prefixes == nil || hasAnyPrefix(namespace, s.prefixes))
}

// compareSources orders sources of one name by precedence, the winner first: a source that lives where the
// flags allow no copies, so that a tenant cannot outrank the platform by being older; then the older; then
// the smaller key.
func compareSources(a, b *source) int {
	if a.platform != b.platform {
		if a.platform {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.cm.CreationTimestamp.Compare(b.cm.CreationTimestamp.Time),
		strings.Compare(a.key.Namespace, b.key.Namespace),
		strings.Compare(a.key.Name, b.key.Name),
	)
}

func sortSources(sources []*source) { slices.SortFunc(sources, compareSources) }
