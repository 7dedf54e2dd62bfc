package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// cluster reads what decisions depend on.
type cluster struct {
	client kubernetes.Interface
	rules  *plan.Rules
	label  string // key of the mirror label
}

func newCluster(client kubernetes.Interface, s *settings) *cluster {
	return &cluster{client: client, rules: plan.NewRules(&s.Options.Options), label: s.Label}
}

// snapshot is what the cluster holds. Namespaces are listed last, so that the namespace of every ConfigMap is there, unless it
// has gone meanwhile.
type snapshot struct {
	rules      *plan.Rules
	namespaces map[string]*corev1.Namespace
	names      map[string]*group
	limit      plan.Percent
}

// group is all that has one name: the sources, and the ConfigMaps with a mirror label, by namespace. The payloads are not
// there, only their digests.
type group struct {
	name    string
	view    *plan.View
	objects map[string]*corev1.ConfigMap
}

// read lists the ConfigMaps with a mirror label and the namespaces. With a name it leaves out all that has another.
func (c *cluster) read(ctx context.Context, limit plan.Percent, name string) (*snapshot, error) {
	found, err := c.listLabelled(ctx, "", name)
	if err != nil {
		return nil, err
	}
	namespaces, err := c.listNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	return newSnapshot(c.rules, limit, namespaces, found), nil
}

// newSnapshot groups what was listed.
func newSnapshot(rules *plan.Rules, limit plan.Percent, namespaces []*corev1.Namespace, found []*labelled) *snapshot {
	s := &snapshot{rules: rules, limit: limit, namespaces: map[string]*corev1.Namespace{}, names: map[string]*group{}}
	for _, ns := range namespaces {
		s.namespaces[ns.Name] = ns
	}
	sources := map[string][]*plan.Source{}
	for _, cm := range found {
		g := s.names[cm.Name]
		if g == nil {
			g = &group{name: cm.Name, objects: map[string]*corev1.ConfigMap{}}
			s.names[cm.Name] = g
		}
		g.objects[cm.Namespace] = cm.ConfigMap
		if cm.source != nil {
			sources[cm.Name] = append(sources[cm.Name], cm.source)
		}
	}
	for name, g := range s.names {
		g.view = plan.NewView(sources[name])
	}
	return s
}

// labelled is a ConfigMap without its payload, and what it asks for if it asks to be mirrored.
type labelled struct {
	*corev1.ConfigMap
	source *plan.Source
}

// listLabelled lists the ConfigMaps whose mirror label has the value; empty: one of both. With a name it lists only those.
func (c *cluster) listLabelled(ctx context.Context, value, name string) ([]*labelled, error) {
	o := metav1.ListOptions{LabelSelector: c.label + "=" + value}
	if value == "" {
		o.LabelSelector = fmt.Sprintf("%s in (%s,%s)", c.label, plan.SourceValue, plan.CopyValue)
	}
	if name != "" {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	}
	var out []*labelled
	shared := sharing{}
	err := c.eachConfigMap(ctx, o, func() { out = nil }, func(cm *corev1.ConfigMap) {
		out = append(out, c.strip(cm))
		shared.share(cm)
	})
	return out, err
}

// listNamed returns a function that lists all ConfigMaps of a name, by namespace, also those without a label of ours.
func (c *cluster) listNamed(ctx context.Context) func(name string) (map[string]*corev1.ConfigMap, error) {
	return func(name string) (map[string]*corev1.ConfigMap, error) {
		o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
		out := map[string]*corev1.ConfigMap{}
		err := c.eachConfigMap(ctx, o, func() { clear(out) }, func(cm *corev1.ConfigMap) {
			c.strip(cm)
			out[cm.Namespace] = cm
		})
		return out, err
	}
}

// strip removes the payload of cm, after the digest of it is kept.
func (c *cluster) strip(cm *corev1.ConfigMap) *labelled {
	l := &labelled{ConfigMap: cm}
	c.rules.Strip(cm)
	if c.rules.AsksToBeMirrored(cm) {
		l.source = c.rules.ParseSource(cm)
		cm.Data, cm.BinaryData = nil, nil
	}
	return l
}

// Sizes of a page of ConfigMaps. A ConfigMap has up to a megabyte, so the first page is small, and the next ones have as many
// as fit into pageBytes by the size of the last.
const (
	firstPage, largestPage = 25, 500
	pageBytes              = 16 << 20
)

// nextPage returns the limit of the page after one with n ConfigMaps of so many bytes.
func nextPage(n, bytes int) int64 {
	if n == 0 {
		return firstPage
	}
	return int64(max(firstPage, min(largestPage, pageBytes/max(1, bytes/n))))
}

// expired is how often a list is begun anew because it took longer than the API server keeps its state.
const expired = 3

// eachConfigMap calls each for every ConfigMap of a list that is read page by page. If the list has to begin anew it calls
// anew first.
func (c *cluster) eachConfigMap(ctx context.Context, o metav1.ListOptions, anew func(), each func(*corev1.ConfigMap)) error {
	o.Limit = firstPage
	for tries := 0; ; {
		page, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, o)
		switch {
		case apierrors.IsResourceExpired(err) && o.Continue != "" && tries < expired:
			tries++
			o.Continue = ""
			anew()
			continue
		case err != nil:
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		bytes := 0
		for i := range page.Items {
			cm := page.Items[i] // the page is not kept
			bytes += cm.Size()
			each(&cm)
		}
		if page.Continue == "" {
			return nil
		}
		o.Continue, o.Limit = page.Continue, nextPage(len(page.Items), bytes)
	}
}

