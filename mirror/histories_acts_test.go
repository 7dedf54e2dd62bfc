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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// acts are what may happen, and how often each does compared with the others. do says what it did.
var acts = []struct {
	weight int
	name   string
	do     func(*history) string
}{
	{16, "write source", (*history).writeSource},
	{5, "flip label", (*history).flipLabel},
	{5, "delete source", (*history).deleteSource},
	{6, "narrow source", (*history).narrowSource},
	{5, "hold source", (*history).holdSource},
	{6, "relabel namespace", (*history).relabelNamespace},
	{5, "recreate namespace", (*history).recreateNamespace},
	{14, "touch copy", (*history).touchCopy},
	{6, "write foreign object", (*history).writeForeign},
	{5, "revert", (*history).revert},
	{5, "hold briefly", (*history).holdBriefly},
	{4, "widen", (*history).widen},
	{4, "annotate", (*history).annotate},
	{6, "fill metadata", (*history).fillMetadata},
	{4, "replace copy by force", (*history).forceCopy},
	{3, "turn copy into source", (*history).copyToSource},
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

func (h *history) content() plantest.Option { return plantest.Data("key", strconv.Itoa(h.IntN(3))) }

// write creates a ConfigMap, or overwrites the one that is there: as kubectl replace --force does if it is immutable.
func (h *history) write(cm *corev1.ConfigMap) {
	cm.ResourceVersion, cm.UID = "", ""
	client := h.server.Interface.CoreV1().ConfigMaps(cm.Namespace)
	_, err := client.Update(h.t.Context(), cm, metav1.UpdateOptions{})
	if apierrors.IsInvalid(err) {
		h.remove(cm.Namespace, cm.Name)
		time.Sleep(h.pause(4))
	}
	if err != nil {
		_, _ = client.Create(h.t.Context(), cm, metav1.CreateOptions{}) // the namespace may be gone
	}
}

// change edits a ConfigMap if it is there. The API server may refuse that.
func (h *history) change(namespace, name string, edits ...plantest.Option) {
	cm, err := h.server.ConfigMaps.Get(key{Namespace: namespace, Name: name})
	if err != nil {
		return
	}
	for of, m := range map[*map[string]string]map[string]string{&cm.Labels: cm.Labels, &cm.Annotations: cm.Annotations} {
		if m == nil {
			*of = map[string]string{}
		}
	}
	for _, edit := range edits {
		edit(cm)
	}
	_, _ = h.server.Interface.CoreV1().ConfigMaps(namespace).Update(h.t.Context(), cm, metav1.UpdateOptions{})
}

func (h *history) remove(namespace, name string) {
	_ = h.server.Interface.CoreV1().ConfigMaps(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{})
}

// isOther reports whether a ConfigMap is there that is no source: a copy, or a foreign object.
func (h *history) isOther(namespace, name string) bool {
	cm, err := h.server.ConfigMaps.Get(key{Namespace: namespace, Name: name})
	return err == nil && (cm.Labels["mirror"] != "true" || namesItself(cm))
}

// aSource returns a place for a source at which there is nothing else.
func (h *history) aSource() (namespace, name string) {
	for range 9 {
		namespace, name = pick(h, h.sources...), pick(h, h.names...)
		if !h.isOther(namespace, name) {
			break
		}
	}
	return namespace, name
}

func (h *history) writeSource() string {
	namespace, name := h.aSource()
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
	cm := plantest.Source(namespace, name, options...)
	h.write(cm)
	return fmt.Sprint(namespace, "/", name, " ", cm.Data, cm.Annotations, cm.Immutable != nil)
}

// narrowing returns an annotation that narrows a source, or freezes it.
func (h *history) narrowing() plantest.Option {
	return pick(h,
		plantest.Annotation(plan.PrefixAnnotation, "team-a,team-c"), plantest.Annotation(plan.PrefixAnnotation, "team-b"),
		plantest.Annotation(plan.PrefixAnnotation, "Team-"), plantest.Annotation(plan.SelectorAnnotation, "tier=gold"),
		plantest.Annotation(plan.SelectorAnnotation, "tier in ("))
}

func (h *history) flipLabel() string {
	namespace, name := pick(h, h.sources...), pick(h, h.names...)
	if cm, err := h.server.ConfigMaps.Get(key{Namespace: namespace, Name: name}); err != nil ||
		namesItself(cm) {
		return "nothing"
	}
	h.change(namespace, name, func(cm *corev1.ConfigMap) {
		if cm.Labels["mirror"] == "true" {
			cm.Labels["mirror"] = pick(h, "", "copy", "false")
		} else {
			cm.Labels["mirror"] = "true"
		}
	})
	return namespace + "/" + name
}

func (h *history) deleteSource() string {
	namespace, name := h.aSource()
	before, err := h.server.ConfigMaps.Get(key{Namespace: namespace, Name: name})
	h.remove(namespace, name)
	if err == nil && h.IntN(2) == 0 {
		time.Sleep(h.pause(6))
		before.DeletionTimestamp, before.Finalizers = nil, nil
		h.write(before)
		return namespace + "/" + name + ", which comes back"
	}
	return namespace + "/" + name
}

func (h *history) narrowSource() string {
	namespace, name := h.aSource()
	edits := []plantest.Option{plantest.Without(plan.PrefixAnnotation), plantest.Without(plan.SelectorAnnotation)}
	if h.IntN(2) == 0 {
		edits = append(edits, h.narrowing())
	}
	h.change(namespace, name, edits...)
	return fmt.Sprint(namespace, "/", name, " ", len(edits) > 2)
}

func (h *history) relabelNamespace() string {
	name := pick(h, h.targets...)
	ns, err := h.server.Namespaces.Get(key{Name: name})
	if err != nil {
		return "nothing"
	}
	ns.Labels = pick(h, map[string]string{}, map[string]string{}, map[string]string{"mirror": "false"},
		map[string]string{"tier": "gold"}, map[string]string{"tier": "none"})
	ns.Labels[corev1.LabelMetadataName] = name
	_, _ = h.server.Interface.CoreV1().Namespaces().Update(h.t.Context(), ns, metav1.UpdateOptions{})
	return fmt.Sprint(name, " ", ns.Labels)
}

// holdSource has a source hold targets, or ends that.
func (h *history) holdSource() string {
	namespace, name := h.aSource()
	edits := []plantest.Option{plantest.Without(plan.PausedAnnotation), plantest.Without(plan.RolloutAnnotation)}
	if h.IntN(5) < 3 {
		edits = append(edits, pick(h,
			plantest.Annotation(plan.PausedAnnotation, "true"), plantest.Annotation(plan.PausedAnnotation, "yes"),
			plantest.Annotation(plan.RolloutAnnotation, "tier=gold"), plantest.Annotation(plan.RolloutAnnotation, "tier!=gold"),
			plantest.Annotation(plan.RolloutAnnotation, "tier in (")))
	}
	if h.IntN(2) == 0 {
		edits = append(edits, h.content())
	}
	h.change(namespace, name, edits...)
	return fmt.Sprint(namespace, "/", name, " ", len(edits))
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
		h.server.Terminate(name)
		time.Sleep(holds)
		for !h.server.Finalize(name) && h.now(h.options).namespaces[name] != nil { // a restore may have it gone
			time.Sleep(10 * time.Second)
			for _, of := range historyNames {
				h.change(name, of, withoutFinalizers)
			}
		}
		time.Sleep(away)
		_, _ = h.server.Interface.CoreV1().Namespaces().Create(h.t.Context(), historyNamespace(name),
			metav1.CreateOptions{})
		h.mu.Lock()
		defer h.mu.Unlock()
		h.removing[name] = false
	})
	return fmt.Sprint(name, " ", holds, away)
}

func withoutFinalizers(cm *corev1.ConfigMap) { cm.Finalizers = nil }

// touchCopy changes a copy, or an object in the way of one.
func (h *history) touchCopy() string {
	namespace, name := pick(h, h.targets...), pick(h, h.names...)
	for range 9 {
		if !h.isOther(namespace, name) {
			namespace, name = pick(h, h.targets...), pick(h, h.names...)
		}
	}
	if !h.isOther(namespace, name) {
		return "nothing"
	}
	disown := []plantest.Option{plantest.Without(plan.SourceAnnotation), plantest.Without(plan.CopyAnnotation)}
	touches := []struct {
		name  string
		edits []plantest.Option
	}{
		{"edit", []plantest.Option{plantest.Data("key", "spoilt")}},
		{"edit", []plantest.Option{plantest.Data("more", "spoilt")}},
		{"unlabel", []plantest.Option{plantest.Without("mirror")}},
		{"unlabel", []plantest.Option{plantest.Without("mirror")}},
		{"label as a source", []plantest.Option{plantest.Label("mirror", "true")}},
		{"disown", disown},
		{"disown and unlabel", append(disown, plantest.Without("mirror"))},
		{"forge source", []plantest.Option{
			plantest.Annotation(plan.SourceAnnotation, pick(h, append(historySources, "gone")...)+"/"+name)}},
		{"edit and forge source", []plantest.Option{plantest.Data("key", "spoilt"),
			plantest.Annotation(plan.SourceAnnotation, pick(h, append(historySources, "gone")...)+"/"+name)}},
		{"forge checksum", []plantest.Option{plantest.Annotation(plan.ChecksumAnnotation, "sha256:0")}},
		{"make immutable", []plantest.Option{plantest.Immutable}},
		{"edit and make immutable", []plantest.Option{plantest.Immutable, plantest.Data("key", "spoilt")}},
		{"add finalizer", []plantest.Option{plantest.Finalizer}},
		{"add finalizer and unlabel", []plantest.Option{plantest.Finalizer, plantest.Without("mirror")}},
		{"remove finalizers", []plantest.Option{withoutFinalizers}},
		{"hand over", []plantest.Option{plantest.Annotation(plan.AdoptAnnotation, "true")}},
		{"hand over with label", []plantest.Option{plantest.Annotation(plan.AdoptAnnotation, "true"),
			plantest.Label("mirror", "copy")}},
	}
	switch h.IntN(8) {
	case 0:
		h.change(namespace, name, plantest.Finalizer)
		fallthrough
	case 1:
		h.remove(namespace, name)
		return "delete " + namespace + "/" + name
	}
	touch := pick(h, touches...)
	h.change(namespace, name, touch.edits...)
	return touch.name + " " + namespace + "/" + name
}

