package mirror

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Options configure a [Controller].
type Options struct {
	plan.Options
	// Namespace is that of the process, for the self-check of its admission policy; empty: no self-check. It has no flag.
	Namespace string
	// DryRun makes a controller that decides, logs and counts, and sends no request that writes.
	DryRun bool
	// ResyncPeriod is the time between two comparisons of everything with the caches, at least 100 ms; 0 means never.
	ResyncPeriod time.Duration
	// ConcurrentSources is how many sources are compared with their copies at the same time.
	ConcurrentSources int
	// ConcurrentWrites bounds the writes in flight, apart from those to targets that are slow to answer.
	ConcurrentWrites int
}

// minResyncPeriod keeps a period of nanoseconds from becoming a hot loop.
const minResyncPeriod = 100 * time.Millisecond

// NewOptions returns the defaults. Without a prefix they are not valid.
func NewOptions() *Options {
	return &Options{
		Options:           plan.NewOptions(),
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
	fs.StringVar(&o.NamespaceSelector, "namespace-selector", o.NamespaceSelector,
		"Mirror only into namespaces whose labels match this label selector, such as team,env in (dev,test). Default: all.")
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
		"If this share of all copies or more, and more than 10, are out of scope of the flags at the start, none of them is deleted. "+
			"100% lifts the limit, and 0% never deletes a copy for that reason.")
	fs.BoolVar(&o.DryRun, "dry-run", o.DryRun,
		"Say what would be created, updated and deleted, and write nothing at all: no ConfigMap, Lease or Event. "+
			"--leader-elect has no effect then. A summary of each source is logged, and with -v=2 each copy.")
	fs.DurationVar(&o.ResyncPeriod, "resync-period", o.ResyncPeriod,
		"Time between two comparisons of everything with the caches. 0 turns it off.")
	fs.IntVar(&o.ConcurrentSources, "concurrent-sources", o.ConcurrentSources,
		"Number of sources that are compared with their copies at the same time.")
	fs.IntVar(&o.ConcurrentWrites, "concurrent-writes", o.ConcurrentWrites,
		"Number of writes that may be in flight at the same time.")
}

// Validate returns nil, or every problem, joined. Each error is one line with the flag, its value, and what would be
// right.
func (o *Options) Validate() error {
	errs := []error{o.Options.Validate()}
	bad := func(flag string, value any, right string) {
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, right))
	}
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
