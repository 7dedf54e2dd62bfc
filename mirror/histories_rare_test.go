package mirror

// Acts that are rare in a cluster, and a judge of the events some minutes after
// the last act. HISTORIES_ACTS=all plays them beside the others.

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/apitest/judge"
	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// playsRare is whether rare acts are played. Without them a seed is the history
// that it was before there were any.
var playsRare = os.Getenv("HISTORIES_ACTS") == "all"

func init() {
	if playsRare {
		acts = append(acts, rareActs...)
	}
}

// rareActs are the acts that HISTORIES_ACTS=all adds to acts.
var rareActs = []act{
	{12, "quiet", (*history).quiet},
	{5, "events fail", (*history).failEvents},
	{3, "other controller", (*history).otherController},
	{4, "alter by verb", (*history).alterVerb},
	{5, "edit metadata of source", atSource((*history).editMetadata)},
	{3, "rename source", atSource((*history).rename)},
	{4, "lose events of a watch", (*history).loseEvents},
	{4, "interrupt a watch", (*history).interruptWatch},
	{4, "forge a copy", (*history).forge},
	{3, "mark a source as a copy", atSource((*history).markAsCopy)},
}

// rareState is what a history remembers of its rare acts.
type rareState struct {
	others atomic.Int32 // other controllers that run
	losing atomic.Bool  // a watch loses events, or is interrupted
	// interrupted is set when a watch has been interrupted.
	interrupted atomic.Bool
	slowEvents  atomic.Bool // events have failed or taken long
}

// Keys of faults that concern events, and not requests.
const (
	eventLag     = "events"
	eventFailure = "/events"
)

// sendEvent has an event take long, or fail.
func (h *history) sendEvent(ctx context.Context) error {
	f := h.faults.Load()
	if takes := f.lags[eventLag]; takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.failing[eventFailure].err
}

// failEvents has events take long or fail from now on, or ends that.
func (h *history) failEvents() string {
	h.rare.slowEvents.Store(true)
	takes := pick(h, 0, 300*time.Millisecond, 2*time.Second, 12*time.Second)
	err := pick(h, nil, errAway, rejected("events"))
	h.with(func(now *faults) {
		now.lags[eventLag] = takes
		now.failing[eventFailure] = failure{err: err}
		if err == nil {
			delete(now.failing, eventFailure)
		}
	})
	return fmt.Sprint(takes, " ", err)
}

// nobody takes the events of the other controller.
type nobody struct{}

func (nobody) Send(context.Context, Event) error { return nil }

// otherController runs a controller of another instance for some time. All that
// is ours is foreign to it.
func (h *history) otherController() string {
	o := *h.options
	o.Instance, o.DeletionGrace = "two", time.Second
	o.NamespacePrefixes = pick(h, []string{"team-"}, []string{"team-b"}, []string{"team-c", "base"})
	o.SourceNamespaces, o.ExcludeNamespaces, o.NamespaceSelector = nil, nil, ""
	runs := h.pause(10) + time.Second
	h.rare.others.Add(1)
	h.removals.Go(func() {
		defer h.rare.others.Add(-1)
		c, err := New(h.Server.Interface, nobody{}, &o)
		if err != nil {
			h.t.Error(err)
			return
		}
		ctx, cancel := context.WithCancel(klog.NewContext(h.t.Context(), logr.Discard()))
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx, Alone(ctx)) }()
		time.Sleep(runs)
		cancel()
		<-ended
	})
	return fmt.Sprint(o.NamespacePrefixes, " ", runs)
}

