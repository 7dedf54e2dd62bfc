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
	receives func(Event) error
}

func (d *diary) Send(_ context.Context, e Event) error {
	d.mu.Lock()
	receives := d.receives
	d.mu.Unlock()
	if receives != nil {
		if err := receives(e); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
	return nil
}

// onEvent has f called for each event from now on. If f returns an error, the event is refused.
func (d *diary) onEvent(f func(Event) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.receives = f
}

// eventsThat returns the events that match.
func (d *diary) eventsThat(matches func(Event) bool) (all []Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if matches(e) {
			all = append(all, e)
		}
	}
	return all
}

// notesOf returns the notes of the events with this reason.
func (d *diary) notesOf(reason string) (notes []string) {
	for _, e := range d.eventsThat(func(e Event) bool { return e.Reason == reason }) {
		notes = append(notes, e.Note)
	}
	return notes
}

// countEvents returns how many events had this reason.
func (d *diary) countEvents(reason string) int { return len(d.notesOf(reason)) }

// lastEvent returns the last event with this reason.
func (s scene) lastEvent(reason string) (last Event) {
	s.t.Helper()
	synctest.Wait()
	for _, e := range s.eventsThat(func(e Event) bool { return e.Reason == reason }) {
		last = e
	}
	return last
}

// lastNote returns the note of the last event with this reason.
func (s scene) lastNote(reason string) string { return s.lastEvent(reason).Note }

// scene is a controller that runs, the API server that it runs on, and the events that it records. Its methods act for
// other clients: they have no hooks.
type scene struct {
	*apitest.Server
	*diary
	t          *testing.T
	controller *Controller
	registry   metrics.KubeRegistry
	logger     klog.Logger
}

// runScene runs a controller in a bubble, without a resync, on an API server with the namespace platform and with these
// objects. f may wait as long as it likes. A bubble does not end while one of its goroutines waits.
func runScene(t *testing.T, objects []runtime.Object, f func(*testing.T, scene)) {
	t.Helper()
	runSceneWith(t, objects, func(*Options) {}, f)
}

// runSceneWith is runScene with other options.
func runSceneWith(t *testing.T, objects []runtime.Object, edit func(*Options), f func(*testing.T, scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, objects, edit)
		defer s.isSafe()
		defer s.start()() // also if f fails
		f(t, s)
	})
}

// runSubscene runs a scene as a subtest.
func runSubscene(t *testing.T, name string, objects []runtime.Object, f func(*testing.T, scene)) {
	t.Helper()
	runSubsceneWith(t, name, objects, func(*Options) {}, f)
}

// runSubsceneWith is runSubscene with other options.
func runSubsceneWith(t *testing.T, name string, objects []runtime.Object, edit func(*Options),
	f func(*testing.T, scene)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { runSceneWith(t, objects, edit, f) })
}

// newScene returns a scene whose controller does not run yet.
func newScene(t *testing.T, objects []runtime.Object, edit func(*Options)) scene {
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
	return scene{server, d, t, c, registry, logger}
}

// isSafe fails the test if the controller sent a request that could do harm.
func (s scene) isSafe() {
	s.t.Helper()
	for _, what := range s.Unsafe() {
		s.t.Error(what)
	}
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
		s.check(<-ended)
	}
}

// logged returns a context in which log lines go to the log of the scene.
func (s scene) logged() context.Context { return klog.NewContext(s.t.Context(), s.logger) }

// log returns the lines that the controller has logged.
func (s scene) log() string { return s.logger.GetSink().(ktesting.Underlier).GetBuffer().String() }

