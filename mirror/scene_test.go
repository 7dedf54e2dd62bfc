package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// diary keeps the events that a controller sends.
type diary struct {
	mu       sync.Mutex
	events   []Event
	versions map[key]string // of each source, in the last event that is about a version
	receives func(Event) error
}

func (d *diary) Send(ctx context.Context, e Event) error {
	d.mu.Lock()
	receives := d.receives
	d.mu.Unlock()
	if receives != nil {
		if err := receives(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
	if version := e.Annotations[plan.EventVersion]; version != "" {
		if d.versions == nil {
			d.versions = map[key]string{}
		}
		d.versions[e.Regarding] = version
	}
	return nil
}

// onEvent has f called for each event from now on. If f returns an error, the event is refused.
func (d *diary) onEvent(f func(Event) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receives = f
}

// eventsOf returns the events with this reason.
func (d *diary) eventsOf(reason string) []Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.events), func(e Event) bool { return e.Reason != reason })
}

// countEvents returns how many events had this reason.
func (d *diary) countEvents(reason string) int { return len(d.eventsOf(reason)) }

// lastEvent returns the last event with this reason.
func (d *diary) lastEvent(reason string) (last Event) {
	synctest.Wait()
	if all := d.eventsOf(reason); len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// lastNote returns the note of the last event with this reason.
func (d *diary) lastNote(reason string) string { return d.lastEvent(reason).Note }

// people act on an API server. Their requests have no hooks.
type people struct {
	*apitest.Server
	t *testing.T
}

func (p people) configMaps(namespace string) typedcorev1.ConfigMapInterface {
	return p.Interface.CoreV1().ConfigMaps(namespace)
}

// at returns the ConfigMap of this key, or nil.
func (p people) at(k key) *corev1.ConfigMap {
	cm, _ := p.ConfigMaps.Get(k)
	return cm
}

// update edits a ConfigMap. A conflict means that the controller was faster.
func (p people) update(cm *corev1.ConfigMap, edits ...plantest.Option) error {
	for _, m := range []*map[string]string{&cm.Labels, &cm.Annotations} {
		if *m == nil {
			*m = map[string]string{}
		}
	}
	for _, edit := range edits {
		edit(cm)
	}
	_, err := p.configMaps(cm.Namespace).Update(p.t.Context(), cm, metav1.UpdateOptions{})
	return err
}

func (p people) create(cm *corev1.ConfigMap) error {
	_, err := p.configMaps(cm.Namespace).Create(p.t.Context(), cm, metav1.CreateOptions{})
	return err
}

// delete deletes a ConfigMap if it is there.
func (p people) delete(k key) {
	_ = p.configMaps(k.Namespace).Delete(p.t.Context(), k.Name, metav1.DeleteOptions{})
}

func (p people) createNamespace(ns *corev1.Namespace) error {
	_, err := p.Interface.CoreV1().Namespaces().Create(p.t.Context(), ns, metav1.CreateOptions{})
	return err
}

func (p people) updateNamespace(ns *corev1.Namespace) error {
	_, err := p.Interface.CoreV1().Namespaces().Update(p.t.Context(), ns, metav1.UpdateOptions{})
	return err
}

// scene is a controller that runs, the API server that it runs on, and the events that it records.
type scene struct {
	people
	*diary
	controller *Controller
	registry   metrics.KubeRegistry
	logger     klog.Logger
}

// inScene returns a test that runs a controller in a bubble, without a resync, on an API server with the namespace
// platform and with these objects. f may wait as long as it likes. A bubble does not end while one of its goroutines
// waits.
func inScene(objects []runtime.Object, f func(*testing.T, scene)) func(*testing.T) {
	return inSceneWith(objects, func(*Options) {}, f)
}

// inSceneWith is inScene with other options.
func inSceneWith(objects []runtime.Object, edit func(*Options), f func(*testing.T, scene)) func(*testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, objects, edit)
			defer s.isSafe()
			defer s.start()() // also if f fails
			f(t, s)
			s.settles()
		})
	}
}

// newScene returns a scene whose controller does not run yet. It may be a null
// controller.
func newScene(t *testing.T, objects []runtime.Object, edit func(*Options)) scene {
	t.Helper()
	s := byHand(t, objects, edit)
	if lacks := nullControllers[lacking]; lacks != nil {
		lacks(s.controller)
		if lacking != "reports" {
			printColor(t)
		}
	}
	return s
}

