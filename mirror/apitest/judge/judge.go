// Package judge reads the contract a second time, to judge the controller by:
// naively, from whole objects of the API server and the flags. It shares the
// keys with package plan, and nothing else.
package judge

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

type key = types.NamespacedName

// Cluster is what a judge knows: the flags, and all objects at one moment.
type Cluster struct {
	Flags      *plan.Options
	ConfigMaps map[key]*corev1.ConfigMap
	Namespaces map[string]*corev1.Namespace
}

// New returns a cluster without objects.
func New(flags *plan.Options) *Cluster {
	return &Cluster{flags, map[key]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}}
}

// Verdict is how one target has to be.
type Verdict struct {
	State  string            // as mirror_copies counts it; pending: due is left to do
	Owner  key               // the source that this counts for
	Winner *corev1.ConfigMap // nil: no source claims the target
	Due    string
}

// Stops reports whether the source that claims the target keeps it as it is.
func (v Verdict) Stops() bool { return v.State == "held" || v.State == "frozen" }

// Judge returns how a target is, and what is left to do there.
func (c *Cluster) Judge(k key) Verdict {
	ns := c.Namespaces[k.Namespace]
	if ns == nil || IsTerminating(ns) || slices.Contains(plan.ReservedNames, k.Name) {
		return Verdict{State: "none"}
	}
	selects, w := c.winner(k)
	switch {
	case w != nil && c.isFrozen(w):
		return Verdict{State: "frozen", Owner: apitest.KeyOf(w), Winner: w}
	case w == nil || !c.holds(w, ns):
		return c.free(k, w)
	}
	if v := c.free(k, selects); v.Due == "" && v.State != "foreign" {
		return v // there is nothing that the hold keeps back
	}
	return Verdict{State: "held", Owner: apitest.KeyOf(w), Winner: w}
}

// free returns how a target is that w wins, nil: none, and nobody holds.
func (c *Cluster) free(k key, w *corev1.ConfigMap) Verdict {
	have := c.ConfigMaps[k]
	of, ours := c.CopyOf(have)
	if w == nil {
		return c.unclaimed(of, ours, have, c.Namespaces[k.Namespace])
	}
	v := Verdict{State: "pending", Owner: apitest.KeyOf(w), Winner: w}
	switch {
	case have == nil:
		v.Due = "create"
	case have.DeletionTimestamp != nil, !ours && !c.IsHandedOver(have):
		v.State = "foreign"
	case !ours || !c.isCopy(have, w):
		v.Due = "update"
		if IsImmutable(have) && !SamePayload(have, w) {
			v.Due = "recreate"
		}
	default:
		v.State = "synced"
	}
	return v
}

// unclaimed returns how a target is that no source claims. A copy without its
// label counts as released.
func (c *Cluster) unclaimed(of key, ours bool, have *corev1.ConfigMap, ns *corev1.Namespace) Verdict {
	switch {
	case !ours || !c.IsShown(have) || have.DeletionTimestamp != nil:
		return Verdict{State: "none"}
	case !c.Flags.Prune && !(c.AllowsSource(of.Namespace) && c.allowsName(ns.Name) && c.allowsLabels(ns)):
		return Verdict{State: "out_of_scope", Owner: of}
	}
	return Verdict{State: "expiring", Owner: of, Due: "delete"}
}

