package model

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is what is in a cluster: its namespaces, and all ConfigMaps of the names that matter.
type State struct {
	Namespaces map[string]*corev1.Namespace
	ConfigMaps map[Key]*corev1.ConfigMap
}

// Past is what the state does not show and the contract lets the outcome hang on.
type Past struct {
	// Pristine reports whether the object was made by the controller, not in the place of one with metadata of others, and
	// has been ours ever since, so that what is on it from a source has been noted on it.
	Pristine func(types.UID) bool
	// Judged reports whether a copy out of scope has been so, and its source has been there, since before the
	// present leader began: the leader has then judged it.
	Judged func(of, source Key) bool
	// Later reports whether the copy turned up after the last process had begun, so that nobody has judged it.
	Later func(*corev1.ConfigMap) bool
	// Blocked is set if the prune limit has blocked the present leader. No namespace has got other labels since.
	Blocked bool
}

// Outcome is what may be in a place.
type Outcome int

// The outcomes.
const (
	Absent  Outcome = iota // nothing
	Copy                   // an exact copy of the winner
	AsItWas                // the object that is there, as its owner or time left it
)

// Verdict is what has to be in one place, when all is quiet.
type Verdict struct {
	Key
	// Allowed are the outcomes of which one has to be there: as a rule there is one.
	Allowed []Outcome
	// Winner is the source that has the place; nil if none claims it.
	Winner *corev1.ConfigMap
	// Why is what the contract says, in a few words.
	Why string
}

// Obstructed reports whether a source claims the place and something else is to stay there.
func (v Verdict) Obstructed() bool { return v.Winner != nil && v.Allows(AsItWas) }

// Allows reports whether the outcome is allowed.
func (v Verdict) Allows(o Outcome) bool { return slices.Contains(v.Allowed, o) }

// Open reports whether the contract leaves the outcome open.
func (v Verdict) Open() bool { return len(v.Allowed) > 1 }

// Verdicts returns the verdict on every place, in order: each name in each namespace. Places in namespaces that are
// being deleted, and reserved names, have none.
func (f Flags) Verdicts(s State, p Past) []Verdict {
	sources := f.sources(s)
	names := map[string]bool{}
	for key := range s.ConfigMaps {
		names[key.Name] = !Reserved(key.Name)
	}
	var out []Verdict
	for _, namespace := range slices.Sorted(maps.Keys(s.Namespaces)) {
		ns := s.Namespaces[namespace]
		if Terminating(ns) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if names[name] {
				out = append(out, f.verdict(s, p, sources[name], ns, Key{namespace, name}))
			}
		}
	}
	return out
}

// sources returns the sources by their names, each list by precedence.
func (f Flags) sources(s State) map[string][]*corev1.ConfigMap {
	out := map[string][]*corev1.ConfigMap{}
	for key, cm := range s.ConfigMaps {
		if f.IsSource(cm) {
			out[key.Name] = append(out[key.Name], cm)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *corev1.ConfigMap) int {
			if f.before(a, b) {
				return -1
			}
			return 1
		})
	}
	return out
}

// verdict judges one place by the sources of its name.
func (f Flags) verdict(s State, p Past, sources []*corev1.ConfigMap, ns *corev1.Namespace, key Key) Verdict {
	v := Verdict{Key: key}
	if i := slices.IndexFunc(sources, func(cm *corev1.ConfigMap) bool { return f.Claims(cm, ns) }); i >= 0 {
		v.Winner = sources[i]
	}
	have := s.ConfigMaps[key]
	if have == nil {
		return v.vacant()
	}
	owner, ours := f.Ours(have)
	if !ours {
		return f.foreign(v, have)
	}
	source := s.ConfigMaps[owner]
	switch {
	case source != nil && f.IsSource(source) && Frozen(source):
		return v.allow("its source is frozen", AsItWas)
	case have.DeletionTimestamp != nil:
		return v.allow("it is being deleted, and somebody's finalizer holds it", AsItWas)
	case v.Winner != nil:
		return v.allow("a source claims it", Copy)
	}
	return f.unwanted(v, p, ns, have, source)
}

