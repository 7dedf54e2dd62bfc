package plan

import (
	"errors"
	"fmt"
	"maps"
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

	// OutOfScope is set if the flags do not allow the ConfigMap to be a source. It has no targets then.
	OutOfScope bool
	Reserved   bool   // another controller writes ConfigMaps of this name; it has no targets then
	Frozen     error  // the parse error of the annotations; until they are fixed nothing is done for the source
	Checksum   string // the value of the checksum annotation of a copy in sync
	Bytes      int    // the size of the payload: the keys and values of data and binaryData

	rank     int               // 0 if its own namespace cannot be a target, else 1
	prefixes []string          // of the source's annotation; nil: no annotation
	selector labels.Selector   // of the source's annotation; matches everything if there is none
	quoted   map[string]string // these annotations by key, each as key="value"
	rollout  labels.Selector   // of the source's annotation; nil: no annotation
	paused   bool              // by the source's annotation

	payload     digest
	labels      map[string]string // copied
	annotations map[string]string // copied
	copied      string            // value of the copied annotation of a copy; empty: none
}

// ParseSource parses a ConfigMap for which AsksToBeMirrored holds. It keeps cm and does not change it.
func (r *Rules) ParseSource(cm *corev1.ConfigMap) *Source {
	s := &Source{ConfigMap: cm, Key: KeyOf(cm), OutOfScope: !r.AllowsSource(cm.Namespace), Reserved: Reserved(cm.Name),
		selector: labels.Everything()}
	if r.AllowsTarget(cm.Namespace) {
		s.rank = 1
	}
	if s.OutOfScope { // it has no targets: nothing else matters
		return s
	}
	s.Bytes = sizeOf(cm.Data) + sizeOf(cm.BinaryData)
	s.payload = payloadDigest(cm)
	s.labels = selectCopied(cm.Labels, r.opts.CopyLabels, r.label)
	s.annotations = selectCopied(cm.Annotations, r.opts.CopyAnnotations, r.label)
	s.Checksum, s.copied = checksum(s.payload, s.labels, s.annotations), copiedList(s.labels, s.annotations)
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

// KeyOf returns the namespace and name of a ConfigMap.
func KeyOf(cm *corev1.ConfigMap) types.NamespacedName {
	return types.NamespacedName{Namespace: cm.Namespace, Name: cm.Name}
}

// maxAnnotation bounds an annotation with which a source narrows or holds its targets, in bytes.
const maxAnnotation = 4 << 10

// parseAnnotations parses the annotations with which a source narrows or holds its targets. The error joins every
// problem, the cause before the value.
func (s *Source) parseAnnotations() error {
	errs := []error{checkKnown(s.ConfigMap.Annotations)}
	s.quoted = map[string]string{}
	for _, key := range sourceAnnotations {
		if value, ok := s.ConfigMap.Annotations[key]; ok {
			s.quoted[key] = fmt.Sprintf("%s=%q", key, Clip(value, maxQuoted))
			if problem := s.parse(key, value); problem != "" {
				errs = append(errs, fmt.Errorf("annotation %s: %s; it is %q", key, problem, Clip(value, maxQuoted)))
			}
		}
	}
	return errors.Join(errs...)
}

// checkKnown returns an error that names the first annotation of our Domain that is not known: a typing error, or of a
// newer version, it may narrow or hold the targets.
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

// parse sets what the annotation with this key and value narrows or holds, or returns what is wrong with the value.
func (s *Source) parse(key, value string) (problem string) {
	if len(value) > maxAnnotation {
		return fmt.Sprintf("has %d bytes, must have at most %d", len(value), maxAnnotation)
	}
	switch key {
	case PrefixAnnotation:
		return s.parsePrefixes(value)
	case PausedAnnotation:
		if s.paused = value == PausedValue; !s.paused {
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
	case key == RolloutAnnotation:
		s.rollout = selector
	}
	return ""
}

// parsePrefixes returns what is wrong with the first prefix that is malformed: the annotation may hold thousands.
func (s *Source) parsePrefixes(value string) (problem string) {
	for p := range strings.SplitSeq(value, ",") {
		p = strings.TrimSpace(p)
		switch problem := checkNamespacePrefix(p); {
		case p == "":
			return "a prefix " + problem + "; remove the annotation for all targets: \"\""
		case problem != "":
			return fmt.Sprintf("a prefix %s: %q", problem, Clip(p, maxQuoted))
		}
		s.prefixes = append(s.prefixes, p)
	}
	return ""
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
	by = s.quoted[Domain+"/"+s.HeldBy()]
	if s.paused && s.rollout != nil {
		return by + ", which wins over " + s.quoted[RolloutAnnotation], "remove both annotations"
	}
	return by, "remove the annotation"
}
