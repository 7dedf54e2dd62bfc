package main

import (
	"fmt"
	"slices"
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
	return !slices.ContainsFunc(s.Checks, func(c check) bool { return !c.Holds })
}

// sourceRules are the rules by which a ConfigMap is a source. The options are those of the controller.
func sourceRules(o *plan.Options, cm *corev1.ConfigMap) section {
	s := section{Title: fmt.Sprintf("ConfigMap %s is a source", plan.KeyOf(cm))}
	s.add(cm.Labels[o.Label] == plan.SourceValue, fmt.Sprintf("It has the label %s=%s.", o.Label, plan.SourceValue),
		valueOf("label", cm.Labels, o.Label), fmt.Sprintf("kubectl -n %s label configmap %s %s=%s --overwrite", cm.Namespace, cm.Name, o.Label, plan.SourceValue))
	s.add(!plan.NamesItself(cm), fmt.Sprintf("The annotation %s does not name it: a copy is never a source.", plan.CopyAnnotation),
		foundCopyAnnotation(cm), "create it anew without the annotations of a copy")
	s.add(cm.DeletionTimestamp == nil, "It is not being deleted.", deletion(cm.DeletionTimestamp != nil), "create it anew when it is gone")
	s.add(plan.NewRules(o).AllowsSource(cm.Namespace), "The flag --source-namespace allows its namespace.", listed("--source-namespace", o.SourceNamespaces, "all are allowed"),
		fmt.Sprintf("create it in one of these namespaces, or start the controller with --source-namespace=%s", cm.Namespace))
	s.add(!plan.Reserved(cm.Name), "No other controller writes a ConfigMap of its name into every namespace.", "its name is "+cm.Name, "give it another name")
	return s
}

// freezeRules are the rules by which a source is not frozen.
func freezeRules(s *plan.Source) section {
	out := section{Title: fmt.Sprintf("Source %s is not frozen", s.Key)}
	finding := "they are, or there is none"
	if s.Frozen != nil {
		finding = strings.ReplaceAll(s.Frozen.Error(), "\n", "; ")
	}
	out.add(s.Frozen == nil, "Its annotations under "+plan.Domain+" are known and well-formed.", finding, "fix the annotation. Until then its copies stay as they are")
	return out
}

// copyRules are the rules by which a ConfigMap is a copy of this controller.
func copyRules(o *plan.Options, cm *corev1.ConfigMap) section {
	_, names := plan.NamedSource(cm)
	s := section{Title: fmt.Sprintf("ConfigMap %s is a copy of instance %s", plan.KeyOf(cm), o.Instance)}
	s.add(plan.NamesItself(cm), fmt.Sprintf("The annotation %s names the ConfigMap itself.", plan.CopyAnnotation), foundCopyAnnotation(cm), "")
	s.add(cm.Annotations[plan.InstanceAnnotation] == o.Instance, fmt.Sprintf("The annotation %s is that of the controller, %s.", plan.InstanceAnnotation, o.Instance),
		valueOf("annotation", cm.Annotations, plan.InstanceAnnotation), "")
	s.add(names, fmt.Sprintf("The annotation %s names a ConfigMap of this name in another namespace.", plan.SourceAnnotation),
		valueOf("annotation", cm.Annotations, plan.SourceAnnotation), "")
	return s
}

func foundCopyAnnotation(cm *corev1.ConfigMap) string {
	if plan.NamesItself(cm) {
		return fmt.Sprintf("annotation %s=%q", plan.CopyAnnotation, plan.KeyOf(cm))
	}
	return valueOf("annotation", cm.Annotations, plan.CopyAnnotation)
}

// namespaceRules are the rules by which a namespace is a target, whatever the source. ns is nil if there is none.
func namespaceRules(o *plan.Options, name string, ns *corev1.Namespace) section {
	s := section{Title: fmt.Sprintf("Namespace %s is a target", name)}
	s.add(ns != nil, "It exists.", map[bool]string{true: "it does", false: "there is none"}[ns != nil], "kubectl create namespace "+name)
	if ns != nil {
		s.add(!plan.Terminating(ns), "It is not being deleted.", deletion(plan.Terminating(ns)), "create it anew when it is gone")
	}
	alone := func(o plan.Options) bool { return plan.NewRules(&o).AllowsTarget(name) } // whether these options allow the name
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
	finding := valueOf("label", ns.Labels, o.Label)
	if value, ok := ns.Labels[o.Label]; ok && value != plan.OptOutValue {
		finding += fmt.Sprintf(", which means nothing: only %s=%s opts out", o.Label, plan.OptOutValue)
	}
	s.add(ns.Labels[o.Label] != plan.OptOutValue, fmt.Sprintf("It has not opted out by the label %s=%s.", o.Label, plan.OptOutValue),
		finding, fmt.Sprintf("kubectl label namespace %s %s-", name, o.Label))
	return s
}

// narrowingRules are the rules by which a source selects a namespace that is a target.
func narrowingRules(s *plan.Source, ns *corev1.Namespace) section {
	out := section{Title: fmt.Sprintf("Source %s selects namespace %s", s.Key, ns.Name)}
	out.add(ns.Name != s.Key.Namespace, "It is not the source's own namespace.", "the source is in namespace "+s.Key.Namespace, "")
	for annotation, selects := range map[string]func(*corev1.Namespace) bool{plan.PrefixAnnotation: s.SelectsName, plan.SelectorAnnotation: s.SelectsLabels} {
		if value, ok := s.ConfigMap.Annotations[annotation]; ok {
			out.add(selects(ns), fmt.Sprintf("The source's annotation %s allows it.", annotation), fmt.Sprintf("%s=%q", annotation, value),
				fmt.Sprintf("change the annotation of %s", s.Key))
		}
	}
	return out
}

// holdRules are the rules by which a change of a source that holds targets reaches the namespace.
func holdRules(s *plan.Source, ns *corev1.Namespace) section {
	out := section{Title: fmt.Sprintf("A change of source %s reaches namespace %s", s.Key, ns.Name)}
	by, remedy := s.Hold()
	out.add(!s.Holds(ns), "The source's annotations rollout and paused let it through.", by, fmt.Sprintf("%s of %s", remedy, s.Key))
	return out
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
	return map[bool]string{true: "it is being deleted", false: "it is not"}[deleting]
}