func (v Verdict) allow(why string, outcomes ...Outcome) Verdict {
	v.Why, v.Allowed = why, outcomes
	return v
}

// vacant is the verdict on a place where nothing is.
func (v Verdict) vacant() Verdict {
	if v.Winner == nil {
		return v.allow("no source claims it", Absent)
	}
	return v.allow("a source claims it", Copy)
}

// foreign is the verdict on a place where something is that is not ours.
func (f Flags) foreign(v Verdict, have *corev1.ConfigMap) Verdict {
	if v.Winner == nil || !f.Adoptable(have) || have.DeletionTimestamp != nil {
		return v.allow("it is foreign", AsItWas)
	}
	return v.allow("it was handed over", Copy)
}

// unwanted is the verdict on a place with a copy of ours that no source claims.
func (f Flags) unwanted(v Verdict, p Past, ns *corev1.Namespace, have, source *corev1.ConfigMap) Verdict {
	owner, _ := f.Ours(have)
	outOfScope := source != nil && f.OutOfScope(source, have.Namespace)
	switch {
	case !Labelled(have):
		return v.allow("it lost its label and counts as released", AsItWas)
	case outOfScope && p.Later(have):
		return v.allow("it is out of scope, since after the takeover", AsItWas)
	case outOfScope && p.Blocked && p.Judged(v.Key, owner):
		return v.allow("it is out of scope, and the prune limit blocks", AsItWas)
	case source != nil && f.Unselected(source, ns) && p.Blocked:
		return v.allow("the selector of the flags rules it out, and the prune limit blocks", AsItWas)
	case outOfScope && !p.Judged(v.Key, owner):
		return v.allow("it is out of scope, perhaps since after the takeover", Absent, AsItWas)
	}
	return v.allow("no source claims it", Absent)
}

// PruneBlocked reports whether the prune limit blocks a process that takes over in this state: too many copies would go
// because of the flags alone.
func (f Flags) PruneBlocked(s State) bool {
	outOfScope, copies := f.Prunable(s)
	return f.blocks(outOfScope, copies)
}

func (f Flags) blocks(outOfScope, copies int) bool {
	return f.PruneLimit < 100 && outOfScope > 0 && outOfScope*100 >= f.PruneLimit*copies
}

// AtEdge reports whether one copy more or less out of scope might turn the decision of the prune limit.
func (f Flags) AtEdge(s State) bool {
	outOfScope, copies := f.Prunable(s)
	blocked := f.blocks(outOfScope, copies)
	return outOfScope > 0 && f.blocks(outOfScope-1, copies-1) != blocked || f.blocks(outOfScope+1, copies+1) != blocked
}

// Prunable returns how many copies a process that takes over in this state would delete because of the flags alone, and
// the number by which the prune limit measures them: they and the copies that the sources want.
func (f Flags) Prunable(s State) (outOfScope, copies int) {
	sources := f.sources(s)
	for _, cm := range s.ConfigMaps {
		owner, ours := f.Ours(cm)
		if !ours || !Labelled(cm) {
			continue // no watch shows it
		}
		if f.goesByFlags(cm, owner, s.ConfigMaps[owner], s.Namespaces[cm.Namespace], sources[cm.Name]) {
			outOfScope++
		}
	}
	return outOfScope, outOfScope + f.wanted(s, sources)
}

// wanted returns how many copies the sources want.
func (f Flags) wanted(s State, sources map[string][]*corev1.ConfigMap) (n int) {
	for _, list := range sources {
		for _, ns := range s.Namespaces {
			if slices.ContainsFunc(list, func(cm *corev1.ConfigMap) bool { return f.Claims(cm, ns) }) {
				n++
			}
		}
	}
	return n
}

