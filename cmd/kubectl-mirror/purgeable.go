package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// purgeable is what there is to purge, and the sources that may want it.
type purgeable struct {
	Settings string     `json:"settings"`
	Instance string     `json:"instance"`
	Copies   []*oneCopy `json:"copies"`

	asked   types.NamespacedName
	sources map[string][]*corev1.ConfigMap // that ask to be mirrored, by name, without data
}

// oneCopy is a copy as it was listed.
type oneCopy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Source    string `json:"source"`
	Note      string `json:"note,omitempty"`

	uid             types.UID
	resourceVersion string
}

func (c *oneCopy) key() string { return c.Namespace + "/" + c.Name }

// find lists the copies of a source, or of all if asked is empty, and the sources of their names.
func (p *purge) find(ctx context.Context, asked types.NamespacedName) (*purgeable, error) {
	var found *purgeable
	anew := func() {
		found = &purgeable{Settings: p.settings.origin, Instance: p.settings.Instance, Copies: []*oneCopy{}, asked: asked,
			sources: map[string][]*corev1.ConfigMap{}}
	}
	anew()
	o := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s in (%s,%s)", p.cluster.label, plan.SourceValue, plan.CopyValue)}
	if asked.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", asked.Name).String()
	}
	err := p.eachMetadata(ctx, o, anew, func(meta *metav1.ObjectMeta) { found.add(p.cluster.rules, meta) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found.Copies, func(a, b *oneCopy) int { return strings.Compare(a.key(), b.key()) })
	return found, found.checkUnique()
}

// add takes what is a copy of the instance, or asks to be mirrored. Package plan decides by the metadata alone.
func (f *purgeable) add(rules *plan.Rules, meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	cm := &corev1.ConfigMap{ObjectMeta: *meta}
	if rules.AsksToBeMirrored(cm) {
		f.sources[cm.Name] = append(f.sources[cm.Name], cm)
		return
	}
	source, ours := rules.SourceOf(cm)
	if !ours || f.asked.Namespace != "" && f.asked != source {
		return
	}
	f.Copies = append(f.Copies, &oneCopy{Namespace: cm.Namespace, Name: cm.Name, Source: source.String(), Note: noteOnEnd(cm),
		uid: cm.UID, resourceVersion: cm.ResourceVersion})
}

// noteOnEnd says what holds a copy up that is deleted.
func noteOnEnd(cm *corev1.ConfigMap) string {
	note := ""
	if cm.DeletionTimestamp != nil {
		note = "it is being deleted"
	}
	if len(cm.Finalizers) > 0 {
		if note != "" {
			note += ", and "
		}
		note += "the finalizer " + printable(cm.Finalizers[0]) + " holds it"
	}
	return note
}

// checkUnique fails if the user has named a source without its namespace, and there are copies of several.
func (f *purgeable) checkUnique() error {
	if f.asked.Name == "" || f.asked.Namespace != "" {
		return nil
	}
	if all := f.bySource(); len(all) > 1 {
		return fmt.Errorf("there are copies of %d sources of the name %s: name one of: %s", len(all), f.asked.Name,
			strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return nil
}

// bySource counts the copies of each source.
func (f *purgeable) bySource() map[string]int {
	out := map[string]int{}
	for _, c := range f.Copies {
		out[c.Source]++
	}
	return out
}

// wanted returns how many of the copies a controller with these rules would restore.
func (f *purgeable) wanted(rules *plan.Rules, namespaces map[string]*corev1.Namespace) (n int) {
	views := map[string]*plan.View{}
	for _, c := range f.Copies {
		view := views[c.Name]
		if view == nil {
			var sources []*plan.Source
			for _, cm := range f.sources[c.Name] {
				sources = append(sources, rules.ParseSource(cm))
			}
			view = plan.NewView(sources)
			views[c.Name] = view
		}
		if ns := namespaces[c.Namespace]; ns != nil && rules.Winner(view, ns) != nil {
			n++
		}
	}
	return n
}

// eachMetadata calls each for every ConfigMap of a list that is read page by page, without its data. If the list takes longer
// than the API server keeps its state it begins anew, after anew is called.
func (p *purge) eachMetadata(ctx context.Context, o metav1.ListOptions, anew func(), each func(*metav1.ObjectMeta)) error {
	o.Limit = largestPage
	for tries := 0; ; {
		page, err := p.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).List(ctx, o)
		switch {
		case apierrors.IsResourceExpired(err) && o.Continue != "" && tries < expired:
			tries++
			o.Continue = ""
			anew()
			continue
		case err != nil:
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		for i := range page.Items {
			each(&page.Items[i].ObjectMeta)
		}
		if page.Continue == "" {
			return nil
		}
		o.Continue = page.Continue
	}
}

func (f *purgeable) names() (names []string) {
	for _, c := range f.Copies {
		names = append(names, c.key())
	}
	return names
}

func (f *purgeable) table(w io.Writer, wide bool) error {
	if len(f.Copies) == 0 {
		_, err := fmt.Fprintf(w, "Nothing to delete: there is no copy of %s.\n", f.subject())
		return err
	}
	var rows [][]any
	for _, c := range f.Copies {
		rows = append(rows, []any{c.key(), c.Source, c.Note})
	}
	if err := printTable(w, wide, []column{{name: "Copy"}, {name: "Source"}, {name: "Note"}}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "To be deleted: %s.\n", f.summary())
	return err
}

// subject is whose copies were looked for.
func (f *purgeable) subject() string {
	switch {
	case f.asked.Name == "":
		return "instance " + f.Instance
	case f.asked.Namespace == "":
		return f.asked.Name
	}
	return f.asked.String()
}

func (f *purgeable) summary() string {
	sources := f.bySource()
	of := fmt.Sprintf("%d sources", len(sources))
	if len(sources) == 1 {
		of = slices.Collect(maps.Keys(sources))[0]
	}
	return fmt.Sprintf("%s of %s, instance %s", count(len(f.Copies), "copy", "copies"), of, f.Instance)
}

// count returns the number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
