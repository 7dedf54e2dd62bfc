package mirror

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options say which ConfigMaps are mirrored where, and how hard the controller may work. They are the
// flags that the controller and its kubectl plug-in share.
type Options struct {
	// NamespacePrefixes are the literal prefixes of names of target namespaces.
	NamespacePrefixes []string
	// AllNamespaces makes every namespace a target, in place of prefixes.
	AllNamespaces bool
	// ExcludeNamespaces are names, or prefixes ending in '*', of namespaces that are never targets.
	ExcludeNamespaces []string
	// SourceNamespaces, if any, are the only namespaces whose ConfigMaps can be sources.
	SourceNamespaces []string
	// Label is the key of the mirror label, see [DefaultLabel].
	Label string
	// Instance tells the copies of one controller from those of another.
	Instance string
	// CopyLabels and CopyAnnotations are keys, or prefixes ending in '*', that travel with a source.
	CopyLabels, CopyAnnotations []string
	// PruneLimit is the share of all copies that a change of flags may delete; see [Percent].
	PruneLimit Percent
	// ResyncPeriod is the time between two looks at everything from the caches, at least 100 ms; 0 means never.
	ResyncPeriod time.Duration
	// ConcurrentSources is how many sources are compared with their copies at the same time.
	ConcurrentSources int
	// ConcurrentWrites bounds the writes in flight of the whole process.
	ConcurrentWrites int
}

// minResyncPeriod is the shortest time between two looks at everything: a period of nanoseconds would be a hot loop.
const minResyncPeriod = 100 * time.Millisecond

// NewOptions returns the defaults. Without a prefix they do not validate.
func NewOptions() *Options {
	return &Options{
		ExcludeNamespaces: []string{"kube-*"},
		Label:             DefaultLabel,
		Instance:          "default",
		PruneLimit:        50,
		ResyncPeriod:      10 * time.Minute,
		ConcurrentSources: 8,
		ConcurrentWrites:  32,
	}
}

// AddFlags binds the options to flags of fs, with the present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.NamespacePrefixes, "namespace-prefix", o.NamespacePrefixes,
		"Mirror into namespaces whose name begins with this. Repeatable. Required, unless --all-namespaces is given.")
	fs.BoolVar(&o.AllNamespaces, "all-namespaces", o.AllNamespaces,
		"Mirror into every namespace, instead of by prefix.")
	fs.StringSliceVar(&o.ExcludeNamespaces, "exclude-namespace", o.ExcludeNamespaces,
		"Never mirror into namespaces of this name, or with this prefix if it ends in '*'. Repeatable.")
	fs.StringSliceVar(&o.SourceNamespaces, "source-namespace", o.SourceNamespaces,
		"Take sources only from this namespace. Repeatable. Default: from every namespace.")
	fs.StringVar(&o.Label, "mirror-label", o.Label,
		"Key of the label that marks sources (true), copies (copy), and namespaces that opt out (false). "+
			"Changing it abandons the existing copies: hand them over, or remove them first (deploy/README.md).")
	fs.StringVar(&o.Instance, "instance", o.Instance,
		"Name that tells the copies of this controller from those of another. Changing it abandons the existing copies: hand them over, or remove them first (deploy/README.md).")
	fs.StringSliceVar(&o.CopyLabels, "copy-label", o.CopyLabels,
		"Copy this label of a source, or all with this prefix if it ends in '*'. Repeatable.")
	fs.StringSliceVar(&o.CopyAnnotations, "copy-annotation", o.CopyAnnotations,
		"Copy this annotation of a source, or all with this prefix if it ends in '*'. Repeatable.")
	fs.Var(&o.PruneLimit, "prune-limit",
		"If this share of all copies or more, and more than 10, lie outside the flags at the start, none of them is deleted. 100% lifts the limit.")
	fs.DurationVar(&o.ResyncPeriod, "resync-period", o.ResyncPeriod,
		"Time between two comparisons of everything with the caches, and between two looks at an object in the way of a copy. 0 turns it off.")
	fs.IntVar(&o.ConcurrentSources, "concurrent-sources", o.ConcurrentSources,
		"Number of sources that are compared with their copies at the same time.")
	fs.IntVar(&o.ConcurrentWrites, "concurrent-writes", o.ConcurrentWrites,
		"Number of writes that may be in flight at the same time.")
}