// goesByFlags reports whether a copy would be deleted although its source asks for it: it is out of scope, none of
// the sources of its name takes it over, and nothing else holds it.
func (f Flags) goesByFlags(cm *corev1.ConfigMap, owner Key, source *corev1.ConfigMap, ns *corev1.Namespace, sources []*corev1.ConfigMap) bool {
	if source == nil || !Asks(source) || f.allowsSource(owner.Namespace) && Frozen(source) {
		return false
	}
	if ns == nil || !f.OutOfScope(source, cm.Namespace) && !f.Unselected(source, ns) {
		return false
	}
	if Terminating(ns) || cm.DeletionTimestamp != nil || Reserved(cm.Name) {
		return false
	}
	return !slices.ContainsFunc(sources, func(other *corev1.ConfigMap) bool { return f.Claims(other, ns) })
}

// Unmet returns nil if what is in the place, or nil, is what the verdict allows.
func (f Flags) Unmet(v Verdict, p Past, have *corev1.ConfigMap) error {
	var errs []error
	for _, o := range v.Allowed {
		var err error
		switch {
		case o == Absent && have != nil:
			err = errors.New("is still there")
		case o == AsItWas && have == nil:
			err = errors.New("is gone")
		case o == Copy:
			err = f.inSync(v.Winner, have, p)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	winner := ""
	if v.Winner != nil {
		winner = ", " + KeyOf(v.Winner).String()
	}
	return fmt.Errorf("%s (%s%s): %w", v.Key, v.Why, winner, errors.Join(errs...))
}

var checksum = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// inSync returns nil if cm is an exact copy of source.
func (f Flags) inSync(source, cm *corev1.ConfigMap, p Past) error {
	if cm == nil {
		return errors.New("is missing")
	}
	marks := map[string]string{
		SourceAnnotation: KeyOf(source).String(), CopyAnnotation: KeyOf(cm).String(), InstanceAnnotation: f.Instance,
	}
	labels := travelling(source.Labels, f.CopyLabels)
	annotations := travelling(source.Annotations, f.CopyAnnotations)
	_, adopting := cm.Annotations[AdoptAnnotation]
	switch {
	case !maps.Equal(cm.Data, source.Data):
		return errors.New("has other data")
	case !maps.EqualFunc(cm.BinaryData, source.BinaryData, bytes.Equal):
		return errors.New("has other binaryData")
	case immutable(cm) != immutable(source):
		return fmt.Errorf("has immutable=%v", immutable(cm))
	case cm.Labels[Label] != CopyMark || cm.Labels[ManagedBy] != Controller:
		return fmt.Errorf("has labels %v", cm.Labels)
	case !includes(cm.Annotations, marks) || !checksum.MatchString(cm.Annotations[ChecksumAnnotation]) || adopting:
		return fmt.Errorf("has annotations %v", cm.Annotations)
	case !includes(cm.Labels, labels) || !includes(cm.Annotations, annotations):
		return fmt.Errorf("lacks copied metadata: labels %v, annotations %v", cm.Labels, cm.Annotations)
	}
	if err := listed(cm.Annotations[CopiedAnnotation], labels, annotations); err != nil {
		return err
	}
	if p.Pristine(cm.UID) && (!maps.Equal(selected(cm.Labels, f.CopyLabels), labels) ||
		!maps.Equal(selected(cm.Annotations, f.CopyAnnotations), annotations)) {
		return fmt.Errorf("has metadata that is not, or no longer, copied: labels %v, annotations %v", cm.Labels, cm.Annotations)
	}
	return nil
}

// selected returns what the patterns select of the labels or annotations of a copy, besides the marks of every copy.
func selected(of map[string]string, patterns []string) map[string]string {
	out := map[string]string{}
	for k, v := range of {
		if matches(k, patterns) && !matches(k, []string{Label, ManagedBy, domain + "*"}) {
			out[k] = v
		}
	}
	return out
}

// listed returns nil if the copied annotation names exactly the keys that were copied, and is there only if there are
// any.
func listed(list string, labels, annotations map[string]string) error {
	var want []string
	for k := range labels {
		want = append(want, labelItem+k)
	}
	for k := range annotations {
		want = append(want, annotationItem+k)
	}
	var have []string
	if list != "" {
		have = strings.Split(list, ",")
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		return fmt.Errorf("lists %q as copied, want %v", list, want)
	}
	return nil
}

func includes(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }
