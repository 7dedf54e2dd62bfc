package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// patience is how long a test waits for what takes milliseconds as a rule, and a minute where a target is tried again
// once a minute: it tells slow from never.
const patience = 3 * time.Minute

var worlds, marks atomic.Int32

// world is the part of the cluster that one test has for itself: namespaces with a prefix of its own, and
// controllers with a mirror label and an instance of their own, so that tests run side by side.
type world struct {
	*testing.T
	*site
	ctx      context.Context
	prefix   string // of the target namespaces
	home     string // a namespace for sources that no prefix allows as a target
	label    string
	instance string
	mark     cluster.Mark // where the audit log stood when the world began
}

// newWorld creates a world, with its home namespace and one target namespace for each name.
func newWorld(t *testing.T, targets ...string) *world {
	t.Helper()
	return newWorldAt(t, shared, targets...)
}

func newWorldAt(t *testing.T, s *site, targets ...string) *world {
	t.Helper()
	id := fmt.Sprintf("w%d", worlds.Add(1))
	mark, err := s.cluster.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, site: s, ctx: t.Context(), prefix: id + "-", home: "home-" + id, label: "mirror-" + id, instance: id, mark: mark}
	w.takeAccount()
	w.createNamespace(w.home, nil)
	for _, name := range targets {
		w.createNamespace(w.ns(name), nil)
	}
	return w
}

// ns returns the full name of a target namespace.
func (w *world) ns(name string) string { return w.prefix + name }

// args are the arguments that confine a controller to the world. They come behind those of the Deployment.
func (w *world) args() []string {
	return []string{"--namespace-prefix=" + w.prefix, "--mirror-label=" + w.label, "--instance=" + w.instance}
}

// alone are arguments for a controller that is by itself: of many at a time on one machine, few are about leases
// or probes. A test that is gives its own arguments, which come last.
var alone = []string{"--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0"}

// start runs a controller for the world, with more arguments, until the test ends. It then has to stop with
// exit code 0, if the test did not end it before.
func (w *world) start(args ...string) *shipped.Process {
	w.Helper()
	return w.startWith(shipped.RunOptions{Args: args})
}

func (w *world) startWith(o shipped.RunOptions) *shipped.Process {
	w.Helper()
	// The Deployment's own prefix is left out: a list of prefixes grows, and its namespaces are not the world's.
	shippedArgs := slices.DeleteFunc(slices.Clone(w.installed.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--namespace-prefix=")
	})
	o.Replace, o.Args = true, slices.Concat(shippedArgs, alone, w.args(), o.Args)
	// The detector makes the controller panic if it changes an object of its cache.
	o.Env = append(o.Env, "KUBE_CACHE_MUTATION_DETECTOR=true")
	p, err := w.installed.Start(o)
	if err != nil {
		w.Fatal(err)
	}
	w.stopAtEnd(p)
	return p
}

// stop stops a controller, which has to end with exit code 0.
func (w *world) stop(p *shipped.Process) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		w.Errorf("stopping the controller: %v\n%s", err, lastLines(p.Log(), 60))
	}
}

