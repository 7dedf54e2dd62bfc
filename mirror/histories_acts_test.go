package mirror

// The acts of people, of other tools and of the network in a history.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/judge"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// act is what may happen, and how often compared with other acts. do returns what
// it did.
type act struct {
	weight int
	name   string
	do     func(*history) string
}

// acts are what may happen.
var acts = []act{
	{16, "write source", atSource((*history).writeSource)},
	{5, "flip label", (*history).flipLabel},
	{5, "delete source", atSource((*history).deleteSource)},
	{6, "narrow source", atSource((*history).narrowSource)},
	{5, "hold source", atSource((*history).holdSource)},
	{6, "relabel namespace", (*history).relabelNamespace},
	{5, "recreate namespace", (*history).recreateNamespace},
	{14, "touch copy", atCopy((*history).touchCopy)},
	{6, "write foreign object", (*history).writeForeign},
	{5, "revert", atSource((*history).revert)},
	{5, "hold briefly", atSource((*history).holdBriefly)},
	{4, "widen", atSource((*history).widen)},
	{4, "annotate", atSource((*history).annotate)},
	{6, "fill metadata", (*history).fillMetadata},
	{4, "replace copy by force", atCopy((*history).forceCopy)},
	{3, "turn copy into source", atCopy((*history).copyToSource)},
	{5, "fail", (*history).fail},
	{4, "alter", (*history).alter},
	{3, "be slow somewhere", (*history).beSlow},
	{2, "end faults", (*history).endFaults},
	{6, "be late", (*history).beLate},
	{2, "end watch", (*history).endWatch},
	{5, "change leader", (*history).changeLeader},
	{2, "restore", (*history).restore},
}

// pick returns one of these.
func pick[T any](h *history, of ...T) T { return of[h.IntN(len(of))] }

// place returns a place for a ConfigMap in one of these namespaces.
func (h *history) place(namespaces []string) key {
	return key{Namespace: pick(h, namespaces...), Name: pick(h, h.names...)}
}

// atSource is an act on a source, or at a place for one at which there is nothing else.
func atSource(do func(*history, key) string) func(*history) string {
	return func(h *history) string {
		k := h.place(h.sources)
		for range 8 {
			if !h.isOther(k) {
				break
			}
			k = h.place(h.sources)
		}
		return fmt.Sprint(k, " ", do(h, k))
	}
}

// atCopy is an act on a copy, or on an object in the way of one.
func atCopy(do func(*history, key) string) func(*history) string {
	return func(h *history) string {
		for range 9 {
			if k := h.place(h.targets); h.isOther(k) {
				return fmt.Sprint(k, " ", do(h, k))
			}
		}
		return "nothing"
	}
}

// isOther reports whether a ConfigMap is there that is no source: a copy, or a foreign object.
func (h *history) isOther(k key) bool {
	cm := h.at(k)
	return cm != nil && (cm.Labels["mirror"] != "true" || judge.NamesItself(cm))
}

// write creates a ConfigMap, or overwrites the one that is there: as kubectl replace --force does if it is immutable.
func (h *history) write(cm *corev1.ConfigMap) {
	cm.ResourceVersion, cm.UID = "", ""
	err := h.update(cm)
	if apierrors.IsInvalid(err) {
		h.delete(apitest.KeyOf(cm))
		time.Sleep(h.pause(4))
	}
	if err != nil {
		_ = h.create(cm) // the namespace may be gone
	}
}

// change edits a ConfigMap if it is there, and returns what it is then. The API server may refuse that.
func (h *history) change(k key, edits ...plantest.Option) string {
	cm := h.at(k)
	if cm == nil {
		return "is not there"
	}
	err := h.update(cm, edits...)
	return fmt.Sprintf("%.500v %v", []any{cm.Data, cm.Labels, cm.Finalizers, judge.IsImmutable(cm), cm.Annotations}, err)
}