// sources returns the sources of a name that the flags allow, by rank.
func (c *Cluster) sources(name string) (all []*corev1.ConfigMap) {
	for k, cm := range c.ConfigMaps {
		if k.Name == name && c.AsksToBeMirrored(cm) && c.AllowsSource(k.Namespace) {
			all = append(all, cm)
		}
	}
	rank := map[bool]int{true: 1} // of those in namespaces that may be targets
	slices.SortFunc(all, func(a, b *corev1.ConfigMap) int {
		return cmp.Or(rank[c.allowsName(a.Namespace)]-rank[c.allowsName(b.Namespace)],
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// winner returns the first source that selects a target, and the first that
// claims it. Nobody reads a copy that the watch does not show, unless its place
// is wanted.
func (c *Cluster) winner(k key) (selects, claims *corev1.ConfigMap) {
	ns, have := c.Namespaces[k.Namespace], c.ConfigMaps[k]
	of, ours := c.CopyOf(have)
	stops := func(s *corev1.ConfigMap) bool { return c.isFrozen(s) || c.holds(s, ns) }
	for _, s := range slices.Backward(c.sources(k.Name)) {
		switch {
		case c.IsTarget(s, ns):
			selects, claims = s, s
		case stops(s) && ours && of == apitest.KeyOf(s):
			claims = s
		}
	}
	if have != nil && !c.IsShown(have) && (selects == nil || stops(selects)) {
		claims = selects
	}
	return selects, claims
}

// Superseded returns the sources that select a target which another one wins.
func (c *Cluster) Superseded(k key) (all []key) {
	ns := c.Namespaces[k.Namespace]
	if ns == nil {
		return nil
	}
	for _, s := range c.sources(k.Name) {
		if _, w := c.winner(k); c.IsTarget(s, ns) && w != s {
			all = append(all, apitest.KeyOf(s))
		}
	}
	return all
}

// selects reports whether a namespace is a target of the source.
func (c *Cluster) selects(s *corev1.ConfigMap) bool {
	for _, ns := range c.Namespaces {
		if c.IsTarget(s, ns) {
			return true
		}
	}
	return false
}

// IsTarget reports whether a namespace is a target of a source.
func (c *Cluster) IsTarget(s *corev1.ConfigMap, ns *corev1.Namespace) bool {
	prefix, hasPrefix := s.Annotations[plan.PrefixAnnotation]
	selector, hasSelector := s.Annotations[plan.SelectorAnnotation]
	begins := func(p string) bool { return strings.HasPrefix(ns.Name, strings.TrimSpace(p)) }
	return !slices.Contains(plan.ReservedNames, s.Name) && !c.isFrozen(s) &&
		ns.Name != s.Namespace && !IsTerminating(ns) &&
		c.allowsName(ns.Name) && c.allowsLabels(ns) && ns.Labels[c.Flags.Label] != "false" &&
		(!hasPrefix || slices.ContainsFunc(strings.Split(prefix, ","), begins)) &&
		(!hasSelector || matches(selector, ns))
}

// isFrozen reports whether an annotation of the source is malformed, too long,
// or one that a source cannot have.
func (c *Cluster) isFrozen(s *corev1.ConfigMap) bool {
	for k, v := range s.Annotations {
		switch k {
		case plan.PrefixAnnotation, plan.SelectorAnnotation, plan.RolloutAnnotation,
			plan.PausedAnnotation:
			if len(v) > 4096 || k == plan.PrefixAnnotation && !isPrefixes(v) ||
				k == plan.PausedAnnotation && v != "true" ||
				(k == plan.SelectorAnnotation || k == plan.RolloutAnnotation) && !isSelector(v) {
				return true
			}
		case plan.AdoptAnnotation, plan.SourceAnnotation, plan.CopyAnnotation,
			plan.ChecksumAnnotation, plan.InstanceAnnotation, plan.CopiedAnnotation:
		default:
			if strings.HasPrefix(k, plan.Domain+"/") {
				return true
			}
		}
	}
	return false
}

// holds reports whether the source holds the target in a namespace.
func (c *Cluster) holds(s *corev1.ConfigMap, ns *corev1.Namespace) bool {
	rollout, staged := s.Annotations[plan.RolloutAnnotation]
	return s.Annotations[plan.PausedAnnotation] == "true" || staged && !matches(rollout, ns)
}

// isCopy reports whether a ConfigMap is what a copy of the source is, by its
// whole content.
func (c *Cluster) isCopy(cm, s *corev1.ConfigMap) bool {
	_, handsOver := cm.Annotations[plan.AdoptAnnotation]
	of, ours := c.CopyOf(cm)
	const checksum = len("sha256:") + 64 // no test forges one of this length
	return ours && of == apitest.KeyOf(s) && cm.Labels[c.Flags.Label] == "copy" && !handsOver &&
		cm.Labels[plan.ManagedByLabel] == plan.ManagedByValue && c.HasContent(cm, s) &&
		len(cm.Annotations[plan.ChecksumAnnotation]) == checksum
}

// HasContent reports whether cm has all that is copied from the source.
func (c *Cluster) HasContent(cm, s *corev1.ConfigMap) bool {
	copied, want := c.Travels(s), c.Travels(cm)
	for k := range want { // other people's
		if !strings.Contains(","+cm.Annotations[plan.CopiedAnnotation]+",", ","+k+",") {
			delete(want, k)
		}
	}
	return SamePayload(cm, s) && maps.Equal(copied, want) &&
		cm.Annotations[plan.CopiedAnnotation] == strings.Join(slices.Sorted(maps.Keys(copied)), ",")
}

// Travels returns the metadata that the flags have copied.
func (c *Cluster) Travels(cm *corev1.ConfigMap) map[string]string {
	all := map[string]string{}
	add := func(kind string, metadata map[string]string, patterns []string) {
		for k, v := range metadata {
			never := k == c.Flags.Label || strings.HasPrefix(k, plan.Domain+"/") ||
				strings.HasPrefix(k, "kubectl.kubernetes.io/") ||
				k == plan.ManagedByLabel || k == "app.kubernetes.io/instance"
			if !never && isListed(patterns, k) {
				all[kind+k] = v
			}
		}
	}
	add("label:", cm.Labels, c.Flags.CopyLabels)
	add("annotation:", cm.Annotations, c.Flags.CopyAnnotations)
	return all
}

// CopyOf returns whose copy a ConfigMap is, by three annotations that are
// present and true.
func (c *Cluster) CopyOf(cm *corev1.ConfigMap) (of key, ours bool) {
	if cm == nil {
		return of, false
	}
	from := strings.Split(cm.Annotations[plan.SourceAnnotation], "/")
	if len(from) != 2 || from[0] == "" || from[0] == cm.Namespace || from[1] != cm.Name ||
		!NamesItself(cm) || cm.Annotations[plan.InstanceAnnotation] != c.Flags.Instance {
		return of, false
	}
	return key{Namespace: from[0], Name: from[1]}, true
}

// Reasons returns the reasons of the events that hold for a ConfigMap that asks
// to be mirrored, in a cluster at rest.
func (c *Cluster) Reasons(s *corev1.ConfigMap) map[string]bool {
	of := c.CountsOf(apitest.KeyOf(s))
	reported := c.Reported(apitest.KeyOf(s))
	allowed, frozen := c.AllowsSource(s.Namespace), c.isFrozen(s)
	reserved := slices.Contains(plan.ReservedNames, s.Name)
	all := map[string]bool{
		plan.ReasonReservedName:      allowed && reserved,
		plan.ReasonInvalidAnnotation: allowed && frozen && !reserved,
		plan.ReasonForeign:           of["foreign"] > 0,
		plan.ReasonSuperseded:        of["superseded"] > 0,
		plan.ReasonOutOfScope:        of["out_of_scope"] > 0,
		plan.ReasonHeld:              of["held"] > 0,
		plan.ReasonNoTargets:         allowed && !reserved && !frozen && !c.selects(s) && of["held"] == 0,
		plan.ReasonMirrored:          !frozen && reported[0]+reported[1]+reported[2] > 0,
	}
	maps.DeleteFunc(all, func(_ string, holds bool) bool { return !holds })
	return all
}

// Reported returns how many targets of a source are in sync, held and blocked.
func (c *Cluster) Reported(source key) [3]int {
	of := c.CountsOf(source)
	return [3]int{of["synced"], of["held"], of["foreign"] + of["superseded"]}
}

// CountsOf returns how many targets count for a source, by state.
func (c *Cluster) CountsOf(source key) map[string]int {
	of := map[string]int{}
	for namespace := range c.Namespaces {
		k := key{Namespace: namespace, Name: source.Name}
		if v := c.Judge(k); v.Owner == source {
			of[v.State]++
		}
		if slices.Contains(c.Superseded(k), source) {
			of["superseded"]++
		}
	}
	return of
}

// AsksToBeMirrored reports whether a ConfigMap is a source, if the flags allow
// its namespace.
func (c *Cluster) AsksToBeMirrored(cm *corev1.ConfigMap) bool {
	return cm.Labels[c.Flags.Label] == "true" && !NamesItself(cm) && cm.DeletionTimestamp == nil
}

// IsHandedOver reports whether the owner of a ConfigMap lets it become a copy.
func (c *Cluster) IsHandedOver(cm *corev1.ConfigMap) bool {
	mine := !NamesItself(cm) || cm.Annotations[plan.InstanceAnnotation] == c.Flags.Instance
	return cm.Annotations[plan.AdoptAnnotation] == "true" && len(cm.Finalizers) == 0 &&
		!c.AsksToBeMirrored(cm) && mine
}

// IsShown reports whether the watch of the controller shows a ConfigMap.
func (c *Cluster) IsShown(cm *corev1.ConfigMap) bool {
	return cm.Labels[c.Flags.Label] == "true" || cm.Labels[c.Flags.Label] == "copy"
}

// AllowsSource reports whether the flags allow sources in a namespace.
func (c *Cluster) AllowsSource(namespace string) bool {
	return len(c.Flags.SourceNamespaces) == 0 || slices.Contains(c.Flags.SourceNamespaces, namespace)
}

func (c *Cluster) allowsName(namespace string) bool {
	return (c.Flags.AllNamespaces || slices.ContainsFunc(c.Flags.NamespacePrefixes, func(p string) bool {
		return strings.HasPrefix(namespace, p)
	})) && !isListed(c.Flags.ExcludeNamespaces, namespace)
}

func (c *Cluster) allowsLabels(ns *corev1.Namespace) bool {
	return matches(c.Flags.NamespaceSelector, ns)
}

// NamesItself reports whether the copy annotation of a ConfigMap names it.
func NamesItself(cm *corev1.ConfigMap) bool {
	return cm.Annotations[plan.CopyAnnotation] == cm.Namespace+"/"+cm.Name
}

// SamePayload reports whether two ConfigMaps hold the same.
func SamePayload(a, b *corev1.ConfigMap) bool {
	return equality.Semantic.DeepEqual(a.Data, b.Data) &&
		equality.Semantic.DeepEqual(a.BinaryData, b.BinaryData) && IsImmutable(a) == IsImmutable(b)
}

// IsImmutable reports whether a ConfigMap is immutable.
func IsImmutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

// IsTerminating reports whether a namespace is being deleted.
func IsTerminating(ns *corev1.Namespace) bool {
	return ns.Status.Phase == corev1.NamespaceTerminating
}

func isSelector(text string) bool {
	_, err := labels.Parse(text)
	return err == nil && len(text) <= 4096
}

func matches(text string, ns *corev1.Namespace) bool {
	selector, err := labels.Parse(text)
	return err == nil && selector.Matches(labels.Set(ns.Labels))
}

func isPrefixes(text string) bool {
	for p := range strings.SplitSeq(text, ",") {
		if p = strings.TrimSpace(p); p == "" || len(p) > 63 || p[0] == '-' ||
			strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return len(text) <= 4096
}

func isListed(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		stem, any := strings.CutSuffix(p, "*")
		return p == text || any && strings.HasPrefix(text, stem)
	})
}
