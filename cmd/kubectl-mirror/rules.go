package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// check is one rule of the contract, and whether it holds.
type check struct {
	Holds bool   `json:"holds"`
	Rule  string `json:"rule"`
	// Finding is what is there.
	Finding string `json:"finding"`
	// Remedy says what would change it; empty if it holds.
	Remedy string `json:"remedy,omitempty"`
}

// section is a list of rules that all have to hold for its title.
type section struct {
	Title  string  `json:"title"`
	Checks []check `json:"checks"`
}

func (s *section) add(holds bool, rule, finding, remedy string) {
	if holds {
		remedy = ""
	}
	s.Checks = append(s.Checks, check{holds, rule, finding, remedy})
}

// holds reports whether all rules of the section hold.
func (s *section) holds() bool {
	for _, c := range s.Checks {
		if !c.Holds {
			return false
		}
	}
	return true
}

// sourceRules are the rules by which a ConfigMap is a source. The options are those of the controller.
func sourceRules(o *plan.Options, cm *corev1.ConfigMap) section {
	rules, key := plan.NewRules(o), plan.KeyOf(cm)
	s := section{Title: fmt.Sprintf("ConfigMap %s is a source", key)}
	s.add(cm.Labels[o.Label] == plan.SourceValue, fmt.Sprintf("It has the label %s=%s.", o.Label, plan.SourceValue),
		valueOf("label", cm.Labels, o.Label), fmt.Sprintf("kubectl -n %s label configmap %s %s=%s --overwrite", cm.Namespace, cm.Name, o.Label, plan.SourceValue))
	s.add(!namesItself(cm), fmt.Sprintf("The annotation %s does not name it: a copy is never a source.", plan.CopyAnnotation),
		foundCopyAnnotation(cm), "create it anew without the annotations of a copy")
	s.add(cm.DeletionTimestamp == nil, "It is not being deleted.", deletion(cm.DeletionTimestamp != nil), "create it anew when it is gone")
	s.add(rules.AllowsSource(cm.Namespace), "The flag --source-namespace allows its namespace.", listed("--source-namespace", o.SourceNamespaces, "all are allowed"),
		fmt.Sprintf("create it in one of these namespaces, or start the controller with --source-namespace=%s", cm.Namespace))
	s.add(!plan.Reserved(cm.Name), "No other controller writes a ConfigMap of its name into every namespace.", "its name is "+cm.Name, "give it another name")
	return s
}

// freezeRules are the rules by which a source is not frozen.
func freezeRules(s *plan.Source) section {
	out := section{Title: fmt.Sprintf("Source %s is not frozen", s.Key)}
	finding := "they are well-formed, or absent"
	if s.Frozen != nil {
		finding = frozenNote(s)
	}
	out.add(s.Frozen == nil, "The annotations that narrow its targets are well-formed.", finding,
		"fix the annotation. Until then its copies stay as they are")
	return out
}

// frozenNote says why a source is frozen.
func frozenNote(s *plan.Source) string {
	return printable(strings.ReplaceAll(s.Frozen.Error(), "\n", "; "))
}

// copyRules are the rules by which a ConfigMap is a copy of this controller.
func copyRules(o *plan.Options, cm *corev1.ConfigMap) section {
	key := plan.KeyOf(cm)
	s := section{Title: fmt.Sprintf("ConfigMap %s is a copy of instance %s", key, o.Instance)}
	s.add(namesItself(cm), fmt.Sprintf("The annotation %s names the ConfigMap itself.", plan.CopyAnnotation), foundCopyAnnotation(cm), "")
	s.add(cm.Annotations[plan.InstanceAnnotation] == o.Instance, fmt.Sprintf("The annotation %s is that of the controller, %s.", plan.InstanceAnnotation, o.Instance),
		valueOf("annotation", cm.Annotations, plan.InstanceAnnotation), "")
	s.add(namesSource(cm), fmt.Sprintf("The annotation %s names a ConfigMap of this name in another namespace.", plan.SourceAnnotation),
		valueOf("annotation", cm.Annotations, plan.SourceAnnotation), "")
	return s
}

// namesSource reports whether the source annotation of cm is that of a copy. Package plan decides, about an object whose
// other annotations are.
func namesSource(cm *corev1.ConfigMap) bool {
	probe := &corev1.ConfigMap{}
	probe.Namespace, probe.Name = cm.Namespace, cm.Name
	probe.Annotations = map[string]string{
		plan.CopyAnnotation:     plan.KeyOf(cm).String(),
		plan.SourceAnnotation:   cm.Annotations[plan.SourceAnnotation],
		plan.InstanceAnnotation: "any",
	}
	_, ours := plan.NewRules(&plan.Options{Instance: "any"}).SourceOf(probe)
	return ours
}

