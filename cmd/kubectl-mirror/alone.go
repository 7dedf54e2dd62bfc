package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// explainAlone explains a ConfigMap that is no source to a user who may see no more than its namespace. cm is nil if
// there is none, and ns if the user may not see the namespace.
func explainAlone(rules *plan.Rules, key types.NamespacedName, cm *corev1.ConfigMap, ns *corev1.Namespace) *explanation {
	optedOut := ns != nil && ns.Labels[rules.Label()] == plan.OptOutValue
	if cm == nil {
		x := &explanation{Verdict: fmt.Sprintf("There is no ConfigMap %s. You may not see whether a source claims it.", key)}
		if optedOut {
			x.Verdict = fmt.Sprintf("There is no ConfigMap %s, and no copy is wanted: the namespace opts out.", key)
		}
		return x
	}
	switch m := plan.MarksOf(cm); {
	case m.Itself && m.Source.Name != "":
		return explainCopyAlone(rules, key, cm, m, optedOut)
	case m.Source.Name != "" && cm.Annotations[plan.CopyAnnotation] == "":
		return &explanation{Verdict: fmt.Sprintf("ConfigMap %s was a copy of %s, and is released: its marks are not complete, "+
			"so no controller changes it. You may not see whether the source waits for the name.", key, m.Source)}
	case toPublish(rules, cm) != "":
		return &explanation{Verdict: fmt.Sprintf("ConfigMap %s is neither a source nor a copy.%s", key, toPublish(rules, cm))}
	}
	x := &explanation{Verdict: fmt.Sprintf("ConfigMap %s is no copy, and no controller changes it. You may not see whether "+
		"a source of this name waits for it to go.", key)}
	if why, adoptable := rules.Foreign(cm); adoptable {
		x.Remedy = "if a copy should be there, " + handOver(key)
	} else {
		x.Verdict += " A copy could not take its place: " + why + "."
	}
	return x
}

func explainCopyAlone(rules *plan.Rules, key types.NamespacedName, cm *corev1.ConfigMap, m plan.Marks, optedOut bool) *explanation {
	content := "matches its checksum."
	if !rules.MatchesChecksum(cm) {
		content = "does not match its checksum: it was edited, and is restored unless its source is gone or holds it."
	}
	x := &explanation{Verdict: fmt.Sprintf("ConfigMap %s is a copy of %s, by its annotations, of instance %s. Its content %s",
		key, m.Source, m.Instance, content)}
	label := fmt.Sprintf("%s=%s", rules.Label(), plan.OptOutValue)
	if optedOut {
		x.Verdict += fmt.Sprintf(" It is deleted at the end of the deletion grace, unless its source holds it: the namespace "+
			"opts out by its label %s.", label)
		x.Remedy = fmt.Sprintf(labelNamespace+"-", key.Namespace, rules.Label())
		return x
	}
	x.Remedy = fmt.Sprintf("ask the owner of %s to leave your namespace out, or opt out of all copies, "+labelNamespace,
		m.Source, key.Namespace, label)
	return x
}

// toPublish says how to publish a ConfigMap whose label has another value, as one that was made from a copy; it is
// empty for any other.
func toPublish(rules *plan.Rules, cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}
	value, has := cm.Labels[rules.Label()]
	if !has || value == plan.SourceValue || plan.MarksOf(cm).Itself {
		return ""
	}
	return fmt.Sprintf(" Its label %s=%s does not publish it: kubectl label configmap/%s -n %s %[1]s=%[5]s --overwrite",
		rules.Label(), value, cm.Name, cm.Namespace, plan.SourceValue)
}

// handOver is the command that hands a foreign ConfigMap over.
func handOver(k types.NamespacedName) string {
	return fmt.Sprintf("delete or rename it, or hand it over, which REPLACES ITS DATA: "+
		"kubectl annotate -n %s configmap %s %s=%s", k.Namespace, k.Name, plan.AdoptAnnotation, plan.AdoptValue)
}