// writeForeign creates an object that is not ours, if nothing is there.
func (h *history) writeForeign() string {
	namespace, name := pick(h, h.targets...), pick(h, h.names...)
	options := []plantest.Option{plantest.Data("key", "foreign")}
	for _, o := range []plantest.Option{
		plantest.Annotation(plan.AdoptAnnotation, "true"), plantest.Label("mirror", "copy"),
		plantest.Finalizer, plantest.Immutable,
		plantest.Annotation(plan.SourceAnnotation, "platform/"+name), plantest.Annotation(plan.InstanceAnnotation, "default"),
		plantest.Annotation(plan.CopyAnnotation, "elsewhere/"+name),
	} {
		if h.IntN(4) == 0 {
			options = append(options, o)
		}
	}
	cm := plantest.ConfigMap(namespace, name, options...)
	cm.ResourceVersion = ""
	if h.IntN(2) == 0 {
		h.remove(namespace, name)
	}
	_, err := h.server.Interface.CoreV1().ConfigMaps(namespace).Create(h.t.Context(), cm, metav1.CreateOptions{})
	return fmt.Sprint(namespace, "/", name, " ", cm.Labels, cm.Annotations, err)
}

// revert changes a source, takes that back some time later, and perhaps again.
func (h *history) revert() string {
	namespace, name := h.aSource()
	before, err := h.server.ConfigMaps.Get(key{Namespace: namespace, Name: name})
	if err != nil || before.Immutable != nil {
		return "nothing"
	}
	for range 1 + h.IntN(2) {
		h.change(namespace, name, plantest.Data("key", "reverted"))
		time.Sleep(h.pause(7))
		h.change(namespace, name, func(cm *corev1.ConfigMap) { cm.Data = before.Data })
		time.Sleep(h.pause(4))
	}
	return namespace + "/" + name
}