// byHand is newScene for a test that calls the parts of the controller itself.
func byHand(t *testing.T, objects []runtime.Object, edit func(*Options)) scene {
	t.Helper()
	server := apitest.NewServer(append(slices.Clip(objects), plantest.Namespace("platform"))...)
	o := teamOptions()
	o.ResyncPeriod = 0
	edit(o)
	d := &diary{}
	c, err := New(server, d, o)
	if err != nil {
		t.Fatal(err)
	}
	registry := metrics.NewKubeRegistry()
	c.RegisterMetrics(registry)
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
	return scene{people{server, t}, d, c, registry, logger}
}

// start starts the controller, which shares its instance with no other.
func (s scene) start() (stop func()) {
	ctx, cancel := context.WithCancel(s.logged())
	ended := make(chan error, 1)
	go func() { ended <- s.controller.Run(ctx, Alone(ctx)) }()
	synctest.Wait()
	return func() {
		s.t.Helper()
		cancel()
		select {
		case err := <-ended:
			s.check(err)
		case <-time.After(24 * time.Hour):
			s.t.Fatal("got no end of Run within a day")
		}
	}
}

// logged returns a context in which log lines go to the log of the scene.
func (s scene) logged() context.Context { return klog.NewContext(s.t.Context(), s.logger) }

// log returns the lines that the controller has logged.
func (s scene) log() string { return s.logger.GetSink().(ktesting.Underlier).GetBuffer().String() }

// wantLogged fails the test unless the controller has logged all of these parts.
func (s scene) wantLogged(parts ...string) {
	s.t.Helper()
	s.wantParts("log", s.log(), parts)
}

func (s scene) wantParts(what, got string, parts []string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			s.t.Errorf("got %s %q, want in it %q", what, got, part)
		}
	}
}

// teams returns n namespaces whose names begin with prefix.
func teams(n int, prefix string) (out []runtime.Object) {
	for i := range n {
		out = append(out, plantest.Namespace(fmt.Sprintf("%s%03d", prefix, i)))
	}
	return out
}

// source returns the source platform/settings.
func source(options ...plantest.Option) *corev1.ConfigMap { return sourceIn("platform", options...) }

// sourceIn returns a source of the name settings.
func sourceIn(namespace string, options ...plantest.Option) *corev1.ConfigMap {
	return plantest.Source(namespace, "settings", options...)
}

// copyOf returns the copy of a source as the controller would have made it.
func copyOf(src *corev1.ConfigMap, namespace string, options ...plantest.Option) *corev1.ConfigMap {
	return plantest.Copy(teamRules(), src, namespace, options...)
}

// What ConfigMaps have, or have no more.
var (
	adopt      = plantest.Annotation(plan.AdoptAnnotation, plan.AdoptValue)
	paused     = plantest.Annotation(plan.PausedAnnotation, plan.PausedValue)
	copyLabel  = plantest.Label(plan.DefaultLabel, plan.CopyValue)
	unlabelled = plantest.Without(plan.DefaultLabel)
	disowned   = plantest.Without(plan.SourceAnnotation)
)

func data(value string) plantest.Option { return plantest.Data("key", value) }

func prefixes(value string) plantest.Option { return plantest.Annotation(plan.PrefixAnnotation, value) }

func selector(value string) plantest.Option {
	return plantest.Annotation(plan.SelectorAnnotation, value)
}

func rollout(value string) plantest.Option { return plantest.Annotation(plan.RolloutAnnotation, value) }

func withoutFinalizers(cm *corev1.ConfigMap) { cm.Finalizers = nil }

// write creates a ConfigMap, or overwrites the one that is there.
func (s scene) write(cm *corev1.ConfigMap) {
	s.t.Helper()
	cm.ResourceVersion, cm.UID = "", ""
	if s.update(cm) != nil {
		s.check(s.create(cm))
	}
}

// edit edits the ConfigMap settings in a namespace, if there is one.
func (s scene) edit(namespace string, edits ...plantest.Option) {
	s.t.Helper()
	for cm := s.get(namespace); cm != nil; cm = s.get(namespace) {
		if err := s.update(cm, edits...); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			s.check(err)
			return
		}
	}
}

