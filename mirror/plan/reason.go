package plan

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Decisions in words. Values of labels and annotations are in them as they stand: a tenant may have written these.

// Reason returns why the target is in its state, in words; empty if it is in sync, or no copy is wanted. c was decided
// by v and t.
func (r *Rules) Reason(v *View, t Target, c Change) string {
	switch c.Status() {
	case StatePending:
		return r.pendingReason(t, c)
	case StateExpiring, StateOutOfScope:
		why, _ := r.Explain(c.Why)
		return why
	case StateForeign:
		why, _ := r.Foreign(t.Have)
		return why
	case StateFrozen:
		return "an annotation of " + c.CopyOf.String() + " is malformed or not known: the copy stays as it is"
	case StateHeld:
		return r.heldReason(v, c)
	}
	return ""
}

// repairs say what another client did to a copy.
var repairs = map[string]string{
	CauseDeleted:    "the copy was deleted",
	CauseEdited:     "the copy was edited",
	CauseUnlabelled: "the copy has lost its label",
	CauseMetadata:   "labels or annotations of the copy were edited",
	"":              "the source has changed",
}

func (r *Rules) pendingReason(t Target, c Change) string {
	switch {
	case c.Op == OpCreate:
		return "there is no copy yet"
	case c.Op == OpNone && len(t.Have.Finalizers) > 0:
		return "it is being deleted, and held by the finalizer " + t.Have.Finalizers[0]
	case c.Op == OpNone:
		return "it is being deleted"
	}
	why := repairs[r.RepairCause(c, false)]
	switch {
	case c.CopyOf.Name == "": // foreign
		why = "its owner has handed it over: its data is replaced"
	case c.CopyOf != c.Source.Key:
		why = "it is a copy of " + c.CopyOf.String() + ", whose place the source takes"
	}
	if c.Op == OpRecreate {
		why += "; " + c.WhyRecreated() + ", so it is deleted and created again"
	}
	return why
}

// Restored says that the change restored a copy, why, and how to keep a ConfigMap of one's own. cause is that of
// [Rules.RepairCause], and not empty.
func (r *Rules) Restored(c Change, cause string) string {
	return "Restored from the source " + c.Source.Key.String() + ", because " + repairs[cause] +
		". To change it, change the source. To keep a ConfigMap of your own, give it another name. Or, if you may patch " +
		"the namespace, label it " + r.label + "=" + OptOutValue + ", which removes all copies from it."
}

func (r *Rules) heldReason(v *View, c Change) string {
	by, _ := v.Find(c.CountsFor()).Hold()
	return c.CountsFor().String() + " holds the target, which stays as it is, by the annotation " + by
}

// WhyRecreated returns why the change deletes the object and creates it again, in words. Its Op is OpRecreate.
func (c Change) WhyRecreated() string {
	if forbidsContent(c.Source, c.Have) {
		return "it is immutable"
	}
	return "its metadata takes more than 8 KiB"
}

// Foreign returns why have, a foreign object, is in the way of a copy, in words, and whether its owner can hand it
// over.
func (r *Rules) Foreign(have *corev1.ConfigMap) (why string, adoptable bool) {
	owner := have.Annotations[InstanceAnnotation]
	switch {
	case r.AsksToBeMirrored(have):
		return "another source of this name is there", false
	case NamesItself(have) && owner == "":
		return "a copy of no instance is there", false
	case NamesItself(have) && owner != r.instance:
		return "a copy of instance " + clip(owner) + " is there", false
	case len(have.Finalizers) > 0:
		return "a foreign ConfigMap of this name is there, and its finalizer " + clip(have.Finalizers[0]) +
			" keeps it from being handed over", false
	}
	return "a foreign ConfigMap of this name is there", true
}

// clip shortens a value to maxQuoted bytes.
func clip(value string) string {
	if len(value) <= maxQuoted {
		return value
	}
	return strings.ToValidUTF8(value[:maxQuoted], "") + "…"
}

// exclusions say, of each rule by which a source has a copy in a namespace, what it asks for, why there is no copy
// where it does not hold, and what its owner can do about that.
var exclusions = map[Exclusion]struct{ rule, why, remedy string }{
	SourceGone: {"there is a source", "the source is deleted, or has lost its label {label}=true",
		"create the source again, or label it again"},
	ExcludedSource: {"the source is allowed by --source-namespace, has no reserved name, and is not frozen",
		"--source-namespace does not allow the source", "start the controller with other flags"},
	ExcludedName: {"--namespace-prefix allows the namespace, which is not that of the source",
		"--namespace-prefix does not allow the namespace", "start the controller with other flags"},
	ExcludedExplicitly: {"--exclude-namespace does not name the namespace",
		"--exclude-namespace names the namespace", "start the controller with other flags"},
	ExcludedByPrefix: {"the source's annotation namespace-prefix allows the namespace",
		"the source's annotation {annotation} rules the namespace out", "correct the annotation"},
	ExcludedTerminating: {"the namespace is not being deleted", "the namespace is being deleted",
		"create it again when it is gone"},
	ExcludedByOptOut: {"the namespace has no label {label}=false", "the namespace has the label {label}=false",
		"remove that label"},
	ExcludedBySelector: {"the source's annotation namespace-selector matches the namespace",
		"the source's annotation {annotation} does not match the namespace",
		"correct the annotation, or the labels of the namespace"},
	ExcludedByNamespaceSelector: {"the controller's --namespace-selector matches the namespace",
		"the controller's --namespace-selector does not match the namespace", "correct the labels of the namespace"},
}

// Explain returns why no source claims a copy, and how its owner can keep it or get it back.
func (r *Rules) Explain(l Loss) (why, remedy string) {
	x := exclusions[l.Rule]
	return strings.NewReplacer("{label}", r.label, "{annotation}", l.Annotation).Replace(x.why), x.remedy
}