// eventually waits until the condition returns nil. It is asked again at each event of the outside watch.
func (w *world) eventually(what string, condition func() error) {
	w.Helper()
	if err := w.seen.Eventually(w.ctx, patience, condition); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// waitSeen waits until the outside watch has shown what was just written, so that what it shows then is
// not the state before.
func (w *world) waitSeen(cm *corev1.ConfigMap) {
	w.Helper()
	w.eventually("the outside watch has caught up", func() error {
		if !w.seen.HasSeen(cm) {
			return fmt.Errorf("it has not shown %s/%s", cm.Namespace, cm.Name)
		}
		return nil
	})
}

// Namespaces.

func (w *world) createNamespace(name string, labels map[string]string) *corev1.Namespace {
	w.Helper()
	ns, err := w.admin.CoreV1().Namespaces().Create(w.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return ns
}

// deleteNamespace deletes a namespace without waiting for its end.
func (w *world) deleteNamespace(name string) {
	w.Helper()
	if err := w.admin.CoreV1().Namespaces().Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// waitNamespaceGone waits until a namespace is gone.
func (w *world) waitNamespaceGone(name string) {
	w.Helper()
	w.eventually("namespace "+name+" is gone", func() error {
		if w.seen.Namespace(name) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

func (w *world) labelNamespace(name, key, value string) {
	w.Helper()
	retry(w, func() error {
		ns, err := w.admin.CoreV1().Namespaces().Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		if ns.Labels[key] = value; value == "" {
			delete(ns.Labels, key)
		}
		_, err = w.admin.CoreV1().Namespaces().Update(w.ctx, ns, metav1.UpdateOptions{})
		return err
	})
}

// ConfigMaps.

type option func(*corev1.ConfigMap)

func withData(data map[string]string) option {
	return func(cm *corev1.ConfigMap) { cm.Data = maps.Clone(data) }
}
func withLabel(k, v string) option { return func(cm *corev1.ConfigMap) { put(&cm.Labels, k, v) } }
func withAnnotation(k, v string) option {
	return func(cm *corev1.ConfigMap) { put(&cm.Annotations, k, v) }
}
func withoutLabel(k string) option { return func(cm *corev1.ConfigMap) { delete(cm.Labels, k) } }
func withoutAnnotation(k string) option {
	return func(cm *corev1.ConfigMap) { delete(cm.Annotations, k) }
}
func setImmutable(cm *corev1.ConfigMap) { yes := true; cm.Immutable = &yes }

func put(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = v
}

// configMap returns a plain ConfigMap that is not in the cluster, with data of its own.
func configMap(namespace, name string, options ...option) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"key": "value of " + namespace},
	}
	for _, o := range options {
		o(cm)
	}
	return cm
}

// create creates a plain ConfigMap.
func (w *world) create(namespace, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	cm, err := w.admin.CoreV1().ConfigMaps(namespace).Create(w.ctx, configMap(namespace, name, options...), metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.waitSeen(cm)
	return cm
}

// createSource creates a ConfigMap with the label of a source.
func (w *world) createSource(namespace, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	return w.create(namespace, name, append([]option{withLabel(w.label, plan.SourceValue)}, options...)...)
}

// edit changes a ConfigMap as a user would, with a retry when somebody else was first.
func (w *world) edit(namespace, name string, options ...option) *corev1.ConfigMap {
	w.Helper()
	var out *corev1.ConfigMap
	retry(w, func() error {
		cm, err := w.admin.CoreV1().ConfigMaps(namespace).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, o := range options {
			o(cm)
		}
		out, err = w.admin.CoreV1().ConfigMaps(namespace).Update(w.ctx, cm, metav1.UpdateOptions{})
		return err
	})
	w.waitSeen(out)
	return out
}

func (w *world) delete(namespace, name string) {
	w.Helper()
	old := w.live(namespace, name)
	if err := w.admin.CoreV1().ConfigMaps(namespace).Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.eventually("the watch shows that "+namespace+"/"+name+" is deleted", func() error {
		if now := w.seen.ConfigMap(namespace, name); uid(now) == uid(old) && now.DeletionTimestamp == nil {
			return errors.New("not yet")
		}
		return nil
	})
}

// live returns the ConfigMap as it is now; nil if there is none.
func (w *world) live(namespace, name string) *corev1.ConfigMap {
	w.Helper()
	cm, err := w.admin.CoreV1().ConfigMaps(namespace).Get(w.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return cm
}

// retry repeats a change that lost a race against another writer.
func retry(w *world, change func() error) {
	w.Helper()
	for {
		err := change()
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			w.Fatal(err)
		}
		return
	}
}

// What copies have to be, by the contract.

// inLine returns nil if the ConfigMap in namespace is the copy of source, whole and with all marks.
func (w *world) inLine(source *corev1.ConfigMap, namespace string) error {
	return w.copyOf(source, namespace, w.seen.ConfigMap(namespace, source.Name))
}

func (w *world) copyOf(source *corev1.ConfigMap, namespace string, cm *corev1.ConfigMap) error {
	if cm == nil {
		return fmt.Errorf("no copy in %s", namespace)
	}
	if !maps.Equal(cm.Data, source.Data) {
		return fmt.Errorf("copy in %s: data is %v, want %v", namespace, clipped(cm.Data), clipped(source.Data))
	}
	if !maps.EqualFunc(cm.BinaryData, source.BinaryData, func(a, b []byte) bool { return string(a) == string(b) }) {
		return fmt.Errorf("copy in %s: binaryData has %d keys, or other content, want %d", namespace, len(cm.BinaryData), len(source.BinaryData))
	}
	if immutable(cm) != immutable(source) {
		return fmt.Errorf("copy in %s: immutable is %v, want %v", namespace, immutable(cm), immutable(source))
	}
	for k, want := range map[string]string{w.label: "copy", "app.kubernetes.io/managed-by": "mirror-controller"} {
		if got := cm.Labels[k]; got != want {
			return fmt.Errorf("copy in %s: label %s is %q, want %q", namespace, k, got, want)
		}
	}
	const domain = "mirror-controller.github.io/"
	for k, want := range map[string]string{
		domain + "source":   source.Namespace + "/" + source.Name,
		domain + "copy":     namespace + "/" + source.Name,
		domain + "instance": w.instance,
	} {
		if got := cm.Annotations[k]; got != want {
			return fmt.Errorf("copy in %s: annotation %s is %q, want %q", namespace, k, got, want)
		}
	}
	if sum := cm.Annotations[domain+"checksum"]; len(sum) != len("sha256:")+64 || !strings.HasPrefix(sum, "sha256:") {
		return fmt.Errorf("copy in %s: checksum is %q", namespace, sum)
	}
	if len(cm.OwnerReferences)+len(cm.Finalizers) > 0 {
		return fmt.Errorf("copy in %s has owner references or finalizers", namespace)
	}
	return nil
}

func immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

func clipped(data map[string]string) string {
	s := fmt.Sprint(data)
	return s[:min(len(s), 200)]
}

// waitInLine waits until the namespaces have copies of source that are in line.
func (w *world) waitInLine(source *corev1.ConfigMap, namespaces ...string) {
	w.Helper()
	w.eventually("copies of "+source.Name+" in line", func() error {
		for _, namespace := range namespaces {
			if err := w.inLine(source, namespace); err != nil {
				return err
			}
		}
		return nil
	})
}

// waitGone waits until there is no ConfigMap of the name in the namespaces.
func (w *world) waitGone(name string, namespaces ...string) {
	w.Helper()
	w.eventually("copies of "+name+" gone", func() error {
		for _, namespace := range namespaces {
			if w.seen.ConfigMap(namespace, name) != nil {
				return fmt.Errorf("there is one in %s", namespace)
			}
		}
		return nil
	})
}

// waitEvent waits for an event with the reason on the ConfigMap and returns it.
func (w *world) waitEvent(namespace, name, reason string) string {
	w.Helper()
	var note string
	w.eventually("event "+reason+" on "+namespace+"/"+name, func() error {
		for _, e := range w.seen.EventsOn(namespace, name) {
			if e.Reason == reason {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("there are %v", w.reasons(namespace, name))
	})
	return note
}

// reasons returns how often each reason was told of the ConfigMap.
func (w *world) reasons(namespace, name string) map[string]int {
	out := map[string]int{}
	for _, e := range w.seen.EventsOn(namespace, name) {
		out[e.Reason]++
		if e.Series != nil {
			out[e.Reason] += int(e.Series.Count) - 1
		}
	}
	return out
}

// settle waits until a controller has dealt with all that was done in the cluster before. It hands it a new
// source and waits for the copy in each of the namespaces, which the controller looks at in the order of
// events; then it takes the source away again. No other source of the world may be under way.
func (w *world) settle(namespaces ...string) {
	w.Helper()
	name := fmt.Sprintf("settle-%d", worlds.Add(1))
	source := w.createSource(w.home, name)
	w.waitInLine(source, namespaces...)
	w.edit(w.home, name, withoutLabel(w.label))
	w.waitGone(name, namespaces...)
	w.delete(w.home, name)
}

// Requests of the controllers of the world, by the API server's audit log.

// requests returns the requests of the world's controllers since the world began.
func (w *world) requests() []cluster.Event { return w.requestsSince(w.mark) }

func (w *world) requestsSince(mark cluster.Mark) []cluster.Event {
	w.Helper()
	all, _, err := w.cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	var out []cluster.Event
	for _, e := range all {
		if w.made(e) {
			out = append(out, e)
		}
	}
	// Whoever runs at all watches.
	if len(out) == 0 && mark == w.mark {
		w.Fatal("no requests in the audit log: does the user agent of the controller name its instance?")
	} else if len(out) == 0 {
		w.requests()
	}
	return out
}

// made reports whether a controller of the world made the request.
func (w *world) made(e cluster.Event) bool {
	agent, mine := e.UserAgent, "instance/"+w.instance
	return strings.Contains(agent, mine+" ") || strings.HasSuffix(agent, mine)
}

// writesTo returns the writes to ConfigMaps among the requests; of one name, if it is not empty.
func writesTo(requests []cluster.Event, name string) []cluster.Event {
	var out []cluster.Event
	for _, e := range requests {
		write := e.Verb == "create" || e.Verb == "update" || e.Verb == "patch" || e.Verb == "delete"
		if write && e.Object.Resource == "configmaps" && (name == "" || e.Object.Name == name) {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) auditMark() cluster.Mark {
	w.Helper()
	mark, err := w.cluster.Audit().Mark()
	if err != nil {
		w.Fatal(err)
	}
	return mark
}

// untouched fails the test if the object is no longer the one that was created, to the resourceVersion.
func (w *world) untouched(cm *corev1.ConfigMap) {
	w.Helper()
	now := w.live(cm.Namespace, cm.Name)
	if now == nil {
		w.Errorf("%s/%s is gone", cm.Namespace, cm.Name)
	} else if now.UID != cm.UID || now.ResourceVersion != cm.ResourceVersion {
		w.Errorf("%s/%s was touched: now %v", cm.Namespace, cm.Name, now)
	}
}

func uid(cm *corev1.ConfigMap) types.UID {
	if cm == nil {
		return ""
	}
	return cm.UID
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// startExactly runs a controller for the world with a prefix of its own choice among the arguments.
func (w *world) startExactly(args ...string) *shipped.Process {
	w.Helper()
	p, err := w.installed.Start(shipped.RunOptions{
		Args:    slices.Concat(alone, []string{"--mirror-label=" + w.label, "--instance=" + w.instance}, args),
		Replace: true,
		Env:     []string{"KUBE_CACHE_MUTATION_DETECTOR=true"},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.stopAtEnd(p)
	return p
}

// stopAtEnd sees to it that the controller has stopped, with exit code 0, when the test ends.
func (w *world) stopAtEnd(p *shipped.Process) {
	w.Cleanup(func() {
		select {
		case <-p.Done():
		default:
			w.stop(p)
		}
		if w.Failed() {
			w.Logf("the controller printed:\n%s", lastLines(p.Log(), 60))
		}
	})
}

// pause stops the process of a controller where it stands, resume lets it go on.
func (w *world) pause(p *shipped.Process)  { w.signal(p, syscall.SIGSTOP) }
func (w *world) resume(p *shipped.Process) { w.signal(p, syscall.SIGCONT) }

func (w *world) signal(p *shipped.Process, sig syscall.Signal) {
	w.Helper()
	if err := p.Signal(sig); err != nil {
		w.Fatal(err)
	}
}

// outside creates a namespace of the world that is no target by any prefix of it, and returns its full name.
func (w *world) outside(name string) string {
	w.Helper()
	return w.createNamespace(name+"-"+w.home, nil).Name
}

// copies returns the ConfigMaps of the name in the namespaces as they are now; none may be missing.
func (w *world) copies(name string, namespaces ...string) []*corev1.ConfigMap {
	w.Helper()
	var out []*corev1.ConfigMap
	for _, namespace := range namespaces {
		cm := w.live(namespace, name)
		if cm == nil {
			w.Fatalf("there is no %s in %s", name, namespace)
		}
		out = append(out, cm)
	}
	return out
}

// allUntouched is untouched for many.
func (w *world) allUntouched(cms []*corev1.ConfigMap) {
	w.Helper()
	for _, cm := range cms {
		w.untouched(cm)
	}
}

// sameObjects fails the test if an object is gone or is another one of the same name, whatever it holds.
func (w *world) sameObjects(cms []*corev1.ConfigMap) {
	w.Helper()
	for _, cm := range cms {
		if now := w.live(cm.Namespace, cm.Name); uid(now) != cm.UID {
			w.Errorf("%s/%s was deleted, and made again or not: now %v", cm.Namespace, cm.Name, now)
		}
	}
}

// absent fails the test if there is a ConfigMap of the name in one of the namespaces.
func (w *world) absent(name string, namespaces ...string) {
	w.Helper()
	for _, namespace := range namespaces {
		if cm := w.live(namespace, name); cm != nil {
			w.Errorf("there is a ConfigMap %s in %s: %v", name, namespace, cm)
		}
	}
}

// passes lets a controller with a short --resync-period compare everything n times and more, and all events that
// it has told of reach the watch. What shows it is an object without our label that was in the way in a
// target and is taken away: no watch of the controller tells it so, it has to look.
func (w *world) passes(n int, target string) {
	w.Helper()
	for range n {
		name := fmt.Sprintf("pass-%d", worlds.Add(1))
		w.create(target, name)
		source := w.createSource(w.home, name)
		w.waitEvent(w.home, name, mirror.ReasonForeign)
		w.delete(target, name)
		w.waitInLine(source, target)
		w.edit(w.home, name, withoutLabel(w.label))
		w.waitGone(name, target)
	}
}

// betweenTries is for the others, whom a try as soon as the last has failed would leave no time.
const betweenTries = 50 * time.Millisecond

// until repeats what the cluster lets succeed sooner or later without showing when: each try that fails leaves
// a mark in the world's home, which wakes the next.
func (w *world) until(what string, try func() error) {
	w.Helper()
	w.eventually(what, func() error {
		err := try()
		if err == nil {
			return nil
		}
		time.Sleep(betweenTries)
		// A mark that is like the one before would be no change, and wake nobody.
		clock := configMap(w.home, "clock", withAnnotation("tries", fmt.Sprint(marks.Add(1))))
		_, clockErr := w.admin.CoreV1().ConfigMaps(w.home).Update(w.ctx, clock, metav1.UpdateOptions{})
		if apierrors.IsNotFound(clockErr) {
			_, clockErr = w.admin.CoreV1().ConfigMaps(w.home).Create(w.ctx, clock, metav1.CreateOptions{})
		}
		return errors.Join(err, clockErr)
	})
}

// waitYounger waits until what is created from now on is younger than cm by its timestamp, which counts seconds.
func (w *world) waitYounger(cm *corev1.ConfigMap) {
	w.Helper()
	w.until("the next second", func() error {
		probe, err := w.admin.CoreV1().ConfigMaps(w.home).Create(w.ctx, configMap(w.home, "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !probe.CreationTimestamp.After(cm.CreationTimestamp.Time) {
			err = errors.New("still the same second")
		}
		return err
	})
}

// waitRequests waits until the controllers of the world have made n requests that fit since the world began.
func (w *world) waitRequests(what string, n int, fits func(cluster.Event) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	found := 0
	_, err := w.cluster.Audit().WaitFor(ctx, w.mark, func(e cluster.Event) bool {
		if w.made(e) && fits(e) {
			found++
		}
		return found == n
	})
	if err != nil {
		w.Fatalf("%s: %d of %d: %v", what, found, n, err)
	}
}

// waitWrites waits until n writes of the world's controllers to ConfigMaps of the name took effect, and returns all of
// them as "verb namespace", in the order of the audit log. (It has a request a moment after its effect can be seen.)
func (w *world) waitWrites(name string, n int) []string {
	w.Helper()
	took := func(e cluster.Event) bool {
		return e.Response.Code < 300 && len(writesTo([]cluster.Event{e}, name)) > 0
	}
	if n > 0 {
		w.waitRequests("writes to ConfigMaps "+name, n, took)
	}
	var out []string
	for _, e := range w.requests() {
		if took(e) {
			out = append(out, e.Verb+" "+e.Object.Namespace)
		}
	}
	return out
}

// expectWrites fails the test unless the writes of the world's controllers to ConfigMaps of the name that took
// effect, each as "verb namespace", are exactly these, in whichever order.
func (w *world) expectWrites(name string, want ...string) {
	w.Helper()
	got := w.waitWrites(name, len(want))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Errorf("writes to ConfigMaps %s: %q, want %q", name, got, want)
	}
}

// expectReasons fails the test unless exactly these events were told of the ConfigMap, each so many times.
func (w *world) expectReasons(namespace, name string, want map[string]int) {
	w.Helper()
	if got := w.reasons(namespace, name); !maps.Equal(got, want) {
		w.Errorf("events on %s/%s: %v, want %v", namespace, name, got, want)
	}
}

// background is a context for what is cleaned up after a test, when its own has ended.
func (w *world) background() context.Context { return context.WithoutCancel(w.ctx) }

// cleanUp reports what could not be cleaned up.
func (w *world) cleanUp(err error) {
	w.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}

// wait waits until the channel is closed.
func (w *world) wait(what string, closed <-chan struct{}) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	select {
	case <-closed:
	case <-ctx.Done():
		w.Fatalf("%s: %v", what, ctx.Err())
	}
}