// namePrefix matches what the name of a namespace (an RFC 1123 label) can begin with.
var namePrefix = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*$`)

// Validate returns nil, or all that is wrong with the options, joined: each error is one line that names the
// flag, its value, and what would be right.
func (o *Options) Validate() error {
	var errs []error
	bad := func(flag string, value any, right string) {
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, right))
	}
	switch {
	case o.AllNamespaces && len(o.NamespacePrefixes) > 0:
		bad("all-namespaces", true, "cannot be combined with --namespace-prefix: give one of the two")
	case !o.AllNamespaces && len(o.NamespacePrefixes) == 0:
		errs = append(errs, errors.New("--namespace-prefix: required and never empty: give the first letters of the "+
			"names of the namespaces to mirror into, or --all-namespaces"))
	}
	for _, p := range o.NamespacePrefixes {
		if problem := checkNamespacePrefix(p); problem != "" {
			bad("namespace-prefix", quote(p), problem)
		}
	}
	for _, e := range o.ExcludeNamespaces {
		stem, wild := strings.CutSuffix(e, "*")
		if checkNamespacePrefix(stem) != "" || !wild && len(validation.IsDNS1123Label(e)) > 0 {
			bad("exclude-namespace", quote(e), "must be the name of a namespace, or the beginning of one and a '*'")
		}
	}
	for _, n := range o.SourceNamespaces {
		if len(validation.IsDNS1123Label(n)) > 0 {
			bad("source-namespace", quote(n), "must be the name of a namespace")
		}
	}
	if problems := validation.IsQualifiedName(o.Label); len(problems) > 0 || o.Label == ManagedByLabel {
		bad("mirror-label", quote(o.Label), "must be a label key of its own, such as \"mirror\" or \"example.com/mirror\"")
	}
	if problems := validation.IsValidLabelValue(o.Instance); len(problems) > 0 || o.Instance == "" {
		bad("instance", quote(o.Instance), "must be 1 to 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit")
	}
	patterns := func(flag string, keys []string) {
		for _, k := range keys {
			if !validKeyPattern(k) {
				bad(flag, quote(k), "must be a key, such as \"example.com/team\", or the beginning of one and a '*'")
			}
		}
	}
	patterns("copy-label", o.CopyLabels)
	patterns("copy-annotation", o.CopyAnnotations)
	if o.ResyncPeriod != 0 && o.ResyncPeriod < minResyncPeriod {
		bad("resync-period", o.ResyncPeriod, fmt.Sprintf("must be 0 (never), or %v or more, such as 10m", minResyncPeriod))
	}
	if o.ConcurrentSources < 1 {
		bad("concurrent-sources", o.ConcurrentSources, "must be 1 or more")
	}
	if o.ConcurrentWrites < 1 {
		bad("concurrent-writes", o.ConcurrentWrites, "must be 1 or more")
	}
	return errors.Join(errs...)
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// checkNamespacePrefix returns why no name of a namespace can begin with p, or nothing.
func checkNamespacePrefix(p string) string {
	switch {
	case p == "":
		return "must not be empty; to mirror into all namespaces, say --all-namespaces"
	case len(p) > validation.DNS1123LabelMaxLength:
		return fmt.Sprintf("must have at most %d characters, as the name of a namespace has", validation.DNS1123LabelMaxLength)
	case !namePrefix.MatchString(p):
		return "no name of a namespace begins so: it has lower-case letters, digits and '-', and begins with a letter or digit"
	}
	return ""
}

// validKeyPattern reports whether p is a label or annotation key, or the beginning of one followed by '*'.
func validKeyPattern(p string) bool {
	stem, wild := strings.CutSuffix(p, "*")
	if !wild {
		return len(validation.IsQualifiedName(p)) == 0
	}
	// Whatever can begin a key becomes one when it is completed: by a letter, or as a domain by a letter and a name.
	return len(validation.IsQualifiedName(stem+"x")) == 0 || len(validation.IsQualifiedName(stem+"x/x")) == 0
}

// Percent is a share of a whole, written "50%". It is a [pflag.Value].
type Percent int

// pruneFree is how many copies a change of flags may delete however large their share is.
const pruneFree = 10

// exceeded reports whether part of whole is too much to delete because of a flag. 100% is no limit.
func (p Percent) exceeded(part, whole int) bool {
	return p < 100 && part > pruneFree && part*100 >= int(p)*whole
}

func (p Percent) String() string { return strconv.Itoa(int(p)) + "%" }

// Type names the kind of value in the help.
func (p *Percent) Type() string { return "percent" }

// Set reads 0% to 100%.
func (p *Percent) Set(value string) error {
	digits, found := strings.CutSuffix(value, "%")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 || n > 100 {
		return errors.New("not a percentage from 0% to 100%")
	}
	*p = Percent(n)
	return nil
}