func (c *cluster) listNamespaces(ctx context.Context) ([]*corev1.Namespace, error) {
	var out []*corev1.Namespace
	o := metav1.ListOptions{Limit: largestPage}
	for {
		page, err := c.client.CoreV1().Namespaces().List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("list namespaces: %w", err)
		}
		for i := range page.Items {
			ns := page.Items[i]
			plan.StripNamespace(&ns)
			out = append(out, &ns)
		}
		if page.Continue == "" {
			return out, nil
		}
		o.Continue = page.Continue
	}
}

// sharing has objects with equal labels and annotations share the maps: all copies of a source that are in sync are such.
type sharing map[string]*corev1.ConfigMap

func (s sharing) share(cm *corev1.ConfigMap) {
	k := cm.Name + cm.Annotations[plan.ChecksumAnnotation]
	same := s[k]
	switch {
	case same == nil:
		s[k] = cm
	case maps.Equal(same.Labels, cm.Labels) && maps.Equal(same.Annotations, cm.Annotations):
		cm.Labels, cm.Annotations = same.Labels, same.Annotations
	}
}

// decided is the decision about one target, and what else is known of it.
type decided struct {
	plan.Change
	have   *corev1.ConfigMap // what is there; nil: nothing
	losers []*plan.Source    // those that claim the target and do not have it

	failure string // why the API server rejects the change; empty: it is not known to
}

// state is the state of the winner, or else of the source of the copy.
func (d *decided) state() plan.State {
	switch {
	case d.failure != "":
		return plan.StateFailed
	case d.Op == plan.OpDelete:
		return plan.StateExpiring
	case d.Op != plan.OpNone:
		return plan.StatePending
	}
	return d.State
}

// countsFor is the source that the state counts for.
func (d *decided) countsFor() types.NamespacedName {
	if d.Source != nil {
		return d.Source.Key
	}
	return d.CopyOf
}

// pruning is what the prune limit makes of the copies that only the flags rule out.
type pruning struct {
	outOfScope, copies int
	blocked            bool
}

// judge applies the prune limit as a controller does that takes over.
func (s *snapshot) judge() (p pruning) {
	for _, g := range s.names {
		for namespace, have := range g.objects {
			t := s.target(g, namespace, have)
			t.Prunable = true
			if s.rules.Decide(g.view, t).Prune {
				p.outOfScope++
			}
		}
	}
	if p.outOfScope == 0 {
		return p
	}
	p.copies = p.outOfScope + s.wanted()
	p.blocked = s.limit.Exceeded(p.outOfScope, p.copies)
	return p
}

// wanted returns how many copies the sources want.
func (s *snapshot) wanted() (n int) {
	for _, g := range s.names {
		if len(g.view.Sources) == 0 {
			continue
		}
		for _, ns := range s.namespaces {
			if s.rules.Winner(g.view, ns) != nil {
				n++
			}
		}
	}
	return n
}

func (s *snapshot) target(g *group, namespace string, have *corev1.ConfigMap) plan.Target {
	return plan.Target{
		Key:       types.NamespacedName{Namespace: namespace, Name: g.name},
		Namespace: s.namespaces[namespace],
		Have:      have,
	}
}

// decide returns the decision about every target of a name, by namespace. prune is whether a controller that takes over would
// delete the copies that only the flags rule out; blocked whether the prune limit keeps it from that.
func (s *snapshot) decide(g *group, live map[string]*corev1.ConfigMap, prune, blocked bool) []*decided {
	var out []*decided
	for _, namespace := range s.targets(g) {
		have := g.objects[namespace]
		if have == nil {
			have = live[namespace]
		}
		t := s.target(g, namespace, have)
		t.Prunable = prune
		t.Spared = blocked && t.Namespace != nil && !s.rules.Selects(t.Namespace)
		d := &decided{Change: s.rules.Decide(g.view, t), have: have}
		if t.Namespace != nil {
			d.losers = s.rules.Superseded(g.view, t, d.Change)
		}
		out = append(out, d)
	}
	return out
}

// targets returns the namespaces that may have something to decide about, sorted.
func (s *snapshot) targets(g *group) []string {
	set := map[string]bool{}
	for namespace := range g.objects {
		set[namespace] = true
	}
	if len(g.view.Sources) > 0 {
		for namespace := range s.namespaces {
			if s.rules.AllowsTarget(namespace) {
				set[namespace] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// decideAll decides about every target of every name. Where a copy is to be created it asks named for what no watch shows: the
// objects of that name without a label of ours.
func (s *snapshot) decideAll(prune, blocked bool, named func(name string) (map[string]*corev1.ConfigMap, error)) (map[string][]*decided, error) {
	out := map[string][]*decided{}
	for name, g := range s.names {
		all := s.decide(g, nil, prune, blocked)
		if slices.ContainsFunc(all, func(d *decided) bool { return d.Op == plan.OpCreate }) {
			live, err := named(name)
			if err != nil {
				return nil, err
			}
			all = s.decide(g, live, prune, blocked)
		}
		out[name] = all
	}
	return out, nil
}
