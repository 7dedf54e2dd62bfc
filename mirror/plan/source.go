package plan

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Source is a parsed ConfigMap that asks to be mirrored: what its copies hold and where they belong.
type Source struct {
	ConfigMap *corev1.ConfigMap
	Key       types.NamespacedName

	// OutOfScope is set if the flags do not allow the ConfigMap to be a source. It has no targets then, but another
	// controller, or this one with other flags, may have made copies.
	OutOfScope bool
	// Reserved is set if another controller writes ConfigMaps of this name. It has no targets then.
	Reserved bool
	// Frozen is the parse error of the source's annotations. Until they are fixed nothing is done for the source.
	Frozen error
	// Checksum is the value of the checksum annotation of a copy in sync.
	Checksum string
	// Bytes is the size of the payload: the keys and values of data and binaryData.
	Bytes int

	platform bool // its own namespace cannot be a target

	prefixes []string             // of the source's annotation; nil: no annotation
	selector labels.Selector      // of the source's annotation; matches everything if there is none
	quoted   map[Exclusion]string // these annotations, in words
	rollout  labels.Selector      // of the source's annotation; nil: no annotation
	paused   bool                 // by the source's annotation

	payload     digest
	labels      map[string]string // copied
	annotations map[string]string // copied
	copied      string            // value of the copied annotation of a copy; empty: none
}

// ParseSource parses a ConfigMap for which AsksToBeMirrored holds. It keeps cm and does not change it.
func (r *Rules) ParseSource(cm *corev1.ConfigMap) *Source {
	if !r.AllowsSource(cm.Namespace) { // it has no targets: nothing else matters
		return &Source{ConfigMap: cm, Key: KeyOf(cm), OutOfScope: true, Reserved: Reserved(cm.Name),
			platform: !r.AllowsTarget(cm.Namespace), selector: labels.Nothing()}
	}
	s := &Source{
		ConfigMap:   cm,
		Key:         KeyOf(cm),
		Reserved:    Reserved(cm.Name),
		platform:    !r.AllowsTarget(cm.Namespace),
		Bytes:       payloadBytes(cm),
		payload:     payloadDigest(cm),
		labels:      selectCopied(cm.Labels, r.copyLabels, r.label),
		annotations: selectCopied(cm.Annotations, r.copyAnnotations, r.label),
	}
	s.Checksum = checksum(s.payload, s.labels, s.annotations)
	s.copied = copiedList(s.labels, s.annotations)
	s.Frozen = s.parseAnnotations()
	s.quoted = map[Exclusion]string{
		ExcludedByPrefix:   quoteAnnotation(cm, PrefixAnnotation),
		ExcludedBySelector: quoteAnnotation(cm, SelectorAnnotation),
	}
	return s
}

// maxQuoted is how many bytes of an annotation a text quotes.
const maxQuoted = 200

func quoteAnnotation(cm *corev1.ConfigMap, key string) string {
	value, found := cm.Annotations[key]
	if !found {
		return ""
	}
	return fmt.Sprintf("%s=%q", key, clip(value))
}

// Payload returns the digest of data, binaryData and immutable, as "sha256:" and hex digits.
func (s *Source) Payload() string { return "sha256:" + hex.EncodeToString([]byte(s.payload)) }

func payloadBytes(cm *corev1.ConfigMap) (n int) {
	for k, v := range cm.Data {
		n += len(k) + len(v)
	}
	for k, v := range cm.BinaryData {
		n += len(k) + len(v)
	}
	return n
}

// KeyOf returns the namespace and name of a ConfigMap.
func KeyOf(cm *corev1.ConfigMap) types.NamespacedName {
	return types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}
}

// maxAnnotation bounds an annotation with which a source narrows or holds its targets, in bytes. A selector of 256 KiB
// takes megabytes of memory, and a millisecond for each namespace.
const maxAnnotation = 4 << 10