// namesItself reports whether the copy annotation of cm names cm. Package plan decides: such an object is never a source.
func namesItself(cm *corev1.ConfigMap) bool {
	probe := cm.DeepCopy()
	probe.Labels = map[string]string{plan.DefaultLabel: plan.SourceValue}
	probe.DeletionTimestamp = nil
	return !plan.NewRules(&plan.Options{Label: plan.DefaultLabel}).AsksToBeMirrored(probe)
}

func foundCopyAnnotation(cm *corev1.ConfigMap) string {
	if namesItself(cm) {
		return fmt.Sprintf("annotation %s=%q", plan.CopyAnnotation, plan.KeyOf(cm))
	}
	return valueOf("annotation", cm.Annotations, plan.CopyAnnotation)
}

// namespaceRules are the rules by which a namespace is a target, whatever the source. ns is nil if there is none.
func namespaceRules(o *plan.Options, name string, ns *corev1.Namespace) section {
	s := section{Title: fmt.Sprintf("Namespace %s is a target", name)}
	s.add(ns != nil, "It exists.", existence(ns), "kubectl create namespace "+name)
	if ns != nil {
		s.add(!plan.Terminating(ns), "It is not being deleted.", deletion(plan.Terminating(ns)), "create it anew when it is gone")
	}
	alone := func(change plan.Options) bool { // whether the name is allowed by these options alone
		change.Label = o.Label
		return plan.NewRules(&change).AllowsTarget(name)
	}
	if !o.AllNamespaces {
		s.add(alone(plan.Options{NamespacePrefixes: o.NamespacePrefixes}), "Its name begins with a --namespace-prefix.",
			listed("--namespace-prefix", o.NamespacePrefixes, ""), "start the controller with another --namespace-prefix")
	}
	s.add(alone(plan.Options{AllNamespaces: true, ExcludeNamespaces: o.ExcludeNamespaces}), "No --exclude-namespace names it.",
		listed("--exclude-namespace", o.ExcludeNamespaces, "none is excluded"), "start the controller with another --exclude-namespace")
	switch {
	case ns == nil:
		return s
	case plan.LabelsTruncated(ns):
		s.add(false, "Its labels take at most 8 KiB: nothing is changed where they take more.", "they take more", "remove labels of the namespace")
		return s
	}
	if o.NamespaceSelector != "" {
		s.add(plan.NewRules(o).Selects(ns), "Its labels match --namespace-selector.", fmt.Sprintf("--namespace-selector=%q", o.NamespaceSelector),
			"label the namespace so that it matches")
	}
	s.add(ns.Labels[o.Label] != plan.OptOutValue, fmt.Sprintf("It has not opted out by the label %s=%s.", o.Label, plan.OptOutValue),
		valueOf("label", ns.Labels, o.Label), fmt.Sprintf("kubectl label namespace %s %s-", name, o.Label))
	return s
}

// narrowingRules are the rules by which a source selects a namespace that is a target.
func narrowingRules(s *plan.Source, ns *corev1.Namespace) section {
	out := section{Title: fmt.Sprintf("Source %s selects namespace %s", s.Key, ns.Name)}
	out.add(ns.Name != s.Key.Namespace, "It is not the source's own namespace.", "the source is in namespace "+s.Key.Namespace, "")
	for _, annotation := range []string{plan.PrefixAnnotation, plan.SelectorAnnotation} {
		value, ok := s.ConfigMap.Annotations[annotation]
		if ok {
			out.add(selects(annotation, value, ns), fmt.Sprintf("The source's annotation %s allows it.", annotation), fmt.Sprintf("%s=%q", annotation, value),
				fmt.Sprintf("change the annotation of %s", s.Key))
		}
	}
	return out
}

// selects reports whether one annotation of a source selects a namespace. Package plan decides, about a source that has no
// other annotation, by options that allow everything.
func selects(annotation, value string, ns *corev1.Namespace) bool {
	rules := plan.NewRules(&plan.Options{AllNamespaces: true, Label: plan.Domain + "/none"})
	probe := &corev1.ConfigMap{}
	probe.Annotations = map[string]string{annotation: value}
	live := ns.DeepCopy()
	live.DeletionTimestamp, live.Status.Phase = nil, corev1.NamespaceActive
	return rules.Winner(plan.NewView([]*plan.Source{rules.ParseSource(probe)}), live) != nil
}

// valueOf says which value of a label or annotation is there.
func valueOf(kind string, all map[string]string, key string) string {
	if value, ok := all[key]; ok {
		return fmt.Sprintf("%s %s=%q", kind, key, value)
	}
	return fmt.Sprintf("no %s %s", kind, key)
}

func listed(flag string, values []string, none string) string {
	if len(values) == 0 {
		return "no " + flag + ": " + none
	}
	return flag + "=" + strings.Join(values, ",")
}

func deletion(deleting bool) string {
	if deleting {
		return "it is being deleted"
	}
	return "it is not"
}

func existence(ns *corev1.Namespace) string {
	if ns == nil {
		return "there is none"
	}
	return "it does"
}
