package plan

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options decide which ConfigMaps are mirrored into which namespaces. The controller and kubectl-mirror share them.
type Options struct {
	// NamespacePrefixes are the literal prefixes of names of target namespaces.
	NamespacePrefixes []string
	// AllNamespaces makes every namespace a target, instead of prefixes.
	AllNamespaces bool
	// NamespaceSelector is a label selector that the labels of a target match. The empty one matches all.
	NamespaceSelector string
	// ExcludeNamespaces are names, or prefixes ending in '*', of namespaces that are never targets.
	ExcludeNamespaces []string
	// SourceNamespaces, if any, are the only namespaces whose ConfigMaps can be sources.
	SourceNamespaces []string
	// Label is the key of the mirror label, see [DefaultLabel].
	Label string
	// Instance tells the copies of one controller from those of another.
	Instance string
	// CopyLabels and CopyAnnotations are keys, or prefixes ending in '*', that are copied with a source.
	CopyLabels, CopyAnnotations []string
	// Prune has unclaimed copies that are out of scope expire as others do; see [Rules.Scope].
	Prune bool
}

// NewOptions returns the defaults. Without a prefix they are not valid.
func NewOptions() Options {
	return Options{ExcludeNamespaces: []string{"kube-*"}, Label: DefaultLabel, Instance: "default"}
}

// Validate returns nil, or every problem, joined, each in one line with the flag, its value, and what is allowed.
func (o *Options) Validate() error {
	var errs []error
	bad := func(flag string, value any, want string) {
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, want))
	}
	switch {
	case o.AllNamespaces && len(o.NamespacePrefixes) > 0:
		bad("all-namespaces", true, "cannot be combined with --namespace-prefix: give one of the two")
	case !o.AllNamespaces && len(o.NamespacePrefixes) == 0:
		errs = append(errs, errors.New("--namespace-prefix: required and never empty: give a prefix of the names of "+
			"the target namespaces, or set --all-namespaces"))
	}
	for _, p := range o.NamespacePrefixes {
		if problem := checkNamespacePrefix(p); p == "" {
			bad("namespace-prefix", quote(p), problem+"; to mirror into all namespaces, set --all-namespaces")
		} else if problem != "" {
			bad("namespace-prefix", quote(p), problem)
		}
	}
	if _, err := labels.Parse(o.NamespaceSelector); err != nil {
		bad("namespace-selector", quote(o.NamespaceSelector),
			"must be a label selector, such as \"team,env in (dev,test)\": "+err.Error())
	}
	for _, e := range o.ExcludeNamespaces {
		stem, wild := strings.CutSuffix(e, "*")
		if checkNamespacePrefix(stem) != "" || !wild && !validNamespace(e) {
			bad("exclude-namespace", quote(e), "must be the name of a namespace, or a prefix followed by '*'")
		}
	}
	for _, n := range o.SourceNamespaces {
		if !validNamespace(n) {
			bad("source-namespace", quote(n), "must be the name of a namespace")
		}
	}
	if problems := validation.IsQualifiedName(o.Label); len(problems) > 0 || o.Label == ManagedByLabel {
		bad("mirror-label", quote(o.Label),
			"must be a label key of its own, such as \"mirror\" or \"example.com/mirror\"")
	}
	if problems := validation.IsValidLabelValue(o.Instance); len(problems) > 0 || o.Instance == "" {
		bad("instance", quote(o.Instance),
			"must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit")
	}
	patterns := func(flag string, keys []string) {
		for _, k := range keys {
			if !validKeyPattern(k) {
				bad(flag, quote(k), "must be a key, such as \"example.com/team\", or a prefix followed by '*'")
			} else if rule := neverCopiedBy(k, o.Label); rule != "" && !strings.HasSuffix(k, "*") {
				bad(flag, quote(k), "must be a key of your own: those of other tools and of the controller, here "+
					rule+", are never copied")
			}
		}
	}
	patterns("copy-label", o.CopyLabels)
	patterns("copy-annotation", o.CopyAnnotations)
	return errors.Join(errs...)
}

// validNamespace reports whether name is an RFC 1123 label, as validation.IsDNS1123Label, which is slow, does.
func validNamespace(name string) bool {
	if name == "" || len(name) > validation.DNS1123LabelMaxLength || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	})
}

// namePrefix matches the possible beginnings of the name of a namespace, which is an RFC 1123 label.
var namePrefix = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*$`)

// checkNamespacePrefix returns why no name of a namespace can begin with p; empty if one can.
func checkNamespacePrefix(p string) string {
	switch {
	case p == "":
		return "must not be empty"
	case len(p) > validation.DNS1123LabelMaxLength:
		return fmt.Sprintf("must have at most %d characters, as the name of a namespace does",
			validation.DNS1123LabelMaxLength)
	case !namePrefix.MatchString(p):
		return "must be the beginning of a namespace name: lower-case letters, digits and '-', " +
			"with a letter or digit first"
	}
	return ""
}

// validKeyPattern reports whether p is a label or annotation key, or the beginning of one followed by '*'.
func validKeyPattern(p string) bool {
	stem, wild := strings.CutSuffix(p, "*")
	if !wild {
		return len(validation.IsQualifiedName(p)) == 0
	}
	// Every beginning of a key becomes a key with a letter behind it, or, as a domain, with a letter and a name.
	return len(validation.IsQualifiedName(stem+"x")) == 0 || len(validation.IsQualifiedName(stem+"x/x")) == 0
}