// ExplainExclusion is [Rules.Explain] of what keeps the source from the namespace.
func (r *Rules) ExplainExclusion(s *Source, ns *corev1.Namespace) (why, remedy string) {
	return r.Explain(s.lossBy(r.Exclusion(s, ns)))
}

// Judgement is one rule by which a source has a copy in a namespace, in words, and whether it holds.
type Judgement struct {
	Text  string `json:"text"`
	Holds bool   `json:"holds"`
}

// Judge returns every rule. The first that does not hold is the one that [Rules.Exclusion] returns.
func (r *Rules) Judge(s *Source, ns *corev1.Namespace) (all []Judgement) {
	for _, rule := range []struct {
		exclusion Exclusion
		holds     bool
	}{
		{ExcludedSource, !s.OutOfScope && !s.Reserved && s.Frozen == nil},
		{ExcludedName, ns.Name != s.Key.Namespace && hasAnyPrefix(ns.Name, r.prefixes)},
		{ExcludedExplicitly, !r.excluded.match(ns.Name)},
		{ExcludedByPrefix, s.SelectsName(ns)},
		{ExcludedTerminating, !Terminating(ns)},
		{ExcludedByOptOut, ns.Labels[r.label] != OptOutValue},
		{ExcludedBySelector, s.SelectsLabels(ns)},
		{ExcludedByNamespaceSelector, r.Selects(ns)},
	} {
		text, _ := r.Explain(s.lossBy(rule.exclusion))
		if rule.holds {
			text = strings.ReplaceAll(exclusions[rule.exclusion].rule, "{label}", r.label)
		}
		all = append(all, Judgement{text, rule.holds})
	}
	return all
}

// outdated matches a refusal of the policy in deploy/components/admission/confined that goes by a setting of the policy:
// an annotation of the ClusterRoleBinding.
var outdated = regexp.MustCompile(`mirror-controller may only write (to namespaces|and delete copies of sources in) ` +
	`.*settings: annotations of ClusterRoleBinding ([-.a-zA-Z0-9]+)`)

// PolicyRemedy returns the command by which the settings of the policy follow the flags, if the API server refuses a write
// because they differ. It is empty for another refusal, and where the refusal names what the flags say.
func (r *Rules) PolicyRemedy(refusal string) string {
	m := outdated.FindStringSubmatch(refusal)
	if m == nil {
		return ""
	}
	flag, values := "namespace-prefix", r.prefixes
	if m[1] != "to namespaces" {
		flag, values = "source-namespace", r.sourceNamespaces
	}
	setting := flag + "=" + strings.Join(values, ",")
	named := `"` + strings.Join(values, `" or "`) + `"`
	switch {
	case len(values) == 0:
		setting = flag + "-"
	case values[0] == "": // --all-namespaces
		setting, named = "all-namespaces=true", "namespaces that are not excluded"
	}
	if strings.Contains(refusal, named) || strings.Contains(refusal, "to namespaces that are not excluded") {
		return ""
	}
	return "kubectl annotate --overwrite clusterrolebinding " + m[2] + " " + Domain + "/" + setting
}

// AnySource returns a source that narrows nothing and is in no namespace: what keeps it from a namespace keeps each
// source from it.
func AnySource() *Source { return &Source{selector: labels.Everything()} }

// Excluded returns the rules that keep the source from the namespaces that the flags allow, sorted; nil if it has a
// target. It returns [ExcludedName] alone if the flags allow no namespace.
func (r *Rules) Excluded(s *Source, namespaces iter.Seq[*corev1.Namespace]) []Exclusion {
	all := map[Exclusion]bool{}
	for ns := range namespaces {
		switch e := r.Exclusion(s, ns); e {
		case NotExcluded:
			return nil
		case ExcludedByPrefix, ExcludedByOptOut, ExcludedBySelector:
			if r.Selects(ns) {
				all[e] = true
			}
		}
	}
	if len(all) == 0 {
		return []Exclusion{ExcludedName}
	}
	return slices.Sorted(maps.Keys(all))
}

// ExplainExcluded says what keeps a source from all namespaces, and what its owner can do about that. excluded is what
// [Rules.Excluded] returned.
func (r *Rules) ExplainExcluded(s *Source, excluded []Exclusion) (why, remedy string) {
	if slices.Equal(excluded, []Exclusion{ExcludedName}) {
		return strings.Replace(r.noNamespace(), "no namespace", "no other namespace", 1),
			"create such a namespace, or start the controller with other flags"
	}
	var reasons, remedies []string
	for _, e := range excluded {
		why, remedy := r.Explain(s.lossBy(e))
		reasons, remedies = append(reasons, why), append(remedies, remedy)
	}
	return strings.Join(reasons, ", or "), strings.Join(remedies, "; ")
}

// WithoutTarget says why the flags allow none of the namespaces; empty if they allow one.
func (r *Rules) WithoutTarget(namespaces iter.Seq[*corev1.Namespace]) string {
	for ns := range namespaces {
		if r.AllowsTarget(ns.Name) && r.Selects(ns) {
			return ""
		}
	}
	return "No namespace is a target: " + r.noNamespace()
}

// noNamespace says, by the flags, which namespace there is none of if nothing can be a target.
func (r *Rules) noNamespace() string {
	const excluded = ", apart from those that --exclude-namespace names"
	text := "there is no namespace" + excluded
	if !slices.Equal(r.prefixes, []string{""}) {
		text = "no namespace begins with " + strings.Join(r.prefixes, " or ") + excluded
	}
	if !r.selector.Empty() {
		text += ", and has labels that match --namespace-selector=" + clip(r.selector.String())
	}
	return text
}
