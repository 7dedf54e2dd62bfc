package plan

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options decide which ConfigMaps are mirrored into which namespaces. The
// controller and kubectl-mirror share them.
type Options struct {
	// NamespacePrefixes are the literal prefixes of names of target namespaces.
	NamespacePrefixes []string
	// AllNamespaces makes every namespace a target, instead of prefixes.
	AllNamespaces bool
	// NamespaceSelector is a label selector that the labels of a target match. The
	// empty one matches all.
	NamespaceSelector string
	// ExcludeNamespaces are names, or prefixes ending in '*', of namespaces that
	// are never targets.
	ExcludeNamespaces []string
	// SourceNamespaces, if any, are the only namespaces whose ConfigMaps can be
	// sources.
	SourceNamespaces []string
	// Label is the key of the mirror label, see [DefaultLabel].
	Label string
	// Instance tells the copies of one controller from those of another.
	Instance string
	// CopyLabels and CopyAnnotations are keys, or prefixes ending in '*', that are
	// copied with a source.
	CopyLabels, CopyAnnotations []string
	// Prune has unclaimed copies that are out of scope expire as others do; see
	// [Rules.Decide].
	Prune bool
}

// NewOptions returns the defaults. Without a prefix they are not valid.
func NewOptions() Options {
	return Options{
		ExcludeNamespaces: []string{"kube-*"},
		Label:             DefaultLabel,
		Instance:          "default",
	}
}

// Validate returns nil, or every problem, joined. Each error is one line with the
// flag, its value, and the values that are allowed.
func (o *Options) Validate() error {
	var errs []error
	bad := func(flag, value, problem string) {
		if problem != "" {
			errs = append(errs, fmt.Errorf("--%s=%q: %s", flag, value, problem))
		}
	}
	switch {
	case o.AllNamespaces && len(o.NamespacePrefixes) > 0:
		errs = append(errs, errors.New("--all-namespaces=true: cannot be combined with "+
			"--namespace-prefix: give one of the two"))
	case !o.AllNamespaces && len(o.NamespacePrefixes) == 0:
		errs = append(errs, errors.New("--namespace-prefix: required and never empty: give a "+
			"prefix of the names of the target namespaces, or set --all-namespaces"))
	}
	for _, p := range o.NamespacePrefixes {
		problem := checkNamespacePrefix(p)
		if p == "" {
			problem += "; to mirror into all namespaces, set --all-namespaces"
		}
		bad("namespace-prefix", p, problem)
	}
	if _, err := labels.Parse(o.NamespaceSelector); err != nil {
		bad("namespace-selector", o.NamespaceSelector,
			"must be a label selector, such as \"team,env in (dev,test)\": "+err.Error())
	}
	for _, e := range o.ExcludeNamespaces {
		stem, isPrefix := strings.CutSuffix(e, "*")
		if checkNamespacePrefix(stem) != "" || !isPrefix && !validNamespace(e) {
			bad("exclude-namespace", e,
				"must be the name of a namespace, or a prefix followed by '*'")
		}
	}
	for _, n := range o.SourceNamespaces {
		if !validNamespace(n) {
			bad("source-namespace", n, "must be the name of a namespace")
		}
	}
	if len(validation.IsQualifiedName(o.Label)) > 0 || o.Label == ManagedByLabel {
		bad("mirror-label", o.Label,
			"must be a label key of its own, such as \"mirror\" or \"example.com/mirror\"")
	}
	if len(validation.IsValidLabelValue(o.Instance)) > 0 || o.Instance == "" {
		bad("instance", o.Instance, "must be 1 to 63 letters, digits, '-', '_' or '.', "+
			"beginning and ending with a letter or digit")
	}
	for _, key := range o.CopyLabels {
		bad("copy-label", key, checkCopied(key, o.Label))
	}
	for _, key := range o.CopyAnnotations {
		bad("copy-annotation", key, checkCopied(key, o.Label))
	}
	return errors.Join(errs...)
}

// checkCopied returns why a key, or a prefix followed by '*', cannot be copied
// with a source; empty if it can. A prefix may match keys that are never copied.
func checkCopied(key, label string) (problem string) {
	isValid := len(validation.IsQualifiedName(key)) == 0
	stem, isPrefix := strings.CutSuffix(key, "*")
	if isPrefix {
		// A stem is the beginning of a key if one letter behind it makes it a key, as
		// with "team-". A domain that is too long for a name takes a letter and a name.
		isValid = len(validation.IsQualifiedName(stem+"x")) == 0 ||
			len(validation.IsQualifiedName(stem+"x/x")) == 0
	}
	rule := neverCopiedBy(key, label)
	switch {
	case !isValid:
		return "must be a key, such as \"example.com/team\", or a prefix followed by '*'"
	case rule != "" && !isPrefix:
		return "must be a key of your own: those of other tools and of the controller, here " +
			rule + ", are never copied"
	}
	return ""
}

// validNamespace reports whether name is an RFC 1123 label, as
// validation.IsDNS1123Label does, which is slow.
func validNamespace(name string) bool {
	if name == "" || len(name) > validation.DNS1123LabelMaxLength ||
		name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	})
}

// checkNamespacePrefix returns why no name of a namespace can begin with p; empty
// if one can.
func checkNamespacePrefix(p string) (problem string) {
	switch {
	case p == "":
		return "must not be empty"
	case len(p) > validation.DNS1123LabelMaxLength:
		return fmt.Sprintf("must have at most %d characters, as the name of a namespace does",
			validation.DNS1123LabelMaxLength)
	case !validNamespace(strings.TrimRight(p, "-")): // a name may go on behind a '-'
		return "must be the beginning of a namespace name: lower-case letters, digits and '-', " +
			"with a letter or digit first"
	}
	return ""
}