// briefly edits a source, and ends that by other edits some time later.
func (h *history) briefly(k key, pause int, end []plantest.Option, edits ...plantest.Option) string {
	said := h.change(k, edits...)
	time.Sleep(h.pause(pause))
	h.change(k, end...)
	return said
}

// What ends the rules and the holds of a source.
var (
	noRules = []plantest.Option{plantest.Without(plan.PrefixAnnotation), plantest.Without(plan.SelectorAnnotation)}
	noHold  = []plantest.Option{plantest.Without(plan.PausedAnnotation), plantest.Without(plan.RolloutAnnotation)}
)

func (h *history) content() plantest.Option { return data(strconv.Itoa(h.IntN(3))) }

// narrowing returns an annotation that narrows a source, or freezes it.
func (h *history) narrowing() plantest.Option {
	return pick(h, prefixes("team-a,team-c"), prefixes("team-b"), prefixes("Team-"), selector("tier=gold"),
		selector("tier in ("))
}

func (h *history) writeSource(k key) string {
	options := []plantest.Option{h.content()}
	if h.IntN(5) == 0 {
		options = append(options, plantest.Immutable)
	}
	if h.IntN(4) == 0 {
		options = append(options, plantest.Label("app", strconv.Itoa(h.IntN(2))),
			plantest.Annotation("note", strconv.Itoa(h.IntN(2))), plantest.Label("app.kubernetes.io/instance", "argocd"),
			plantest.Label("app.kubernetes.io/name", "settings"))
	}
	if h.IntN(6) == 0 {
		options = append(options, h.narrowing())
	}
	cm := plantest.Source(k.Namespace, k.Name, options...)
	h.write(cm)
	return fmt.Sprint(cm.Data, cm.Annotations, cm.Immutable != nil)
}

func (h *history) flipLabel() string {
	k := h.place(h.sources)
	if cm := h.at(k); cm == nil || judge.NamesItself(cm) {
		return "nothing"
	}
	return h.change(k, func(cm *corev1.ConfigMap) {
		if cm.Labels["mirror"] == "true" {
			cm.Labels["mirror"] = pick(h, "", "copy", "false")
		} else {
			cm.Labels["mirror"] = "true"
		}
	})
}

func (h *history) deleteSource(k key) string {
	before := h.at(k)
	h.delete(k)
	if before == nil || h.IntN(2) == 0 {
		return ""
	}
	time.Sleep(h.pause(6))
	before.DeletionTimestamp, before.Finalizers = nil, nil
	h.write(before)
	return "comes back"
}

func (h *history) narrowSource(k key) string {
	edits := slices.Clone(noRules)
	if h.IntN(2) == 0 {
		edits = append(edits, h.narrowing())
	}
	return h.change(k, edits...)
}

func (h *history) relabelNamespace() string {
	ns, err := h.Namespaces.Get(key{Name: pick(h, h.targets...)})
	if err != nil {
		return "nothing"
	}
	ns.Labels = map[string]string{corev1.LabelMetadataName: ns.Name}
	maps.Copy(ns.Labels, pick(h, nil, nil, map[string]string{"mirror": "false"}, map[string]string{"tier": "gold"},
		map[string]string{"tier": "none"}))
	_ = h.updateNamespace(ns)
	return fmt.Sprint(ns.Labels)
}

// holdSource has a source hold targets, or ends that.
func (h *history) holdSource(k key) string {
	edits := slices.Clone(noHold)
	if h.IntN(5) < 3 {
		edits = append(edits, pick(h, paused, plantest.Annotation(plan.PausedAnnotation, "yes"), rollout("tier=gold"),
			rollout("tier!=gold"), rollout("tier in (")))
	}
	if h.IntN(2) == 0 {
		edits = append(edits, h.content())
	}
	return h.change(k, edits...)
}