// get returns the ConfigMap settings in a namespace, or nil.
func (s scene) get(namespace string) *corev1.ConfigMap { return s.at(settings(namespace)) }

// remove deletes the ConfigMap settings in a namespace, if there is one.
func (s scene) remove(namespace string) { s.delete(settings(namespace)) }

// addNamespace creates a namespace. The labels are keys and values in turn.
func (s scene) addNamespace(name string, labels ...string) {
	s.t.Helper()
	s.check(s.createNamespace(plantest.Namespace(name, labels...)))
}

// setNamespace overwrites the labels of a namespace.
func (s scene) setNamespace(name string, labels ...string) {
	s.t.Helper()
	ns := plantest.Namespace(name, labels...)
	ns.UID = ""
	s.check(s.updateNamespace(ns))
}

// optOut has a namespace opt out.
func (s scene) optOut(namespace string) {
	s.setNamespace(namespace, plan.DefaultLabel, plan.OptOutValue)
}

// removeNamespace deletes a namespace and what is in it.
func (s scene) removeNamespace(name string) {
	s.t.Helper()
	s.Terminate(name)
	if !s.Finalize(name) {
		s.t.Errorf("%s: something holds up the deletion", name)
	}
}

func (s scene) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

// metric returns the value of the metric with this name and the values of these labels; -1 if there is none.
func (s scene) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	s.check(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && strings.Join(values, " ") == strings.Join(labels, " ") {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

// wantMetric fails the test unless the metric with this name and the values of these labels has this value.
func (s scene) wantMetric(want float64, name string, labels ...string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.metric(name, labels...); got != want {
		s.t.Errorf("got %s %q %v, want %v", name, labels, got, want)
	}
}

// wantCopies fails the test unless so many copies of settings with this value are in the namespaces with this prefix.
func (s scene) wantCopies(want int, prefix, value string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.countCopies(prefix, value); got != want {
		s.t.Errorf("got %d copies with %q in %s*, want %d", got, value, prefix, want)
	}
}

// countWrites returns how many writes came in namespaces with this prefix.
func (s scene) countWrites(prefix string) int {
	synctest.Wait()
	return s.CountAll(prefix, "create", "update", "delete")
}

// wantWrites fails the test unless so many writes came in namespaces with this prefix.
func (s scene) wantWrites(want int, prefix string) {
	s.t.Helper()
	if got := s.countWrites(prefix); got != want {
		s.t.Errorf("got %d writes in %s*, want %d", got, prefix, want)
	}
}

// wantEventCount fails the test unless so many events had this reason.
func (s scene) wantEventCount(want int, reason string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.eventsOf(reason); len(got) != want {
		s.t.Errorf("got %d events %s, want %d: %v", len(got), reason, want, got)
	}
}

// wantNote fails the test unless the note of the last event with this reason has all of these parts.
func (s scene) wantNote(reason string, parts ...string) {
	s.t.Helper()
	s.wantParts(reason, s.lastNote(reason), parts)
}

// version returns the resourceVersion of the source platform/settings.
func (s scene) version() string { return s.get("platform").ResourceVersion }

// wantMirrored fails the test unless the last event Mirrored is about the present version of platform/settings, and
// about these targets, such as "2 namespaces".
func (s scene) wantMirrored(targets string) {
	s.t.Helper()
	want := fmt.Sprintf("Synced version %s to %s", s.version(), targets)
	if got := s.lastNote(plan.ReasonMirrored); got != want {
		s.t.Errorf("got event %q, want %q", got, want)
	}
}

// wantCopy fails the test unless a copy of platform/settings with this value is in the namespace.
func (s scene) wantCopy(namespace, value string) {
	s.t.Helper()
	synctest.Wait()
	switch cm := s.get(namespace); {
	case cm == nil:
		s.t.Errorf("%s: got no copy, want one with %q", namespace, value)
	case cm.Data["key"] != value || cm.Labels[plan.DefaultLabel] != plan.CopyValue ||
		cm.Annotations[plan.SourceAnnotation] != "platform/settings":
		s.t.Errorf("%s: got %v, want a copy with %q", namespace, cm, value)
	}
}

// wantNone fails the test if there is a ConfigMap settings in the namespace.
func (s scene) wantNone(namespace string) {
	s.t.Helper()
	synctest.Wait()
	if cm := s.get(namespace); cm != nil {
		s.t.Errorf("%s: got %v, want nothing there", namespace, cm)
	}
}

// within returns how long it takes until holds holds, checked every 10 ms, and fails the test after limit.
func (s scene) within(limit time.Duration, what string, holds func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	for synctest.Wait(); !holds(); synctest.Wait() {
		if time.Since(began) >= limit {
			s.t.Errorf("got no %s within %v", what, limit)
			break
		}
		// After a second it looks less often: each look at thousands of copies takes longer than their changes.
		passed := time.Since(began)
		time.Sleep(min(max(10*time.Millisecond, passed/100), limit-passed))
	}
	return time.Since(began)
}

// countCopies returns how many ConfigMaps settings with this value are in the namespaces with this prefix.
func (s scene) countCopies(prefix, value string) int { return s.countNamed("settings", prefix, value) }

// countNamed returns how many ConfigMaps of this name, with this value, are in the namespaces with this prefix.
func (s scene) countNamed(name, prefix, value string) (n int) {
	for _, cm := range s.ConfigMaps.All() {
		if cm.Name == name && strings.HasPrefix(cm.Namespace, prefix) && cm.Data["key"] == value {
			n++
		}
	}
	return n
}

// errAway is an error that is no answer of the API server.
var errAway = errors.New("away")

// Requests of the controller, for hooks.
var (
	anyCall = apitest.Call{}
	creates = apitest.Call{Verb: "create"}
	updates = apitest.Call{Verb: "update"}
	deletes = apitest.Call{Verb: "delete"}
	reads   = apitest.Call{Verb: "get"}
)

// request returns a request of the controller.
func request(verb, resource, namespace string) apitest.Call {
	return apitest.Call{Verb: verb, Resource: resource, Namespace: namespace}
}

// on returns a hook with this value for requests that match one of these, in which what is empty matches everything.
func on[T any](value T, requests ...apitest.Call) func(apitest.Call) T {
	matches := func(field, of string) bool { return field == "" || field == of }
	return func(c apitest.Call) (none T) {
		for _, r := range requests {
			if matches(r.Verb, c.Verb) && matches(r.Resource, c.Resource) && matches(r.Namespace, c.Namespace) {
				return value
			}
		}
		return none
	}
}

// beforeCall has f called before each request of the controller, from now on.
func (s scene) beforeCall(f func(apitest.Call)) { s.Hook(func(h *apitest.Hooks) { h.Before = f }) }

// refuse has requests answered with the error that f has for them.
func (s scene) refuse(f func(apitest.Call) error) { s.Hook(func(h *apitest.Hooks) { h.Refuses = f }) }

// hang has requests hang until the caller gives up.
func (s scene) hang(f func(apitest.Call) bool) { s.Hook(func(h *apitest.Hooks) { h.Hangs = f }) }

// delay has requests take a time before they are carried out.
func (s scene) delay(f func(apitest.Call) time.Duration) {
	s.Hook(func(h *apitest.Hooks) { h.Takes = f })
}

// lose has watches not show what matches, as a half-open connection does.
func (s scene) lose(matches func(resource, namespace string) bool) {
	s.Hook(func(h *apitest.Hooks) { h.Lost = matches })
}

// slowDown has each request take this long, so that a fan-out to n targets takes n/32 times that.
func (s scene) slowDown(takes time.Duration) { s.delay(on(takes, anyCall)) }

// rejected is the API server's answer to a write that a quota or a policy refuses.
func rejected(why string) error {
	return apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New(why))
}

// teamRules are the rules of a controller that mirrors into team-*.
func teamRules() *plan.Rules { return plan.NewRules(&teamOptions().Options) }

// teamOptions mirror into team-*.
func teamOptions() *Options {
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	return o
}

// parsed returns a source by teamRules.
func parsed(cm *corev1.ConfigMap) *plan.Source { return teamRules().ParseSource(cm) }

// settings returns the key of the name settings in a namespace.
func settings(namespace string) key { return key{Namespace: namespace, Name: "settings"} }

func withVersion(version string) plantest.Option {
	return func(cm *corev1.ConfigMap) { cm.ResourceVersion = version }
}