// alterVerb has a webhook for one verb change what the controller writes into a
// namespace.
func (h *history) alterVerb() string {
	at, verb, n := pick(h, h.targets...), pick(h, "create", "update"), h.IntN(6)
	alter := []plantest.Option{data("altered"), plantest.Immutable,
		plantest.Label("theirs", "webhook"), plantest.Annotation("theirs", "webhook"),
		plantest.Finalizer, unlabelled}[n]
	h.with(func(now *faults) {
		now.altered[verb+" "+at] = func(cm *corev1.ConfigMap) {
			for _, m := range []*map[string]string{&cm.Labels, &cm.Annotations} {
				if *m == nil {
					*m = map[string]string{}
				}
			}
			alter(cm)
		}
		// The judge asks by namespace where a webhook acts.
		if now.altered[at] == nil {
			now.altered[at] = func(*corev1.ConfigMap) {}
		}
	})
	return fmt.Sprint(verb, " ", n, " at ", at)
}

// editMetadata edits labels and annotations of a source that are copied.
func (h *history) editMetadata(k key) string {
	number := fmt.Sprint(h.IntN(3))
	return h.change(k, pick(h,
		plantest.Label("app", number), plantest.Without("app"),
		plantest.Annotation("note", number), plantest.Without("note"),
		plantest.Label("app.kubernetes.io/name", number),
		plantest.Without("app.kubernetes.io/name")))
}

// rename deletes a source, and creates it again under another name, perhaps in
// another namespace.
func (h *history) rename(k key) string {
	cm, to := h.at(k), h.place(h.sources)
	if cm == nil || h.at(to) != nil {
		return "nothing"
	}
	h.delete(k)
	time.Sleep(h.pause(5))
	renamed := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: to.Namespace, Name: to.Name,
			Labels: cm.Labels, Annotations: cm.Annotations},
		Data: cm.Data, Immutable: cm.Immutable,
	}
	return fmt.Sprint(to, " ", h.create(renamed))
}

// loseEvents has a watch lose what happens in a namespace, and then end with
// 410.
func (h *history) loseEvents() string {
	if !h.rare.losing.CompareAndSwap(false, true) {
		return "nothing"
	}
	loses, of := h.pause(9), pick(h, "configmaps", "configmaps", "namespaces")
	at := pick(h, slices.Concat(h.targets, h.targets, h.sources)...)
	h.mu.Lock()
	h.latestWatch = max(h.latestWatch, loses+time.Minute)
	h.mu.Unlock()
	h.Hook(func(o *apitest.Hooks) {
		o.Lost = func(resource, namespace string) bool {
			return resource == of && (namespace == at || resource == "namespaces")
		}
	})
	h.removals.Go(func() {
		defer h.rare.losing.Store(false)
		time.Sleep(loses)
		// client-go must hear of the last end of a watch before the next one.
		for h.sinceWatchEnded() < 70*time.Second {
			time.Sleep(time.Second)
		}
		h.Hook(func(o *apitest.Hooks) { o.Lost = nil })
		h.watchEnds()
		if of == "configmaps" {
			h.ConfigMaps.Expire()
		} else {
			h.Namespaces.Expire()
		}
	})
	return fmt.Sprint(of, " ", at, " ", loses)
}

// interruptWatch ends a watch, and has lists and watches of its resource refused,
// left without an answer, or cut for some time.
func (h *history) interruptWatch() string {
	// client-go must hear of the last end of a watch before the next one.
	if h.sinceWatchEnded() < 70*time.Second || !h.rare.losing.CompareAndSwap(false, true) {
		return "nothing"
	}
	h.rare.interrupted.Store(true)
	resource := pick(h, cache.Resources...)
	way := pick(h, slices.Sorted(maps.Keys(apitest.Interruptions))...)
	lasts := pick(h, h.pause(10), h.pause(10), 6*time.Minute)
	h.mu.Lock()
	h.latestWatch = max(h.latestWatch, lasts+2*time.Minute)
	h.mu.Unlock()
	h.with(func(now *faults) { now.interrupted[resource] = apitest.Interruptions[way] })
	h.breakWatch(resource)
	h.removals.Go(func() {
		defer h.rare.losing.Store(false)
		time.Sleep(lasts)
		h.with(func(now *faults) { delete(now.interrupted, resource) })
		// A stream that never shows the end of its list may go on.
		h.breakWatch(resource)
	})
	return fmt.Sprint(resource, " ", way, " ", lasts)
}

