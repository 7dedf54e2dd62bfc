package mirror

// The contract read a second time, to judge histories by: naively, from whole objects of the API server and the flags.
// It shares the keys with package plan, and nothing else.

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

// oracle knows the flags, and all objects at one moment.
type oracle struct {
	flags      *Options
	configMaps map[key]*corev1.ConfigMap
	namespaces map[string]*corev1.Namespace
}

func newOracle(flags *Options) *oracle {
	return &oracle{flags, map[key]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}}
}

// verdict is how one target has to be.
type verdict struct {
	state  string            // as mirror_copies counts it; pending: due is left to do
	owner  key               // the source that this counts for
	winner *corev1.ConfigMap // nil: no source claims the target
	due    string
}

// stops reports whether the source that claims the target keeps it as it is.
func (v verdict) stops() bool { return v.state == "held" || v.state == "frozen" }

// judge returns how a target is, and what is left to do there.
func (o *oracle) judge(k key) verdict {
	ns := o.namespaces[k.Namespace]
	if ns == nil || isGoing(ns) || slices.Contains(plan.ReservedNames, k.Name) {
		return verdict{state: "none"}
	}
	selects, w := o.winner(k)
	switch {
	case w != nil && o.isFrozen(w):
		return verdict{state: "frozen", owner: apitest.KeyOf(w), winner: w}
	case w == nil || !o.holds(w, ns):
		return o.free(k, w)
	}
	if v := o.free(k, selects); v.due == "" && v.state != "foreign" {
		return v // there is nothing that the hold keeps back
	}
	return verdict{state: "held", owner: apitest.KeyOf(w), winner: w}
}

// free returns how a target is that w wins, nil: none, and nobody holds.
func (o *oracle) free(k key, w *corev1.ConfigMap) verdict {
	have := o.configMaps[k]
	of, ours := o.copyOf(have)
	if w == nil {
		return o.unclaimed(of, ours, have, o.namespaces[k.Namespace])
	}
	v := verdict{state: "pending", owner: apitest.KeyOf(w), winner: w}
	switch {
	case have == nil:
		v.due = "create"
	case have.DeletionTimestamp != nil, !ours && !o.isHandedOver(have):
		v.state = "foreign"
	case !ours || !o.isCopy(have, w):
		v.due = "update"
		if isTrue(have.Immutable) && !samePayload(have, w) {
			v.due = "recreate"
		}
	default:
		v.state = "synced"
	}
	return v
}

// unclaimed returns how a target is that no source claims. A copy without its label counts as released.
func (o *oracle) unclaimed(of key, ours bool, have *corev1.ConfigMap, ns *corev1.Namespace) verdict {
	switch {
	case !ours || !o.isShown(have) || have.DeletionTimestamp != nil:
		return verdict{state: "none"}
	case !o.flags.Prune && !(o.allowsSource(of.Namespace) && o.allowsName(ns.Name) && o.allowsLabels(ns)):
		return verdict{state: "out_of_scope", owner: of}
	}
	return verdict{state: "expiring", owner: of, due: "delete"}
}

// sources returns the sources of a name that the flags allow, by rank.
func (o *oracle) sources(name string) (all []*corev1.ConfigMap) {
	for k, cm := range o.configMaps {
		if k.Name == name && o.asksToBeMirrored(cm) && o.allowsSource(k.Namespace) {
			all = append(all, cm)
		}
	}
	rank := map[bool]int{true: 1} // of those in namespaces that may be targets
	slices.SortFunc(all, func(a, b *corev1.ConfigMap) int {
		return cmp.Or(rank[o.allowsName(a.Namespace)]-rank[o.allowsName(b.Namespace)],
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace))
	})
	return all
}