// recreateNamespace has a namespace deleted, as slowly as its objects allow, and created again.
func (h *history) recreateNamespace() string {
	name := pick(h, h.targets...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removing[name] {
		return "nothing"
	}
	h.removing[name] = true
	holds, away := h.pause(9), h.pause(7)
	h.removals.Go(func() {
		h.Terminate(name)
		time.Sleep(holds)
		for !h.Finalize(name) {
			if _, err := h.Namespaces.Get(key{Name: name}); err != nil { // a restore had it gone
				break
			}
			time.Sleep(10 * time.Second)
			for _, of := range historyNames {
				h.change(key{Namespace: name, Name: of}, withoutFinalizers)
			}
		}
		time.Sleep(away)
		_ = h.createNamespace(historyNamespace(name))
		h.mu.Lock()
		defer h.mu.Unlock()
		h.removing[name] = false
	})
	return fmt.Sprint(name, " ", holds, away)
}

func (h *history) touchCopy(k key) string {
	if n := h.IntN(8); n < 2 {
		if n == 0 {
			h.change(k, plantest.Finalizer)
		}
		h.delete(k)
		return "delete"
	}
	spoilt, immutable := data("spoilt"), plantest.Option(plantest.Immutable)
	forged := plantest.Annotation(plan.SourceAnnotation, pick(h, append(historySources, "gone")...)+"/"+k.Name)
	foreign := plantest.Without(plan.CopyAnnotation)
	return h.change(k, pick(h, [][]plantest.Option{
		{spoilt}, {plantest.Data("more", "spoilt")}, {unlabelled}, {unlabelled}, {plantest.Label("mirror", "true")},
		{disowned, foreign}, {disowned, foreign, unlabelled}, {forged}, {forged, spoilt},
		{plantest.Annotation(plan.ChecksumAnnotation, "sha256:0")}, {immutable}, {immutable, spoilt},
		{plantest.Finalizer}, {plantest.Finalizer, unlabelled}, {withoutFinalizers}, {adopt}, {adopt, copyLabel},
	}...)...)
}

// writeForeign creates an object that is not ours, if nothing is there.
func (h *history) writeForeign() string {
	k := h.place(h.targets)
	options := []plantest.Option{data("foreign")}
	for _, o := range []plantest.Option{adopt, copyLabel, plantest.Finalizer, plantest.Immutable,
		plantest.Annotation(plan.SourceAnnotation, "platform/"+k.Name),
		plantest.Annotation(plan.InstanceAnnotation, "default"),
		plantest.Annotation(plan.CopyAnnotation, "elsewhere/"+k.Name)} {
		if h.IntN(4) == 0 {
			options = append(options, o)
		}
	}
	cm := plantest.ConfigMap(k.Namespace, k.Name, options...)
	cm.ResourceVersion = ""
	if h.IntN(2) == 0 {
		h.delete(k)
	}
	return fmt.Sprint(k, " ", cm.Labels, cm.Annotations, h.create(cm))
}

// revert changes a source, takes that back some time later, and perhaps again.
func (h *history) revert(k key) string {
	before := h.at(k)
	if before == nil || before.Immutable != nil {
		return "nothing"
	}
	back := func(cm *corev1.ConfigMap) { cm.Data = before.Data }
	for range 1 + h.IntN(2) {
		h.briefly(k, 7, []plantest.Option{back}, data("reverted"))
		time.Sleep(h.pause(4))
	}
	return ""
}

// holdBriefly has a source hold targets, or freezes it, for a moment in which its content may change.
func (h *history) holdBriefly(k key) string {
	return h.briefly(k, 8, noHold, h.content(), pick(h, paused, rollout("tier=gold"), rollout(""),
		plantest.Annotation(plan.PausedAnnotation, "ture")))
}

// widen narrows a source to one target, and widens it again some time later.
func (h *history) widen(k key) string {
	target := pick(h, h.targets...)
	return h.briefly(k, 9, noRules, pick(h, prefixes(target), selector(corev1.LabelMetadataName+"="+target)))
}

// annotate gives a source annotations that freeze it, and some that do not, or takes them away.
func (h *history) annotate(k key) (said string) {
	values := map[string]string{plan.Domain + "/namspace-prefix": "x", plan.AdoptAnnotation: "true",
		plan.RolloutAnnotation: "tier in (gold," + large[:5<<10] + ")"}
	for _, annotation := range slices.Sorted(maps.Keys(values)) {
		edit := plantest.Without(annotation)
		if h.IntN(6) == 0 {
			edit = plantest.Annotation(annotation, values[annotation])
		}
		said = h.change(k, edit)
	}
	return said
}

var large = strings.Repeat("x", 250<<10)

// fillMetadata gives a copy or a source labels and annotations of other people, or takes them away.
func (h *history) fillMetadata() string {
	k := h.place(slices.Concat(h.targets, h.sources))
	value := large[:pick(h, 1, 10, 1000, 9<<10, 100<<10, 250<<10)]
	edits := []plantest.Option{pick(h, plantest.Annotation("theirs", value), plantest.Annotation("note", value),
		plantest.Label("theirs", "yes"), plantest.Label("theirs", "yes"), plantest.Without("theirs"),
		plantest.Without("note"))}
	if h.IntN(2) == 0 && h.isOther(k) { // it is repaired, with the metadata
		edits = append(edits, data("spoilt"))
	}
	return fmt.Sprint(k, " ", len(value), " ", h.change(k, edits...))
}

// forceCopy deletes a copy and creates it again, as it was or changed: kubectl replace --force.
func (h *history) forceCopy(k key) string {
	cm := h.at(k)
	h.delete(k)
	time.Sleep(h.pause(3))
	cm.UID, cm.ResourceVersion, cm.DeletionTimestamp, cm.Finalizers = "", "", nil, nil
	if h.IntN(3) == 0 {
		cm.Data = map[string]string{"key": "spoilt"}
	}
	return fmt.Sprint(h.create(cm))
}

func (h *history) copyToSource(k key) string {
	return h.change(k, plantest.Without(plan.CopyAnnotation), disowned, plantest.Label("mirror", "true"))
}

// restore has etcd restored from a backup.
func (h *history) restore() string {
	at := time.Now().Add(-h.pause(10))
	// client-go must hear of it.
	if at.Before(h.began.Add(time.Second)) || h.sinceWatchEnded() < time.Minute || h.rare.losing.Load() {
		return "nothing"
	}
	h.watchEnds(time.Now())
	h.ConfigMaps.Restore(at)
	h.Namespaces.Restore(at)
	return fmt.Sprint("of ", at.Sub(h.began))
}

// historyNamespace returns a namespace with the label that each has.
func historyNamespace(name string) *corev1.Namespace {
	return plantest.Namespace(name, corev1.LabelMetadataName, name)
}

// faults are what goes wrong with the requests of the controller now.
type faults struct {
	over    bool // and there will be none
	failing map[string]failure
	altered map[string]plantest.Option // by namespace, or by verb and namespace
	lags    map[string]time.Duration   // of requests, answers, reads, the watch of each resource, and by namespace
	// interrupted has the resources whose watch is interrupted, and in which way.
	interrupted map[string]apitest.Interruption
}

// failure is how requests about a namespace fail.
type failure struct {
	verbs []string
	err   error
	lost  bool // the API server has carried them out
	hangs bool
}

// with changes a copy of the faults.
func (h *history) with(change func(*faults)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.faults.Load()
	f := &faults{failing: map[string]failure{}, altered: map[string]plantest.Option{}, lags: map[string]time.Duration{},
		interrupted: map[string]apitest.Interruption{}}
	maps.Copy(f.interrupted, now.interrupted)
	maps.Copy(f.failing, now.failing)
	maps.Copy(f.altered, now.altered)
	maps.Copy(f.lags, now.lags)
	change(f)
	h.faults.Store(f)
}

// hook has the faults act on the requests of the controller.
func (h *history) hook() {
	failureOf := func(c apitest.Call) (f failure) {
		if c.Verb == "list" || c.Verb == "watch" {
			way := h.faults.Load().interrupted[c.Resource]
			return failure{err: way.Refuses, hangs: way.Hangs}
		}
		if now := h.faults.Load().failing[c.Namespace]; slices.Contains(now.verbs, c.Verb) {
			f = now
		}
		return f
	}
	fails := func(lost bool) func(apitest.Call) error {
		return func(c apitest.Call) error {
			if f := failureOf(c); f.lost == lost {
				return f.err
			}
			return nil
		}
	}
	h.Hook(func(o *apitest.Hooks) {
		o.Before = h.countRequest
		o.Hangs = func(c apitest.Call) bool { return failureOf(c).hangs }
		o.Refuses, o.Loses = fails(false), fails(true)
		o.Alters = func(c apitest.Call, cm *corev1.ConfigMap) {
			for _, at := range []string{c.Namespace, c.Verb + " " + c.Namespace} {
				if alter := h.faults.Load().altered[at]; alter != nil {
					alter(cm)
				}
			}
		}
		o.Takes = func(c apitest.Call) time.Duration {
			lags := h.faults.Load().lags
			// A loop without a pause would go on for ever without the millisecond.
			takes := time.Millisecond + lags["requests"] + lags[c.Namespace]
			if c.Verb == "get" {
				takes += lags["reads"]
			}
			return takes
		}
		o.Arrives = apitest.Call.IsWrite
		o.Answers = func(apitest.Call) time.Duration { return h.faults.Load().lags["answers"] }
		o.Cuts = func(resource string) time.Duration { return h.faults.Load().interrupted[resource].Cuts }
		o.Lags = func(resource string) time.Duration { return h.faults.Load().lags[resource] }
	})
}

func (h *history) fail() string {
	resource := corev1.Resource("configmaps")
	etcd, noWebhook := apierrors.NewInternalError(errors.New("etcd")), apierrors.NewServiceUnavailable("no webhook")
	f := failure{
		err: pick[error](h, apierrors.NewForbidden(resource, "settings", errors.New("quota")),
			apierrors.NewConflict(resource, "settings", errors.New("quota")),
			apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "settings", nil),
			apierrors.NewTooManyRequestsError("later"), etcd, noWebhook, errAway),
		verbs: pick(h, []string{"create"}, []string{"update"}, []string{"delete"}, []string{"get"},
			[]string{"create", "update", "delete"}, []string{"create", "update", "delete", "get"}),
	}
	at := pick(h, slices.Concat(historyNamespaces, h.targets)...)
	if failing := slices.Sorted(maps.Keys(h.faults.Load().failing)); len(failing) > 0 && h.IntN(2) == 0 {
		at = pick(h, failing...)
	}
	switch h.IntN(6) {
	case 0, 1: // an API server refuses nothing that it has carried out
		f.lost = slices.Contains([]error{etcd, noWebhook, errAway}, f.err)
	case 2:
		f.hangs = true
	}
	h.with(func(now *faults) { now.failing[at] = f })
	return fmt.Sprintf("%v at %s: %v (carried out: %v, no answer: %v)", f.verbs, at, f.err, f.lost, f.hangs)
}

