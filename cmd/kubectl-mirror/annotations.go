package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
		lines := wanted
		if name == "namespace-selector" {
			lines = requirements(wanted)
		}
		if ordered(value) != ordered(lines) {
			differs = append(differs, fmt.Sprintf("%s is %q, and the flag %q", name, value, wanted))
		}
	}
	return differs
}

// requirements returns a selector with one requirement a line.
func requirements(selector string) (lines string) {
	parsed, _ := labels.ParseToRequirements(selector) // it is valid
	for _, r := range parsed {
		lines += r.String() + "\n"
	}
	return lines
}

// asAnnotation gives the requirements of a selector the words of an annotation,
// in whatever order: "team in (red,blue)" becomes "team In red,blue", and "!frozen"
// becomes "DoesNotExist frozen". It leaves out Exists, which a selector does not
// have.
var asAnnotation = strings.NewReplacer(
	" in (", " In ", " notin (", " NotIn ", ")", "", " Exists", "",
	"!=", " NotIn ", "!", "DoesNotExist ", "==", " In ", "=", " In ")

// ordered returns the lines of an annotation or a flag, and the words and items
// of each line, in an order that two texts share if they mean the same.
func ordered(text string) string {
	lines := strings.Split(strings.TrimSpace(asAnnotation.Replace(text)), "\n")
	for i, line := range lines {
		items := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == ',' })
		slices.Sort(items)
		lines[i] = strings.Join(items, " ")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