// wantLogged fails the test unless the controller has logged all of these parts.
func (s scene) wantLogged(parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(s.log(), part) {
			s.t.Errorf("got log %s, want in it %s", s.log(), part)
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
func source(options ...plantest.Option) *corev1.ConfigMap {
	return plantest.Source("platform", "settings", options...)
}

// copyOf returns the copy of a source as the controller would have made it.
func copyOf(src *corev1.ConfigMap, namespace string, options ...plantest.Option) *corev1.ConfigMap {
	return plantest.Copy(teamRules(), src, namespace, options...)
}

// write creates a ConfigMap, or overwrites the one that is there.
func (s scene) write(cm *corev1.ConfigMap) {
	s.t.Helper()
	cm.ResourceVersion, cm.UID = "", ""
	if _, err := s.configMaps(cm.Namespace).Update(s.t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		_, err = s.configMaps(cm.Namespace).Create(s.t.Context(), cm, metav1.CreateOptions{})
		s.check(err)
	}
}

// edit edits the ConfigMap settings in a namespace, if there is one.
func (s scene) edit(namespace string, edits ...plantest.Option) {
	s.t.Helper()
	for cm := s.get(namespace); cm != nil; cm = s.get(namespace) {
		if cm.Annotations == nil {
			cm.Annotations = map[string]string{}
		}
		for _, edit := range edits {
			edit(cm)
		}
		_, err := s.configMaps(namespace).Update(s.t.Context(), cm, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue // the controller was faster
		}
		s.check(err)
		return
	}
}

// get returns the ConfigMap settings in a namespace, or nil.
func (s scene) get(namespace string) *corev1.ConfigMap {
	cm, err := s.configMaps(namespace).Get(s.t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return cm
}

// remove deletes the ConfigMap settings in a namespace, if there is one.
func (s scene) remove(namespace string) {
	_ = s.configMaps(namespace).Delete(s.t.Context(), "settings", metav1.DeleteOptions{})
}

// addNamespace creates a namespace. The labels are keys and values in turn.
func (s scene) addNamespace(name string, labels ...string) {
	s.t.Helper()
	_, err := s.Interface.CoreV1().Namespaces().Create(s.t.Context(), plantest.Namespace(name, labels...),
		metav1.CreateOptions{})
	s.check(err)
}

// setNamespace overwrites a namespace.
func (s scene) setNamespace(ns *corev1.Namespace) {
	s.t.Helper()
	ns.UID = ""
	_, err := s.Interface.CoreV1().Namespaces().Update(s.t.Context(), ns, metav1.UpdateOptions{})
	s.check(err)
}

// removeNamespace deletes a namespace and what is in it.
func (s scene) removeNamespace(name string) {
	s.t.Helper()
	s.Terminate(name)
	if !s.Finalize(name) {
		s.t.Errorf("%s: something holds up the deletion", name)
	}
}

// configMaps of a namespace, for the test itself.
func (s scene) configMaps(namespace string) typedcorev1.ConfigMapInterface {
	return s.Interface.CoreV1().ConfigMaps(namespace)
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
	return s.CountAll(prefix, "create", "update", "patch", "delete")
}

// wantWrites fails the test unless so many writes came in namespaces with this prefix.
func (s scene) wantWrites(want int, prefix string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.countWrites(prefix); got != want {
		s.t.Errorf("got %d writes in %s*, want %d", got, prefix, want)
	}
}

// wantEventCount fails the test unless so many events had this reason.
func (s scene) wantEventCount(want int, reason string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.notesOf(reason); len(got) != want {
		s.t.Errorf("got %d events %s, want %d: %q", len(got), reason, want, got)
	}
}

// wantNote fails the test unless the note of the last event with this reason has all of these parts.
func (s scene) wantNote(reason string, parts ...string) {
	s.t.Helper()
	got := s.lastNote(reason)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			s.t.Errorf("got event %s %q, want in it %q", reason, got, part)
		}
	}
}

// wantWholeNote fails the test unless this is the whole note of the last event with this reason.
func (s scene) wantWholeNote(reason, want string) {
	s.t.Helper()
	if got := s.lastNote(reason); got != want {
		s.t.Errorf("got event %s %q, want %q", reason, got, want)
	}
}

// wantMirrored fails the test unless the last event Mirrored is about the present version of platform/settings, and
// about these targets, such as "2 namespaces".
func (s scene) wantMirrored(targets string) {
	s.t.Helper()
	s.wantWholeNote(plan.ReasonMirrored, fmt.Sprintf("Synced version %s to %s", s.version(), targets))
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
func (s scene) countCopies(prefix, value string) (n int) {
	for _, cm := range s.ConfigMaps.All() {
		if cm.Name == "settings" && strings.HasPrefix(cm.Namespace, prefix) && cm.Data["key"] == value {
			n++
		}
	}
	return n
}

// errAway is an error that is no answer of the API server.
var errAway = errors.New("away")

// countNamed returns how many ConfigMaps of this name are in namespaces with the prefix.
func (s scene) countNamed(name, prefix string) (n int) {
	for _, cm := range s.ConfigMaps.All() {
		if cm.Name == name && strings.HasPrefix(cm.Namespace, prefix) {
			n++
		}
	}
	return n
}

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

// sourceIn returns a source of the name settings.
func sourceIn(namespace string, options ...plantest.Option) *corev1.ConfigMap {
	return plantest.Source(namespace, "settings", options...)
}

// parsed returns a source by teamRules.
func parsed(cm *corev1.ConfigMap) *plan.Source { return teamRules().ParseSource(cm) }

// settings returns the key of the name settings in a namespace.
func settings(namespace string) key { return key{Namespace: namespace, Name: "settings"} }

func withVersion(version string) plantest.Option {
	return func(cm *corev1.ConfigMap) { cm.ResourceVersion = version }
}