// alter has a webhook change what the controller writes into a namespace.
func (h *history) alter() string {
	at, n := pick(h, h.targets...), h.IntN(4)
	alter := []plantest.Option{data("altered"), unlabelled, disowned, func(cm *corev1.ConfigMap) {
		unlabelled(cm)
		delete(cm.Annotations, plan.ChecksumAnnotation)
	}}[n]
	h.with(func(now *faults) { now.altered[at] = alter })
	return fmt.Sprint([]string{"data", "label", "annotation", "label and annotation"}[n], " at ", at)
}

// beSlow has all requests about a namespace take long from now on.
func (h *history) beSlow() string {
	at, takes := pick(h, h.targets...), pick(h, 300*time.Millisecond, 3*time.Second, 12*time.Second, time.Minute)
	h.latest = max(h.latest, takes)
	h.with(func(now *faults) { now.lags[at] = takes })
	return fmt.Sprint(at, " ", takes)
}

func (h *history) endFaults() string {
	h.with(func(now *faults) {
		clear(now.failing)
		clear(now.altered)
		if h.IntN(2) == 0 {
			clear(now.lags)
		}
	})
	return ""
}

// beLate has requests, answers, reads and the watches take other times from now on: all of them, or one.
func (h *history) beLate() string {
	late := []string{"requests", "answers", "configmaps", "namespaces"}
	times := []time.Duration{0, 0, 2 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}
	lags := maps.Clone(h.faults.Load().lags)
	if lags == nil || h.IntN(2) == 0 {
		lags = map[string]time.Duration{}
		for _, what := range late {
			lags[what] = pick(h, times...)
		}
		if h.IntN(4) == 0 {
			lags[pick(h, "configmaps", "namespaces")] = pick(h, 20*time.Second, 90*time.Second) // a silent watch
		}
	} else {
		lags[pick(h, late...)] = pick(h, times[1:]...)
	}
	lags["reads"] = pick(h, 0, 0, 0, time.Second, 6*time.Second, 20*time.Second)
	h.mu.Lock()
	h.latestWatch = max(h.latestWatch, lags["configmaps"], lags["namespaces"])
	h.mu.Unlock()
	h.latest = max(h.latest, lags["requests"]+lags["answers"]+lags["reads"])
	h.with(func(now *faults) { now.lags = lags })
	return fmt.Sprint(lags)
}