// parseAnnotations parses the annotations with which a source narrows or holds its targets. The error joins every
// problem, each in words for the owner of the source. Before it parses, it says which annotation of ours is not known
// or too long.
func (s *Source) parseAnnotations() error {
	s.selector = labels.Everything()
	annotations := s.ConfigMap.Annotations
	errs := []error{checkKnown(annotations)}
	for _, key := range sourceAnnotations {
		if n := len(annotations[key]); n > maxAnnotation {
			errs = append(errs, fmt.Errorf("annotation %s: has %d bytes, must have at most %d", key, n, maxAnnotation))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if value, ok := annotations[PrefixAnnotation]; ok {
		errs = append(errs, s.parsePrefixes(value))
	}
	errs = append(errs, parseSelector(annotations, SelectorAnnotation, &s.selector),
		parseSelector(annotations, RolloutAnnotation, &s.rollout))
	value, ok := annotations[PausedAnnotation]
	if s.paused = value == PausedValue; ok && !s.paused {
		errs = append(errs, fmt.Errorf("annotation %s=%q: must be %q; to go on, remove the annotation",
			PausedAnnotation, clip(value), PausedValue))
	}
	return errors.Join(errs...)
}

// parsePrefixes returns an error about the first prefix that is malformed: the annotation may hold thousands.
func (s *Source) parsePrefixes(value string) error {
	for p := range strings.SplitSeq(value, ",") {
		p = strings.TrimSpace(p)
		problem := checkNamespacePrefix(p)
		if p == "" {
			problem += "; remove the annotation for all targets"
		}
		if problem != "" {
			return fmt.Errorf("annotation %s=%q: prefix %q: %s", PrefixAnnotation, value, p, problem)
		}
		s.prefixes = append(s.prefixes, p)
	}
	return nil
}

// parseSelector sets selector, if the annotation is there.
func parseSelector(annotations map[string]string, key string, selector *labels.Selector) error {
	value, ok := annotations[key]
	if !ok {
		return nil
	}
	parsed, err := labels.Parse(value)
	if err != nil {
		return fmt.Errorf("annotation %s=%q: not a label selector: %w", key, value, err)
	}
	*selector = parsed
	return nil
}

// Holds reports whether an annotation of the source holds the target in the namespace: it stays as it is.
func (s *Source) Holds(ns *corev1.Namespace) bool {
	return s.paused || s.rollout != nil && !s.rollout.Matches(labels.Set(ns.Labels))
}

// HeldBy returns which annotation of the source holds targets, "paused" or "rollout"; empty if it has none. Of both,
// paused wins.
func (s *Source) HeldBy() string {
	switch {
	case s.paused:
		return "paused"
	case s.rollout != nil:
		return "rollout"
	}
	return ""
}

// Hold returns the annotation that holds targets, as key="value", and what to do to reach them. The source has such an
// annotation.
func (s *Source) Hold() (by, remedy string) {
	by = quoteAnnotation(s.ConfigMap, Domain+"/"+s.HeldBy())
	if s.paused && s.rollout != nil {
		return by + ", which wins over " + quoteAnnotation(s.ConfigMap, RolloutAnnotation), "remove both annotations"
	}
	return by, "remove the annotation"
}

// Exclusion is the first rule that keeps a source from a namespace.
type Exclusion int

// The rules.
const (
	NotExcluded                 Exclusion = iota
	SourceGone                            // no ConfigMap of that key asks to be mirrored
	ExcludedSource                        // the source is out of scope of the flags, has a reserved name, or is frozen
	ExcludedName                          // --namespace-prefix does not allow the namespace, or it is the source's own
	ExcludedExplicitly                    // --exclude-namespace names the namespace
	ExcludedByPrefix                      // by the annotation of the source
	ExcludedTerminating                   // the namespace is being deleted
	ExcludedByOptOut                      // by the label of the namespace
	ExcludedBySelector                    // by the annotation of the source
	ExcludedByNamespaceSelector           // by the flag
)

// byLabels reports whether only labels, or the deletion, of the namespace keep the source from it.
func (e Exclusion) byLabels() bool { return e > ExcludedByPrefix }

// Exclusion returns what keeps the source from the namespace.
func (r *Rules) Exclusion(s *Source, ns *corev1.Namespace) Exclusion {
	switch {
	case s.OutOfScope || s.Reserved || s.Frozen != nil:
		return ExcludedSource
	case ns.Name == s.Key.Namespace:
		return ExcludedName
	case !r.AllowsTarget(ns.Name):
		return r.nameExclusion(ns.Name)
	case !s.SelectsName(ns):
		return ExcludedByPrefix
	case Terminating(ns):
		return ExcludedTerminating
	case ns.Labels[r.label] == OptOutValue:
		return ExcludedByOptOut
	case !s.SelectsLabels(ns):
		return ExcludedBySelector
	case !r.Selects(ns):
		return ExcludedByNamespaceSelector
	}
	return NotExcluded
}

// SelectsName reports whether the annotation with prefixes, if there is one, allows the name of the namespace.
func (s *Source) SelectsName(ns *corev1.Namespace) bool {
	return s.prefixes == nil || hasAnyPrefix(ns.Name, s.prefixes)
}

// SelectsLabels reports whether the annotation with a selector, if there is one, matches the labels of the namespace.
func (s *Source) SelectsLabels(ns *corev1.Namespace) bool {
	return s.selector.Matches(labels.Set(ns.Labels))
}

// Loss is why no source claims a copy, as it was judged.
type Loss struct {
	Rule Exclusion
	// Annotation is the annotation of the source by which Rule excludes the namespace, as key="value".
	Annotation string
}

// loss returns why s, nil if it is gone, has no copy in the namespace. scope is the scope of that copy.
func (r *Rules) loss(s *Source, scope Exclusion, ns *corev1.Namespace) Loss {
	switch {
	case scope != NotExcluded:
		return Loss{Rule: scope}
	case s == nil:
		return Loss{Rule: SourceGone}
	}
	return s.lossBy(r.Exclusion(s, ns))
}

func (s *Source) lossBy(rule Exclusion) Loss { return Loss{rule, s.quoted[rule]} }

// compareSources orders sources of one name, the winner first. A source whose namespace cannot be a target comes first:
// a tenant must not outrank the platform by being older. Then the older source wins, then the smaller key.
func compareSources(a, b *Source) int {
	if a.platform != b.platform {
		if a.platform {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.ConfigMap.CreationTimestamp.Compare(b.ConfigMap.CreationTimestamp.Time),
		strings.Compare(a.Key.Namespace, b.Key.Namespace),
	)
}

// View is everything about the sources of one name that the decision about a target depends on.
type View struct {
	// Sources are the sources that the flags allow, the winner first.
	Sources []*Source
	// OutOfScope are the ConfigMaps that ask to be mirrored and that the flags do not allow.
	OutOfScope []*Source
}

// NewView sorts parsed sources of one name into a view.
func NewView(sources []*Source) *View {
	v := &View{}
	for _, s := range slices.SortedFunc(slices.Values(sources), compareSources) {
		if s.OutOfScope {
			v.OutOfScope = append(v.OutOfScope, s)
		} else {
			v.Sources = append(v.Sources, s)
		}
	}
	return v
}

// All returns the sources of the view, also those out of scope.
func (v *View) All() []*Source {
	if len(v.OutOfScope) == 0 {
		return v.Sources
	}
	return slices.Concat(v.Sources, v.OutOfScope)
}

// Find returns the source with this key, or nil. It does not find sources that are out of scope.
func (v *View) Find(key types.NamespacedName) *Source { return find(v.Sources, key) }

// FindAny returns the source with this key, also one that is out of scope, or nil.
func (v *View) FindAny(key types.NamespacedName) *Source { return find(v.All(), key) }

func find(sources []*Source, key types.NamespacedName) *Source {
	for _, s := range sources {
		if s.Key == key {
			return s
		}
	}
	return nil
}
