package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Source is a parsed ConfigMap that asks to be mirrored: what its copies hold and
// where they belong.
type Source struct {
	ConfigMap *corev1.ConfigMap
	Key       types.NamespacedName

	// OutOfScope is set if the flags do not allow the ConfigMap to be a source. It
	// has no targets then.
	OutOfScope bool
	// Reserved is set if another controller writes ConfigMaps of this name. It has
	// no targets then.
	Reserved bool
	// Frozen is the parse error of the annotations. Until they are fixed nothing is
	// done for the source.
	Frozen error
	// Checksum is the value of the checksum annotation of a copy in sync.
	Checksum string
	// Bytes is the size of the payload: the keys and values of data and binaryData.
	Bytes int

	// rank is the first thing that counts when sources of one name are ordered; the
	// least one wins. It is 1 if the flags allow its own namespace, by name, as a
	// target, and 2 if the source is out of scope, else 0.
	rank int

	// What the annotations of the source narrow and hold.
	prefixes []string          // nil: no annotation
	selector labels.Selector   // matches everything if there is no annotation
	rollout  labels.Selector   // nil: no annotation
	paused   bool              // false: no annotation
	quoted   map[string]string // each of these annotations by its key, as key="value"

	// What is copied.
	payload             digest
	labels, annotations map[string]string
	copied              string // the copied annotation of a copy; empty: none
}

// KeyOf returns the namespace and name of a ConfigMap.
func KeyOf(cm *corev1.ConfigMap) types.NamespacedName {
	return types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}
}

// ParseSource parses a ConfigMap for which AsksToBeMirrored holds. It keeps cm
// and does not change it. Of a source that is out of scope it parses nothing but
// the key: such a source has no targets.
func (r *Rules) ParseSource(cm *corev1.ConfigMap) *Source {
	s := &Source{
		ConfigMap:  cm,
		Key:        KeyOf(cm),
		OutOfScope: !r.AllowsSource(cm.Namespace),
		Reserved:   Reserved(cm.Name),
		selector:   labels.Everything(),
	}
	if r.AllowsTarget(cm.Namespace) {
		s.rank = 1
	}
	if s.OutOfScope {
		s.rank = 2
		return s
	}
	s.Bytes = sizeOf(cm.Data) + sizeOf(cm.BinaryData)
	s.payload = payloadDigest(cm)
	s.labels = selectCopied(cm.Labels, r.opts.CopyLabels, r.label)
	s.annotations = selectCopied(cm.Annotations, r.opts.CopyAnnotations, r.label)
	s.Checksum = checksum(s.payload, s.labels, s.annotations)
	s.copied = copiedList(s.labels, s.annotations)
	s.Frozen = s.parseAnnotations()
	return s
}

// sizeOf returns the size of the keys and values of a map, in bytes.
func sizeOf[V string | []byte](m map[string]V) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// maxAnnotation bounds an annotation with which a source narrows or holds its
// targets, in bytes: each namespace is compared with it.
const maxAnnotation = 4 << 10

// parseAnnotations parses the annotations with which a source narrows or holds
// its targets. The error joins every problem, the cause before the value.
func (s *Source) parseAnnotations() error {
	s.quoted = map[string]string{}
	errs := []error{checkKnown(s.ConfigMap.Annotations)}
	for _, key := range sourceAnnotations {
		value, found := s.ConfigMap.Annotations[key]
		if !found {
			continue
		}
		s.quoted[key] = quoteAnnotation(key, value)
		if problem := s.parse(key, value); problem != "" {
			errs = append(errs,
				fmt.Errorf("annotation %s: %s; it is %q", key, problem, Clip(value, maxQuoted)))
		}
	}
	return errors.Join(errs...)
}