// watchEnds records that a watch ends now, perhaps by a restore.
func (h *history) watchEnds(restores ...time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchEnded, h.restores = time.Now(), append(h.restores, restores...)
}

func (h *history) endWatch() string {
	if h.sinceWatchEnded() == 0 { // by a restore, which client-go must hear of: it does not list otherwise
		return "nothing"
	}
	h.watchEnds()
	n := h.IntN(4)
	[]func(){h.ConfigMaps.Expire, h.Namespaces.Expire, h.ConfigMaps.Break, h.Namespaces.Break}[n]()
	return []string{"of ConfigMaps with 410", "of namespaces with 410", "of ConfigMaps", "of namespaces"}[n]
}

// changeLeader has another leader take over, perhaps with other flags.
func (h *history) changeLeader() string {
	o := *h.options
	if h.IntN(5) < 2 {
		h.drawFlags(&o)
	}
	h.options = &o
	h.leader = h.lead(h.options, h.leader)
	return inWords(&o)
}

// inWords returns the flags that are drawn.
func inWords(o *Options) string {
	return fmt.Sprintf("prefixes %q, selector %q, source namespaces %q, excluded %q, prune %v, grace %v, resync %v",
		o.NamespacePrefixes, o.NamespaceSelector, o.SourceNamespaces, o.ExcludeNamespaces, o.Prune, o.DeletionGrace,
		o.ResyncPeriod)
}

// drawFlags draws the flags that decide.
func (h *history) drawFlags(o *Options) {
	o.NamespacePrefixes = pick(h, []string{"team-"}, []string{"team-"}, []string{"team-"},
		[]string{"team-a", "team-c"}, []string{"tema-"})
	o.NamespaceSelector = pick(h, "", "", "", "tier!=none")
	o.SourceNamespaces = pick(h, nil, nil, nil, []string{"platform", "team-a"})
	o.ExcludeNamespaces = pick(h, nil, nil, nil, []string{"team-b"})
	o.Prune = h.IntN(3) == 0
	if playsRare && len(h.terms) == 0 { // two leaders at once would fight with other flags
		o.CopyLabels = pick(h, nil, []string{"app"}, []string{"app", "app.kubernetes.io/*"})
		o.CopyAnnotations = pick(h, nil, []string{"note"}, []string{"no*"})
	}
}