// holdBriefly has a source hold targets, or freezes it, for a moment in which its content may change.
func (h *history) holdBriefly() string {
	namespace, name := h.aSource()
	h.change(namespace, name, pick(h, plantest.Annotation(plan.PausedAnnotation, "true"),
		plantest.Annotation(plan.RolloutAnnotation, "tier=gold"), plantest.Annotation(plan.RolloutAnnotation, ""),
		plantest.Annotation(plan.PausedAnnotation, "ture")), h.content())
	time.Sleep(h.pause(8))
	h.change(namespace, name, plantest.Without(plan.PausedAnnotation), plantest.Without(plan.RolloutAnnotation))
	return namespace + "/" + name
}

// widen narrows a source to one target, and widens it again some time later.
func (h *history) widen() string {
	namespace, name := h.aSource()
	narrow := pick(h, plantest.Annotation(plan.PrefixAnnotation, pick(h, h.targets...)),
		plantest.Annotation(plan.SelectorAnnotation, corev1.LabelMetadataName+"="+pick(h, h.targets...)))
	h.change(namespace, name, narrow)
	time.Sleep(h.pause(9))
	h.change(namespace, name, plantest.Without(plan.PrefixAnnotation), plantest.Without(plan.SelectorAnnotation))
	return namespace + "/" + name
}

// annotate gives a source annotations that freeze it, and some that do not, or takes them away.
func (h *history) annotate() string {
	namespace, name := h.aSource()
	values := map[string]string{plan.Domain + "/namspace-prefix": "x", plan.AdoptAnnotation: "true",
		plan.RolloutAnnotation: "tier in (gold," + large[:5<<10] + ")"}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		edit := plantest.Without(k)
		if h.IntN(6) == 0 {
			edit = plantest.Annotation(k, values[k])
		}
		h.change(namespace, name, edit)
	}
	return namespace + "/" + name
}

var large = strings.Repeat("x", 250<<10)

// fillMetadata gives a copy or a source labels and annotations of other people, or takes them away.
func (h *history) fillMetadata() string {
	namespace, name := pick(h, append(slices.Clone(h.targets), h.sources...)...), pick(h, h.names...)
	value := large[:pick(h, 1, 10, 1000, 9<<10, 100<<10, 250<<10)]
	edits := []plantest.Option{pick(h, plantest.Annotation("theirs", value), plantest.Annotation("note", value),
		plantest.Label("theirs", "yes"), plantest.Label("theirs", "yes"), plantest.Without("theirs"),
		plantest.Without("note"))}
	if h.IntN(2) == 0 && h.isOther(namespace, name) { // it is repaired, with the metadata
		edits = append(edits, plantest.Data("key", "spoilt"))
	}
	h.change(namespace, name, edits...)
	return fmt.Sprint(namespace, "/", name, " ", len(value), len(edits) > 1)
}

// forceCopy deletes a copy and creates it again, as it was or changed: kubectl replace --force.
func (h *history) forceCopy() string {
	namespace, name := pick(h, h.targets...), pick(h, h.names...)
	cm, err := h.server.ConfigMaps.Get(key{Namespace: namespace, Name: name})
	if err != nil || !h.isOther(namespace, name) {
		return "nothing"
	}
	h.remove(namespace, name)
	time.Sleep(h.pause(3))
	cm.UID, cm.ResourceVersion, cm.DeletionTimestamp, cm.Finalizers = "", "", nil, nil
	if h.IntN(3) == 0 {
		cm.Data = map[string]string{"key": "spoilt"}
	}
	_, err = h.server.Interface.CoreV1().ConfigMaps(namespace).Create(h.t.Context(), cm, metav1.CreateOptions{})
	return fmt.Sprint(namespace, "/", name, " ", err)
}