// checkKnown returns an error that names the first annotation of our Domain that
// is not known. A typing error may have been to narrow or hold the targets, and
// so may an annotation of a newer version.
func checkKnown(annotations map[string]string) error {
	known := slices.Concat(sourceAnnotations, ourAnnotations)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, Domain+"/") && !slices.Contains(known, key) {
			return fmt.Errorf("annotation %s: is not known; a source can have %s",
				key, strings.Join(sourceAnnotations, ", "))
		}
	}
	return nil
}

// parse sets what the annotation with this key and value narrows or holds, or
// returns what is wrong with the value.
func (s *Source) parse(key, value string) (problem string) {
	if len(value) > maxAnnotation {
		return fmt.Sprintf("has %d bytes, must have at most %d", len(value), maxAnnotation)
	}
	switch key {
	case PrefixAnnotation:
		return s.parsePrefixes(value)
	case PausedAnnotation:
		s.paused = value == PausedValue
		if !s.paused {
			return fmt.Sprintf("must be %q; to go on, remove the annotation", PausedValue)
		}
		return ""
	}
	selector, err := labels.Parse(value)
	switch {
	case err != nil:
		return "not a label selector: " + withoutMiddle(err.Error())
	case key == SelectorAnnotation:
		s.selector = selector
	default:
		s.rollout = selector
	}
	return ""
}

// parsePrefixes returns what is wrong with the first prefix that is malformed:
// the annotation may hold thousands.
func (s *Source) parsePrefixes(value string) (problem string) {
	for p := range strings.SplitSeq(value, ",") {
		p = strings.TrimSpace(p)
		problem := checkNamespacePrefix(p)
		switch {
		case p == "":
			return "a prefix " + problem + "; remove the annotation for all targets: \"\""
		case problem != "":
			return fmt.Sprintf("a prefix %s: %q", problem, Clip(p, maxQuoted))
		}
		s.prefixes = append(s.prefixes, p)
	}
	return ""
}

// Holds reports whether an annotation of the source holds the target in the
// namespace: it stays as it is.
func (s *Source) Holds(ns *corev1.Namespace) bool {
	return s.paused || s.rollout != nil && !s.rollout.Matches(labels.Set(ns.Labels))
}

// HeldBy returns which annotation of the source holds targets, "paused" or
// "rollout"; empty if it has none. Of both, paused wins.
func (s *Source) HeldBy() string {
	switch {
	case s.paused:
		return "paused"
	case s.rollout != nil:
		return "rollout"
	}
	return ""
}

// Hold returns the annotation that holds targets, as key="value", and what to do
// to reach them. The source has such an annotation.
func (s *Source) Hold() (by, remedy string) {
	by = s.quoted[Domain+"/"+s.HeldBy()]
	if s.paused && s.rollout != nil {
		return by + ", which wins over " + s.quoted[RolloutAnnotation], "remove both annotations"
	}
	return by, "remove the annotation"
}

// View is everything about the sources of one name that the decision about a
// target depends on.
type View struct {
	Sources []*Source // those that the flags allow, the winner first
	All     []*Source // these, and behind them those that the flags do not allow
}

// NewView sorts parsed sources of one name into a view.
func NewView(sources []*Source) *View {
	all := slices.SortedFunc(slices.Values(sources), compareSources)
	isOutOfScope := func(s *Source) bool { return s.OutOfScope }
	return &View{All: all, Sources: slices.DeleteFunc(slices.Clone(all), isOutOfScope)}
}

// compareSources orders sources of one name, the winner first. A source in a
// namespace that can be a target comes last: a tenant must not outrank the
// platform by being older.
func compareSources(a, b *Source) int {
	return cmp.Or(
		cmp.Compare(a.rank, b.rank),
		a.ConfigMap.CreationTimestamp.Compare(b.ConfigMap.CreationTimestamp.Time),
		strings.Compare(a.Key.Namespace, b.Key.Namespace),
	)
}

// Find returns the source with this key, also one that is out of scope, or nil.
func (v *View) Find(key types.NamespacedName) *Source {
	for _, s := range v.All {
		if s.Key == key {
			return s
		}
	}
	return nil
}