// breakWatch breaks the streams of a resource.
func (h *history) breakWatch(resource string) {
	h.watchEnds()
	if resource == "configmaps" {
		h.ConfigMaps.Break()
	} else {
		h.Namespaces.Break()
	}
}

// sinceWatchEnded returns how long ago a watch was ended.
func (h *history) sinceWatchEnded() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.watchEnded)
}

// marks returns the marks of a copy at a place, of a source that may be there.
func (h *history) marks(k key) []plantest.Option {
	of := pick(h, append(slices.Clone(historySources), "gone")...)
	return []plantest.Option{copyLabel,
		plantest.Annotation(plan.SourceAnnotation, of+"/"+k.Name),
		plantest.Annotation(plan.CopyAnnotation, k.String()),
		plantest.Annotation(plan.InstanceAnnotation, "default")}
}

// forge creates what looks like a copy. The judge looks at deletions in targets
// alone.
func (h *history) forge() string {
	k := h.place(h.targets)
	if h.at(k) != nil && !h.isOther(k) {
		return "nothing"
	}
	cm := plantest.ConfigMap(k.Namespace, k.Name, append(h.marks(k), data("forged"))...)
	cm.ResourceVersion, cm.UID = "", ""
	h.delete(k)
	return fmt.Sprint(k, " ", cm.Annotations, " ", h.create(cm))
}

// markAsCopy gives a source the marks of a copy.
func (h *history) markAsCopy(k key) string {
	if !slices.Contains(historyTargets, k.Namespace) {
		return "nothing"
	}
	return h.change(k, h.marks(k)...)
}