// winner returns the first source that selects a target, and the first that claims it. Nobody reads a copy that the
// watch does not show, unless its place is wanted.
func (o *oracle) winner(k key) (selects, claims *corev1.ConfigMap) {
	ns, have := o.namespaces[k.Namespace], o.configMaps[k]
	of, ours := o.copyOf(have)
	stops := func(s *corev1.ConfigMap) bool { return o.isFrozen(s) || o.holds(s, ns) }
	for _, s := range slices.Backward(o.sources(k.Name)) {
		switch {
		case o.isTarget(s, ns):
			selects, claims = s, s
		case stops(s) && ours && of == apitest.KeyOf(s):
			claims = s
		}
	}
	if have != nil && !o.isShown(have) && (selects == nil || stops(selects)) {
		claims = selects
	}
	return selects, claims
}

// superseded returns the sources that select a target which another one wins.
func (o *oracle) superseded(k key) (all []key) {
	ns := o.namespaces[k.Namespace]
	if ns == nil {
		return nil
	}
	for _, s := range o.sources(k.Name) {
		if _, w := o.winner(k); o.isTarget(s, ns) && w != s {
			all = append(all, apitest.KeyOf(s))
		}
	}
	return all
}

// selects reports whether a namespace is a target of the source.
func (o *oracle) selects(s *corev1.ConfigMap) bool {
	for _, ns := range o.namespaces {
		if o.isTarget(s, ns) {
			return true
		}
	}
	return false
}

// isTarget reports whether a namespace is a target of a source.
func (o *oracle) isTarget(s *corev1.ConfigMap, ns *corev1.Namespace) bool {
	prefix, hasPrefix := s.Annotations[plan.PrefixAnnotation]
	selector, hasSelector := s.Annotations[plan.SelectorAnnotation]
	begins := func(p string) bool { return strings.HasPrefix(ns.Name, strings.TrimSpace(p)) }
	return !slices.Contains(plan.ReservedNames, s.Name) && !o.isFrozen(s) && ns.Name != s.Namespace && !isGoing(ns) &&
		o.allowsName(ns.Name) && o.allowsLabels(ns) && ns.Labels[o.flags.Label] != "false" &&
		(!hasPrefix || slices.ContainsFunc(strings.Split(prefix, ","), begins)) && (!hasSelector || matches(selector, ns))
}

// isFrozen reports whether an annotation of the source is malformed, too long, or one that a source cannot have.
func (o *oracle) isFrozen(s *corev1.ConfigMap) bool {
	for k, v := range s.Annotations {
		switch k {
		case plan.PrefixAnnotation, plan.SelectorAnnotation, plan.RolloutAnnotation, plan.PausedAnnotation:
			if len(v) > 4096 || k == plan.PrefixAnnotation && !isPrefixes(v) || k == plan.PausedAnnotation && v != "true" ||
				(k == plan.SelectorAnnotation || k == plan.RolloutAnnotation) && !isSelector(v) {
				return true
			}
		case plan.AdoptAnnotation, plan.SourceAnnotation, plan.CopyAnnotation, plan.ChecksumAnnotation,
			plan.InstanceAnnotation, plan.CopiedAnnotation:
		default:
			if strings.HasPrefix(k, plan.Domain+"/") {
				return true
			}
		}
	}
	return false
}

// holds reports whether the source holds the target in a namespace.
func (o *oracle) holds(s *corev1.ConfigMap, ns *corev1.Namespace) bool {
	rollout, staged := s.Annotations[plan.RolloutAnnotation]
	return s.Annotations[plan.PausedAnnotation] == "true" || staged && !matches(rollout, ns)
}

// isCopy reports whether a ConfigMap is what a copy of the source is, by its whole content.
func (o *oracle) isCopy(cm, s *corev1.ConfigMap) bool {
	_, handsOver := cm.Annotations[plan.AdoptAnnotation]
	of, ours := o.copyOf(cm)
	return ours && of == apitest.KeyOf(s) && cm.Labels[o.flags.Label] == "copy" && !handsOver &&
		cm.Labels[plan.ManagedByLabel] == plan.ManagedByValue && o.hasContent(cm, s) &&
		len(cm.Annotations[plan.ChecksumAnnotation]) == len("sha256:")+64 // histories forge none of this length
}

