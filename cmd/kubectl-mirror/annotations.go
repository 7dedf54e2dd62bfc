package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// followArguments is the remedy for annotations that differ from the flags.
const followArguments = ": have the annotations of the ClusterRoleBinding follow the arguments: " +
	"see deploy/docs/policies.md"

// ofInstallation is the label of the ClusterRoleBinding of a controller, by
// which the bindings of its policies find it.
const ofInstallation = plan.Domain + "/installation"

// ownBinding returns the ClusterRoleBinding that names the account of the
// controller; nil if there is none.
func (k *checker) ownBinding(ctx context.Context) (*rbacv1.ClusterRoleBinding, error) {
	all, err := k.Client.RbacV1().ClusterRoleBindings().
		List(ctx, metav1.ListOptions{LabelSelector: ofInstallation})
	if err != nil {
		return nil, err
	}
	isAccount := func(s rbacv1.Subject) bool { return account(s.Namespace, s.Name) == k.account() }
	for _, b := range all.Items {
		if slices.ContainsFunc(b.Subjects, isAccount) {
			return &b, nil
		}
	}
	return nil, nil
}

// checkSettings compares the flags with the annotations of the
// ClusterRoleBinding. The policies go by these annotations: they cannot read
// the arguments of a Deployment.
func (k *checker) checkSettings(ctx context.Context) finding {
	own, err := k.ownBinding(ctx)
	switch {
	case err != nil:
		return unknown(err)
	case own == nil:
		return todo("no ClusterRoleBinding with the label " + ofInstallation + " names " +
			k.account() + ": bind the account as deploy/base/rbac.yaml does")
	}
	text := "the annotations of ClusterRoleBinding " + own.Name
	differs := k.settings.differsFrom(own.Annotations)
	if len(differs) > 0 {
		return todo(text + " differ from the flags: " + strings.Join(differs, "; ") +
			followArguments)
	}
	return ok(text + " follow the flags")
}

// annotated are the flags that annotations repeat, under their names: see
// deploy/docs/policies.md. What is copied of metadata, the last two of
// decidingFlags, matters to no policy.
var annotated = append(decidingFlags[:8:8],
	"leader-elect-resource-name", "leader-elect-resource-namespace")

// differsFrom returns how annotations differ from the flags that they repeat.
// An annotation that is missing stands for the default of its flag.
func (s *settings) differsFrom(annotations map[string]string) (differs []string) {
	for _, name := range annotated {
		flag := s.flags.Lookup(name)
		value, ok := annotations[plan.Domain+"/"+name]
		if !ok {
			value = flag.DefValue
		}
		wanted := flag.Value.String()
		isSelector := name == "namespace-selector" // the only one with several lines
		if isSelector {
			wanted = requirements(wanted)
		}
		if !items(value).Equal(items(wanted)) || !isSelector && strings.Contains(value, "\n") {
			differs = append(differs, fmt.Sprintf("%s is %q, and the flag %q", name, value, wanted))
		}
	}
	return differs
}

// operators are those of a requirement of a selector, as the annotation has
// them.
var operators = map[selection.Operator]string{
	selection.In:           "In",
	selection.Equals:       "In",
	selection.DoubleEquals: "In",
	selection.NotIn:        "NotIn",
	selection.NotEquals:    "NotIn",
	selection.Exists:       "Exists",
	selection.DoesNotExist: "DoesNotExist",
}

// requirements returns a selector as the annotation has it, one requirement a
// line. Of "team in (red,blue),!frozen" these are "team In blue,red" and
// "frozen DoesNotExist".
func requirements(selector string) string {
	parsed, _ := labels.ParseToRequirements(selector) // it is valid
	var lines []string
	for _, r := range parsed {
		values := strings.Join(r.Values().List(), ",")
		lines = append(lines, strings.TrimSpace(r.Key()+" "+operators[r.Operator()]+" "+values))
	}
	return strings.Join(lines, "\n")
}

// items returns the lines of an annotation, each with the comma-separated items
// after its last blank in order: two annotations with the same items mean the
// same.
func items(value string) sets.Set[string] {
	all := sets.New[string]()
	for line := range strings.SplitSeq(value, "\n") {
		head := line[:strings.LastIndex(line, " ")+1]
		list := strings.Split(line[len(head):], ",")
		all.Insert(head + strings.Join(sets.List(sets.New(list...)), ","))
	}
	return all.Delete("")
}
