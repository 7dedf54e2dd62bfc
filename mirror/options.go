package mirror

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Options configure a [Controller].
type Options struct {
	plan.Options
	// DeletionGrace is how long a copy outlives the last claim of a source, up
	// to 24 hours.
	DeletionGrace time.Duration
	// ResyncPeriod is the time between two comparisons of everything with the
	// caches, at least 100 ms; 0 means never.
	ResyncPeriod time.Duration
	// ConcurrentSources is how many sources are compared with their copies at
	// the same time.
	ConcurrentSources int
	// ConcurrentWrites bounds the writes in flight, apart from those to targets
	// that are slow to answer.
	ConcurrentWrites int
}

const (
	minResyncPeriod  = 100 * time.Millisecond // no hot loop
	maxDeletionGrace = 24 * time.Hour         // a restart begins a grace anew
)

// NewOptions returns the defaults. Without a prefix they are not valid.
func NewOptions() *Options {
	return &Options{
		Options:           plan.NewOptions(),
		DeletionGrace:     time.Second,
		ResyncPeriod:      10 * time.Minute,
		ConcurrentSources: 8,
		ConcurrentWrites:  32,
	}
}

// abandons is the warning in the help of the flags by which the controller
// recognizes its copies.
const abandons = "A new value abandons the existing copies: " +
	"deploy/docs/operate.md says what to do first."

// AddFlags binds the options to flags of fs, with the present values as
// defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Var(&list{items: &o.NamespacePrefixes, required: true}, "namespace-prefix",
		"Mirror into namespaces whose names begin with this prefix. "+
			"Repeatable. Required unless --all-namespaces is set.")
	fs.BoolVar(&o.AllNamespaces, "all-namespaces", o.AllNamespaces,
		"Mirror into all namespaces. Replaces --namespace-prefix.")
	fs.StringVar(&o.NamespaceSelector, "namespace-selector", o.NamespaceSelector,
		"Mirror only into namespaces whose labels match this selector, "+
			"such as team,env in (dev,test). Default: all namespaces.")
	fs.Var(&list{items: &o.ExcludeNamespaces}, "exclude-namespace",
		"Never mirror into this namespace or, with '*' at the end, "+
			"into namespaces with this prefix. Repeatable.")
	fs.Var(&list{items: &o.SourceNamespaces, required: true}, "source-namespace",
		"Accept sources only from this namespace. Repeatable. Default: all namespaces.")
	fs.StringVar(&o.Label, "mirror-label", o.Label,
		"Label key that marks sources (value true), copies (copy) "+
			"and namespaces that opt out (false). "+abandons)
	fs.StringVar(&o.Instance, "instance", o.Instance,
		"Name of this installation. The controller changes and deletes "+
			"only copies with its own instance. "+abandons)
	fs.Var(&list{items: &o.CopyLabels}, "copy-label",
		"Copy this label of a source too or, with '*' at the end, "+
			"all labels with this prefix. Repeatable.")
	fs.Var(&list{items: &o.CopyAnnotations}, "copy-annotation",
		"Copy this annotation of a source too or, with '*' at the end, "+
			"all annotations with this prefix. Repeatable.")
	fs.BoolVar(&o.Prune, "prune", o.Prune,
		"Also delete copies that are out of scope: copies of this instance "+
			"that no source claims, and that the other flags rule out. Two controllers "+
			"with one --instance that both prune delete each other's copies for ever.")
	fs.DurationVar(&o.DeletionGrace, "deletion-grace", o.DeletionGrace,
		"Delete a copy when no source has claimed its namespace for this long, "+
			"up to 24h. A restart begins the time anew.")
	fs.DurationVar(&o.ResyncPeriod, "resync-period", o.ResyncPeriod,
		"Time between two comparisons of all cached copies with their sources. "+
			"0: never. Retries do not depend on it.")
	fs.IntVar(&o.ConcurrentSources, "concurrent-sources", o.ConcurrentSources,
		"Number of sources that are compared with their copies in parallel.")
	fs.IntVar(&o.ConcurrentWrites, "concurrent-writes", o.ConcurrentWrites,
		"Maximum number of writes in flight, not counting writes to namespaces that answer slowly.")
}

// list is a flag that holds items. Each use adds those of its value, between
// commas and without blanks around them; the first use replaces the default.
type list struct {
	items *[]string
	// required makes an empty value an item, which is invalid: that of an unset
	// variable would allow everything.
	required bool
	used     bool
}

// Set implements [pflag.Value].
func (l *list) Set(value string) error {
	if !l.used {
		*l.items = nil
		l.used = true
	}
	if value == "" && !l.required {
		return nil
	}
	for item := range strings.SplitSeq(value, ",") {
		*l.items = append(*l.items, strings.TrimSpace(item))
	}
	return nil
}

// Type implements [pflag.Value].
func (l *list) Type() string { return "strings" }

// String implements [pflag.Value].
func (l *list) String() string {
	if l.items == nil { // pflag asks a zero value, too
		return ""
	}
	return strings.Join(*l.items, ",")
}

// Validate returns nil, or every problem, joined, each in one line with the
// flag, its value, and what is allowed.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate()}
	bad := func(flag string, value any, want string) {
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, want))
	}
	if o.ResyncPeriod != 0 && o.ResyncPeriod < minResyncPeriod {
		want := fmt.Sprintf("must be 0 (never), or %v or more, such as 10m", minResyncPeriod)
		bad("resync-period", o.ResyncPeriod, want)
	}
	if o.DeletionGrace < 0 || o.DeletionGrace > maxDeletionGrace {
		bad("deletion-grace", o.DeletionGrace, "must be between 0s and 24h, such as 5m")
	}
	if o.ConcurrentSources < 1 {
		bad("concurrent-sources", o.ConcurrentSources, "must be 1 or more")
	}
	if o.ConcurrentWrites < 1 {
		bad("concurrent-writes", o.ConcurrentWrites, "must be 1 or more")
	}
	return errors.Join(errs...)
}