// copyToSource makes a source of a copy.
func (h *history) copyToSource() string {
	namespace, name := pick(h, h.targets...), pick(h, h.names...)
	if !h.isOther(namespace, name) {
		return "nothing"
	}
	h.change(namespace, name, plantest.Without(plan.CopyAnnotation), plantest.Without(plan.SourceAnnotation),
		plantest.Label("mirror", "true"))
	return namespace + "/" + name
}

// restore has etcd restored from a backup.
func (h *history) restore() string {
	at := time.Now().Add(-h.pause(10))
	if at.Before(h.began.Add(time.Second)) || time.Since(h.watchEnded) < time.Minute { // client-go must hear of it
		return "nothing"
	}
	h.restored, h.watchEnded = true, time.Now()
	h.server.ConfigMaps.Restore(at)
	h.server.Namespaces.Restore(at)
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
	altered map[string]plantest.Option // by namespace
	lags    map[string]time.Duration   // of requests, answers, reads, the watch of each resource, and by namespace
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
	f := *h.faults.Load()
	f.failing, f.altered, f.lags = maps.Clone(f.failing), maps.Clone(f.altered), maps.Clone(f.lags)
	if f.failing == nil {
		f.failing, f.altered, f.lags = map[string]failure{}, map[string]plantest.Option{}, map[string]time.Duration{}
	}
	change(&f)
	h.faults.Store(&f)
}

// hook has the faults act on the requests of the controller.
func (h *history) hook() {
	failureOf := func(c apitest.Call) (f failure) {
		if now := h.faults.Load().failing[c.Namespace]; slices.Contains(now.verbs, c.Verb) {
			f = now
		}
		return f
	}
	fails := func(lost bool) func(apitest.Call) error {
		return func(c apitest.Call) (err error) {
			if f := failureOf(c); f.lost == lost {
				err = f.err
			}
			return err
		}
	}
	h.server.Hook(func(o *apitest.Hooks) {
		o.Before = h.countRequest
		o.Hangs = func(c apitest.Call) bool { return failureOf(c).hangs }
		o.Refuses, o.Loses = fails(false), fails(true)
		o.Alters = func(c apitest.Call, cm *corev1.ConfigMap) {
			if alter := h.faults.Load().altered[c.Namespace]; alter != nil {
				alter(cm)
			}
		}
		o.Takes = func(c apitest.Call) time.Duration {
			lags := h.faults.Load().lags
			if c.Verb == "get" {
				return time.Millisecond + lags["requests"] + lags["reads"] + lags[c.Namespace]
			}
			// A loop without a pause would go on for ever without the millisecond.
			return time.Millisecond + lags["requests"] + lags[c.Namespace]
		}
		o.Arrives = apitest.Call.IsWrite
		o.Answers = func(apitest.Call) time.Duration { return h.faults.Load().lags["answers"] }
		o.Lags = func(resource string) time.Duration { return h.faults.Load().lags[resource] }
	})
}

func (h *history) fail() string {
	resource := corev1.Resource("configmaps")
	failures := []struct {
		name string
		err  error
	}{
		{"403", apierrors.NewForbidden(resource, "settings", errors.New("quota"))},
		{"409", apierrors.NewConflict(resource, "settings", errors.New("quota"))},
		{"422", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "settings", nil)},
		{"429", apierrors.NewTooManyRequestsError("later")},
		{"500", apierrors.NewInternalError(errors.New("etcd"))},
		{"503", apierrors.NewServiceUnavailable("no webhook")},
		{"reset", errLost},
	}
	what := pick(h, failures...)
	f := failure{err: what.err, verbs: pick(h, []string{"create"}, []string{"update", "patch"}, []string{"delete"},
		[]string{"get"}, []string{"create", "update", "patch", "delete"},
		[]string{"create", "update", "patch", "delete", "get"})}
	at := pick(h, append(slices.Clone(historyNamespaces), h.targets...)...)
	if failing := slices.Sorted(maps.Keys(h.faults.Load().failing)); len(failing) > 0 && h.IntN(2) == 0 {
		at = pick(h, failing...)
	}
	switch h.IntN(6) {
	case 0, 1: // an API server refuses nothing that it has carried out
		f.lost = slices.Contains([]string{"500", "503", "reset"}, what.name)
	case 2:
		f.hangs = true
	}
	h.with(func(now *faults) { now.failing[at] = f })
	return fmt.Sprintf("%s %v at %s, lost %v, hangs %v", what.name, f.verbs, at, f.lost, f.hangs)
}

