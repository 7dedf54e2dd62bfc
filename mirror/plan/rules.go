package plan

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Rules decide by a fixed set of options. All methods are pure and safe for
// concurrent use.
type Rules struct {
	opts     Options
	prefixes []string        // of target namespaces; one empty prefix for --all-namespaces
	selector labels.Selector // of the labels of target namespaces
	label    string          // the key of the mirror label
}

// NewRules returns the rules of the options, which must be valid. By a selector
// that is malformed they select nothing.
func NewRules(o *Options) *Rules {
	selector, err := labels.Parse(o.NamespaceSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	r := &Rules{opts: *o, prefixes: o.NamespacePrefixes, selector: selector, label: o.Label}
	if o.AllNamespaces {
		r.prefixes = []string{""}
	}
	return r
}

// Label returns the key of the mirror label.
func (r *Rules) Label() string { return r.label }

// Instance returns the instance of the controller.
func (r *Rules) Instance() string { return r.opts.Instance }

// AllowsTarget reports whether the flags allow a namespace of this name to hold
// copies. Its labels do not count.
func (r *Rules) AllowsTarget(namespace string) bool {
	return hasAnyPrefix(namespace, r.prefixes) && !matchKey(r.opts.ExcludeNamespaces, namespace)
}

// AllowsSource reports whether the flags allow ConfigMaps of this namespace to be
// sources.
func (r *Rules) AllowsSource(namespace string) bool {
	return len(r.opts.SourceNamespaces) == 0 || slices.Contains(r.opts.SourceNamespaces, namespace)
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