// isCalm reports whether nothing goes wrong, and nothing of an act goes on.
func (h *history) isCalm() bool {
	f := h.faults.Load()
	for _, lag := range f.lags {
		if lag > 300*time.Millisecond {
			return false
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, removing := range h.removing {
		if removing {
			return false
		}
	}
	return len(f.failing)+len(f.altered) == 0 && h.rare.others.Load() == 0 && !h.rare.losing.Load()
}

// quiet waits until a message that was refused has had its next try, five
// minutes later at most. Then it compares what is reported with the cluster.
func (h *history) quiet() string {
	if h.IntN(2) == 0 { // else few histories would be calm
		h.with(func(now *faults) {
			clear(now.failing)
			clear(now.altered)
			clear(now.lags)
		})
	}
	if !h.isCalm() {
		return "not calm"
	}
	time.Sleep(6*time.Minute + 30*time.Second)
	for _, c := range since(h.ConfigMaps, 75*time.Second) {
		if c.By.Controller || c.New == nil || c.Old == nil {
			return "something happens"
		}
	}
	if !h.isCalm() || h.sinceWatchEnded() < 2*time.Minute {
		return "not calm any more"
	}
	h.compare(false)
	h.compareNewest()
	return "compared"
}

// compareNewest compares the events about each source, and what the plug-in
// makes of them, with the cluster.
func (h *history) compareNewest() {
	last, newest := h.lastRemarks(h.began)
	w, unsettled := h.now(h.options), h.unsettled()
	for k := range historyPlaces {
		cm, ns := w.ConfigMaps[k], w.Namespaces[k.Namespace]
		if cm == nil || ns == nil || judge.IsTerminating(ns) || !w.AsksToBeMirrored(cm) || unsettled[k.Name] ||
			h.isRemembered(w, k.Name) {
			continue
		}
		h.compareReasons(w, k, last)
		want := w.Reasons(cm)
		if len(want) > 0 && !want[newest[k]] {
			h.found(wrongEvent, "%v: the newest event was %q, and %v hold", k,
				last[[2]string{k.String(), newest[k]}].note, want)
		}
		if h.Rand.IntN(3) == 0 { // a comparison of readers takes long
			h.compareReaders(w, k)
		}
	}
}

// unsettled returns the names that have a target at which something goes on.
func (h *history) unsettled() map[string]bool {
	names := map[string]bool{}
	for k, s := range h.leader.targetStates() {
		switch s.state {
		case plan.StateFight, plan.StateRejected, plan.StateExpiring, plan.StatePending:
			names[k.Name] = true
		}
	}
	return names
}

// compareReaders compares the status of a source as the plug-in shows it, by the
// events about the source, with the cluster.
func (h *history) compareReaders(w *judge.Cluster, k key) {
	cm := w.ConfigMaps[k]
	reader := h.reader(append(h.eventsAbout(k), cm.DeepCopy()))
	all, err := reader.Sources(h.t.Context(), k)
	if err != nil || len(all) != 1 {
		h.found(wrongEvent, "%v: got %v, %v by events", k, all, err)
		return
	}
	got, want, counts := all[0], statusOf(w, cm), w.CountsOf(k)
	isUnknown := got.Status == snapshot.NotKnown || got.Status == snapshot.Pending
	if want == snapshot.NotKnown || isUnknown && h.options.ResyncPeriod == 0 {
		return // events last for an hour, and nothing repeats them without a resync
	}
	isCounted := got.Status == snapshot.InSync || got.Status == snapshot.Blocked
	if got.Status != want || isCounted && !maps.Equal(got.Counts, counts) {
		h.found(wrongEvent, "%v: by events %s %v (%s), by the cluster %s %v", k, got.Status,
			got.Counts, got.Note, want, counts)
	}
	shown := map[string]bool{plan.ReasonMirrored: true} // the status has its numbers
	for _, m := range got.Messages {
		shown[m.Reason] = true
		if !w.Reasons(cm)[m.Reason] {
			h.found(wrongEvent, "%v: by events %s, and %s: %q", k, got.Status, m.Reason, m.Text)
		}
	}
	for reason := range w.Reasons(cm) {
		if !shown[reason] && h.options.ResyncPeriod > 0 {
			h.found(wrongEvent, "%v: by events %s, and no %s", k, got.Status, reason)
		}
	}
}

// statusOf returns the status of a ConfigMap that asks to be mirrored, in a
// cluster at rest; NotKnown if the controller has nothing to report.
func statusOf(w *judge.Cluster, s *corev1.ConfigMap) string {
	reasons, counts := w.Reasons(s), w.CountsOf(apitest.KeyOf(s))
	switch {
	case !w.AllowsSource(s.Namespace) && counts["out_of_scope"] > 0:
		return snapshot.OutOfScope
	case !w.AllowsSource(s.Namespace):
		return snapshot.NotKnown
	case reasons[plan.ReasonReservedName]:
		return snapshot.ReservedName
	case reasons[plan.ReasonInvalidAnnotation]:
		return snapshot.Frozen
	case reasons[plan.ReasonNoTargets]:
		return snapshot.NoTargets
	case counts["foreign"]+counts["superseded"] > 0:
		return snapshot.Blocked
	}
	return snapshot.InSync
}

// reader returns a reader of the plug-in on a cluster with these objects.
func (h *history) reader(objects []runtime.Object) *snapshot.Reader {
	rules := plan.NewRules(&h.options.Options)
	return &snapshot.Reader{Client: fake.NewClientset(objects...), Rules: rules}
}

// eventsAbout returns the events about a source that the API server still has.
func (h *history) eventsAbout(k key) (events []runtime.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, e := range h.events {
		if e.about != k || time.Since(e.at) >= time.Hour || h.isOfFormer(e) {
			continue
		}
		events = append(events, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: fmt.Sprint("e", i),
				ResourceVersion: fmt.Sprint(i + 1), Annotations: e.annotations},
			InvolvedObject: corev1.ObjectReference{Namespace: k.Namespace, Name: k.Name},
			Reason:         e.reason, Message: e.note,
		})
	}
	return events
}