// alter has a webhook change what the controller writes into a namespace.
func (h *history) alter() string {
	at := pick(h, h.targets...)
	alterations := []struct {
		name  string
		alter plantest.Option
	}{
		{"data", plantest.Data("key", "altered")},
		{"label", plantest.Without("mirror")},
		{"annotation", plantest.Without(plan.SourceAnnotation)},
		{"label and annotation", func(cm *corev1.ConfigMap) {
			delete(cm.Labels, "mirror")
			delete(cm.Annotations, plan.ChecksumAnnotation)
		}},
	}
	a := pick(h, alterations...)
	h.with(func(now *faults) { now.altered[at] = a.alter })
	return a.name + " at " + at
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
	lags := maps.Clone(h.faults.Load().lags)
	if lags == nil || h.IntN(2) == 0 {
		lags = map[string]time.Duration{}
		for _, what := range []string{"requests", "answers", "configmaps", "namespaces"} {
			lags[what] = pick(h, 0, 0, 2*time.Millisecond, 30*time.Millisecond, 300*time.Millisecond, 2*time.Second)
		}
		if h.IntN(4) == 0 {
			lags[pick(h, "configmaps", "namespaces")] = pick(h, 20*time.Second, 90*time.Second) // a silent watch
		}
	} else {
		what := pick(h, "requests", "answers", "configmaps", "namespaces")
		lags[what] = pick(h, 0, 2*time.Millisecond, 30*time.Millisecond, 300*time.Millisecond, 2*time.Second)
	}
	lags["reads"] = pick(h, 0, 0, 0, time.Second, 6*time.Second, 20*time.Second)
	h.latestWatch = max(h.latestWatch, lags["configmaps"], lags["namespaces"])
	h.latest = max(h.latest, lags["requests"]+lags["answers"]+lags["reads"])
	h.with(func(now *faults) { now.lags = lags })
	return fmt.Sprint(lags)
}

func (h *history) endWatch() string {
	if h.watchEnded.Equal(time.Now()) { // by a restore, which client-go must hear of: it does not list otherwise
		return "nothing"
	}
	h.watchEnded = time.Now()
	type end struct {
		how string
		do  func()
	}
	ends := pick(h,
		end{"of ConfigMaps with 410", h.server.ConfigMaps.Expire}, end{"of namespaces with 410", h.server.Namespaces.Expire},
		end{"of ConfigMaps", h.server.ConfigMaps.Break}, end{"of namespaces", h.server.Namespaces.Break})
	ends.do()
	return ends.how
}

// changeLeader has another leader take over, perhaps with other flags.
func (h *history) changeLeader() string {
	o := *h.options
	if h.IntN(5) < 2 {
		h.drawFlags(&o)
	}
	h.options = &o
	h.leader = h.lead(h.options, h.leader)
	return fmt.Sprintf("prefixes %q, selector %q, source namespaces %q, prune %v", o.NamespacePrefixes,
		o.NamespaceSelector, o.SourceNamespaces, o.Prune)
}

// drawFlags draws the flags that decide.
func (h *history) drawFlags(o *Options) {
	o.NamespacePrefixes = pick(h, []string{"team-"}, []string{"team-"}, []string{"team-"},
		[]string{"team-a", "team-c"}, []string{"tema-"})
	o.NamespaceSelector = pick(h, "", "", "", "tier!=none")
	o.SourceNamespaces = pick(h, nil, nil, nil, []string{"platform", "team-a"})
	o.ExcludeNamespaces = pick(h, nil, nil, nil, []string{"team-b"})
	o.Prune = h.IntN(3) == 0
}