// hasContent reports whether cm has all that is copied from the source.
func (o *oracle) hasContent(cm, s *corev1.ConfigMap) bool {
	copied, want := o.travels(s), o.travels(cm)
	for k := range want { // other people's
		if !strings.Contains(","+cm.Annotations[plan.CopiedAnnotation]+",", ","+k+",") {
			delete(want, k)
		}
	}
	return samePayload(cm, s) && maps.Equal(copied, want) &&
		cm.Annotations[plan.CopiedAnnotation] == strings.Join(slices.Sorted(maps.Keys(copied)), ",")
}

// travels returns the metadata that the flags have copied.
func (o *oracle) travels(cm *corev1.ConfigMap) map[string]string {
	all := map[string]string{}
	for kind, metadata := range map[string]map[string]string{"label:": cm.Labels, "annotation:": cm.Annotations} {
		patterns := map[string][]string{"label:": o.flags.CopyLabels, "annotation:": o.flags.CopyAnnotations}[kind]
		for k, v := range metadata {
			never := k == o.flags.Label || strings.HasPrefix(k, plan.Domain+"/") ||
				strings.HasPrefix(k, "kubectl.kubernetes.io/") || k == plan.ManagedByLabel || k == "app.kubernetes.io/instance"
			if !never && isListed(patterns, k) {
				all[kind+k] = v
			}
		}
	}
	return all
}

// copyOf returns whose copy a ConfigMap is, by three annotations that are present and true.
func (o *oracle) copyOf(cm *corev1.ConfigMap) (of key, ours bool) {
	if cm == nil {
		return of, false
	}
	from := strings.Split(cm.Annotations[plan.SourceAnnotation], "/")
	if len(from) != 2 || from[0] == "" || from[0] == cm.Namespace || from[1] != cm.Name || !namesItself(cm) ||
		cm.Annotations[plan.InstanceAnnotation] != o.flags.Instance {
		return of, false
	}
	return types.NamespacedName{Namespace: from[0], Name: from[1]}, true
}

func (o *oracle) asksToBeMirrored(cm *corev1.ConfigMap) bool {
	return cm.Labels[o.flags.Label] == "true" && !namesItself(cm) && cm.DeletionTimestamp == nil
}

func (o *oracle) isHandedOver(cm *corev1.ConfigMap) bool {
	mine := !namesItself(cm) || cm.Annotations[plan.InstanceAnnotation] == o.flags.Instance
	return cm.Annotations[plan.AdoptAnnotation] == "true" && len(cm.Finalizers) == 0 && !o.asksToBeMirrored(cm) && mine
}

func (o *oracle) isShown(cm *corev1.ConfigMap) bool {
	return cm.Labels[o.flags.Label] == "true" || cm.Labels[o.flags.Label] == "copy"
}

func (o *oracle) allowsSource(namespace string) bool {
	return len(o.flags.SourceNamespaces) == 0 || slices.Contains(o.flags.SourceNamespaces, namespace)
}

func (o *oracle) allowsName(namespace string) bool {
	return (o.flags.AllNamespaces || slices.ContainsFunc(o.flags.NamespacePrefixes, func(p string) bool {
		return strings.HasPrefix(namespace, p)
	})) && !isListed(o.flags.ExcludeNamespaces, namespace)
}

func (o *oracle) allowsLabels(ns *corev1.Namespace) bool {
	return matches(o.flags.NamespaceSelector, ns)
}

func namesItself(cm *corev1.ConfigMap) bool {
	return cm.Annotations[plan.CopyAnnotation] == cm.Namespace+"/"+cm.Name
}

func samePayload(a, b *corev1.ConfigMap) bool {
	return equality.Semantic.DeepEqual(a.Data, b.Data) && equality.Semantic.DeepEqual(a.BinaryData, b.BinaryData) &&
		isTrue(a.Immutable) == isTrue(b.Immutable)
}

func isTrue(b *bool) bool { return b != nil && *b }

func isGoing(ns *corev1.Namespace) bool { return ns.Status.Phase == corev1.NamespaceTerminating }

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
