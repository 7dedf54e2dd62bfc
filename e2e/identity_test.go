package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What is a source, what is a copy, and whose it is: cases C01 to C10.

// TestC01SourceInTarget has a source in a namespace that the prefix allows: no copy onto itself, no loop.
func TestC01SourceInTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.start("--resync-period=200ms")
	source := w.createSource(a, "settings")
	w.waitInLine(source, b)
	w.passes(2, b)
	w.untouched(source)
	w.expectWrites("settings", "create "+b)
	source = w.edit(a, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, b)
	w.passes(2, b)
	w.untouched(source)
	w.expectWrites("settings", "create "+b, "update "+b)
	w.expectReasons(a, "settings", map[string]int{"Mirrored": 2})
}

// TestC02CopyLabelledAsSource has a user label a copy mirror=true and change it: it is healed and never a source,
// also if its source goes and nobody watches.
func TestC02CopyLabelledAsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	pretend := []option{withLabel(w.label, "true"), withData(map[string]string{"key": "stolen"})}
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, a, b)
	copies := w.copies("settings", a, b)
	w.edit(a, "settings", pretend...)
	w.waitInLine(source, a, b)
	w.sameObjects(copies)
	w.untouched(copies[1])

	w.stop(p)
	w.edit(a, "settings", pretend...)
	p = w.start()
	w.waitInLine(source, a, b)
	w.stop(p)
	w.edit(a, "settings", pretend...)
	w.delete(w.home, "settings")
	w.start()
	w.waitGone("settings", a, b)
	w.settle(a, b)
	w.absent("settings", a, b)
	w.expectReasons(a, "settings", nil)
	w.expectWrites("settings", "create "+a, "create "+b, "update "+a, "update "+a, "delete "+a, "delete "+b)
}

// TestC03PlatformBeforeTenant has a tenant publish a name before the platform does: the platform takes every
// target, in place, and keeps it over restarts; the tenant is told.
func TestC03PlatformBeforeTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	p := w.start()
	tenants := w.createSource(a, "settings")
	w.waitInLine(tenants, b, c)
	copies := w.copies("settings", b, c)
	w.waitYounger(tenants)
	platforms := w.createSource(w.home, "settings")
	w.waitInLine(platforms, b, c)
	w.sameObjects(copies)
	if note := w.waitEvent(a, "settings", "Superseded"); !strings.Contains(note, w.home+"/settings") {
		t.Errorf("the event does not name the winner: %s", note)
	}
	copies = w.copies("settings", b, c)
	for range 3 {
		w.stop(p)
		p = w.start()
		w.settle(a, b, c)
	}
	w.allUntouched(append(copies, tenants))
}

// TestC03OlderBeforeYounger has two sources of equal standing: the older wins, of those of one second the one
// with the smaller key, whichever the controller meets first.
func TestC03OlderBeforeYounger(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	older := w.createSource(b, "aged")
	w.waitYounger(older)
	younger := w.createSource(a, "aged")
	var smaller, greater *corev1.ConfigMap
	tries := 0
	w.until("two sources of one second", func() error {
		name := fmt.Sprintf("twins-%d", tries)
		tries++
		greater, smaller = w.createSource(b, name), w.createSource(a, name)
		if !greater.CreationTimestamp.Equal(&smaller.CreationTimestamp) {
			return errors.New("they are of two seconds")
		}
		return nil
	})
	for range 2 {
		p := w.start()
		w.waitInLine(older, c)
		w.waitInLine(smaller, c)
		w.waitEvent(a, "aged", "Superseded")
		w.waitEvent(b, smaller.Name, "Superseded")
		w.settle(a, b, c)
		w.expectWrites("aged", "create "+c)
		w.expectWrites(smaller.Name, "create "+c)
		w.stop(p)
	}
	w.allUntouched([]*corev1.ConfigMap{older, younger, smaller, greater})

	// One that comes later, while a winner is in place, changes nothing if it is younger.
	w.start()
	latest := w.createSource(w.outside("late"), "late")
	w.waitInLine(latest, a, b, c)
	copies := w.copies("late", a, b, c)
	w.waitYounger(latest)
	w.createSource(w.home, "late")
	w.waitEvent(w.home, "late", "Superseded")
	w.settle(a, b, c)
	w.allUntouched(copies)
}

// TestC03TakeOverInPlace deletes and unlabels the winner a hundred times: each time the other source takes over
// the copies, and gives them back, without a delete.
func TestC03TakeOverInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	loser := w.createSource(a, "settings")
	w.start()
	winner := w.createSource(w.home, "settings")
	w.waitInLine(winner, b, c)
	w.waitEvent(a, "settings", "Superseded")
	copies := w.copies("settings", b, c)
	for i := range 100 {
		if i%2 == 0 {
			w.delete(w.home, "settings")
		} else {
			w.edit(w.home, "settings", withoutLabel(w.label))
		}
		w.waitInLine(loser, b, c)
		w.sameObjects(copies)
		if i%2 == 0 {
			winner = w.createSource(w.home, "settings")
		} else {
			winner = w.edit(w.home, "settings", withLabel(w.label, "true"))
		}
		w.waitInLine(winner, b, c)
		w.sameObjects(copies)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	w.untouched(loser)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("the controller deleted: %v", e)
		}
	}
}

// TestC03CopyTurnedIntoSource has a tenant turn the copy in his namespace into a source that is older than the
// platform's: he does not win, and what he has made is his.
func TestC03CopyTurnedIntoSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, a, b)
	w.stop(p)
	w.waitYounger(w.live(a, "settings"))
	w.delete(w.home, "settings")
	w.createSource(w.home, "settings")
	turned := w.edit(a, "settings", withLabel(w.label, "true"), withData(map[string]string{"key": "stolen"}),
		func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	copies := w.copies("settings", b)
	w.start()
	w.waitEvent(a, "settings", "Superseded")
	w.settle(a, b)
	w.allUntouched(append(copies, turned))
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, b)
	w.untouched(turned)
}

// TestC04SourcesInTargets has two sources of one name in namespaces that both match: neither is overwritten, and
// the other follows where the first was when it goes.
func TestC04SourcesInTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	second := w.createSource(b, "settings")
	w.waitYounger(second)
	third := w.createSource(a, "settings")
	w.start("--resync-period=200ms")
	w.waitInLine(second, c)
	w.waitEvent(a, "settings", "Superseded")
	w.passes(2, c)
	w.allUntouched([]*corev1.ConfigMap{second, third})
	third = w.edit(a, "settings", withData(map[string]string{"key": "two"}))
	second = w.edit(b, "settings", withData(map[string]string{"key": "three"}))
	w.waitInLine(second, c)
	w.passes(2, c)
	w.allUntouched([]*corev1.ConfigMap{second, third})

	copies := w.copies("settings", c)
	w.delete(b, "settings")
	w.waitInLine(third, b, c)
	w.passes(1, c)
	w.untouched(third)
	w.sameObjects(copies)
}

// TestC05ReservedNames publishes names that other controllers write into every namespace: refused, with an event,
// and no object of such a name is ever written or deleted.
func TestC05ReservedNames(t *testing.T) {
	t.Parallel()
	const rootCA = "kube-root-ca.crt"
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.eventually("the cluster has published its certificate", func() error {
		for _, namespace := range []string{w.home, a, b} {
			if w.seen.ConfigMap(namespace, rootCA) == nil {
				return errors.New("not in " + namespace)
			}
		}
		return nil
	})
	w.edit(b, rootCA, w.marksOfCopy(w.home, b, rootCA)...) // looks as if we had written it once
	there := w.copies(rootCA, a, b)
	p := w.start("--resync-period=200ms")
	w.edit(w.home, rootCA, withLabel(w.label, "true"))
	reserved := []string{rootCA, "openshift-service-ca.crt", "istio-ca-root-cert"}
	for _, name := range reserved[1:] {
		w.createSource(w.home, name)
	}
	for _, name := range reserved {
		if note := w.waitEvent(w.home, name, "ReservedName"); !strings.Contains(note, name) {
			t.Errorf("the event does not name the name: %s", note)
		}
	}
	w.passes(2, a)
	for _, name := range reserved {
		w.expectReasons(w.home, name, map[string]int{"ReservedName": 1})
	}
	w.edit(w.home, rootCA, withoutLabel(w.label))
	w.passes(2, a)
	w.stop(p)
	w.start()
	w.settle(a, b)
	w.allUntouched(there)
	w.absent(reserved[1], a, b)
	w.absent(reserved[2], a, b)
	for _, name := range reserved {
		if writes := writesTo(w.requests(), name); len(writes) > 0 {
			t.Errorf("%s was written: %v", name, writes)
		}
	}
}

// marksOfCopy makes of a ConfigMap what a copy of namespace/name in target carries, true to the last mark.
func (w *world) marksOfCopy(namespace, target, name string) []option {
	return []option{
		withLabel(w.label, "copy"),
		withLabel("app.kubernetes.io/managed-by", "mirror-controller"),
		withAnnotation(plan.SourceAnnotation, namespace+"/"+name),
		withAnnotation(plan.CopyAnnotation, target+"/"+name),
		withAnnotation(plan.InstanceAnnotation, w.instance),
		withAnnotation(plan.ChecksumAnnotation, "sha256:"+strings.Repeat("0", 64)),
	}
}

// TestC06CloneOfCopy applies a copy's YAML in other namespaces, as a clone or a restored backup: foreign there,
// and never deleted.
func TestC06CloneOfCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	elsewhere := w.outside("elsewhere")
	p := w.start("--resync-period=200ms")
	source := w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, a+","+b))
	w.waitInLine(source, a, b)
	backup := w.live(a, "settings")
	clones := []*corev1.ConfigMap{w.restore(backup, c), w.restore(backup, elsewhere)}
	w.passes(2, b)
	w.allUntouched(clones)

	// It is in the way where it is wanted, and not where it is not.
	w.edit(w.home, "settings", withoutAnnotation(plan.PrefixAnnotation))
	if note := w.waitEvent(w.home, "settings", "Foreign"); !strings.Contains(note, c) || strings.Contains(note, elsewhere) {
		t.Errorf("the event names something else than the clone: %s", note)
	}
	w.delete(w.home, "settings")
	w.waitGone("settings", a, b)
	w.passes(2, b)
	w.stop(p)
	clones = append(clones, w.restore(backup, b)) // in a target of old, while nobody watches
	w.start("--resync-period=200ms")
	w.settle(a, b)
	w.passes(2, b)
	w.allUntouched(clones)
}

// restore creates a ConfigMap in another namespace from what a backup has of it.
func (w *world) restore(backup *corev1.ConfigMap, namespace string) *corev1.ConfigMap {
	w.Helper()
	return w.create(namespace, backup.Name, func(cm *corev1.ConfigMap) {
		cm.Labels, cm.Annotations = maps.Clone(backup.Labels), maps.Clone(backup.Annotations)
		cm.Data, cm.BinaryData, cm.Immutable = backup.Data, backup.BinaryData, backup.Immutable
	})
}

// TestC07ForgedAnnotations puts our marks on somebody's ConfigMaps, in every way but the true one: never
// changed, never deleted, with a source of that name or without.
func TestC07ForgedAnnotations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	forgeries := map[string]func(name string) option{
		"no-copy":         func(string) option { return withoutAnnotation(plan.CopyAnnotation) },
		"copy-of-another": func(name string) option { return withAnnotation(plan.CopyAnnotation, b+"/"+name) },
		"copy-renamed":    func(name string) option { return withAnnotation(plan.CopyAnnotation, a+"/"+name+"x") },
		"copy-empty":      func(string) option { return withAnnotation(plan.CopyAnnotation, "") },
		"no-source":       func(string) option { return withoutAnnotation(plan.SourceAnnotation) },
		"source-renamed":  func(name string) option { return withAnnotation(plan.SourceAnnotation, w.home+"/"+name+"x") },
		"source-nonsense": func(name string) option { return withAnnotation(plan.SourceAnnotation, name) },
		"source-nowhere":  func(name string) option { return withAnnotation(plan.SourceAnnotation, "/"+name) },
		"source-is-copy":  func(name string) option { return withAnnotation(plan.SourceAnnotation, a+"/"+name) },
		"no-instance":     func(string) option { return withoutAnnotation(plan.InstanceAnnotation) },
		"other-instance":  func(string) option { return withAnnotation(plan.InstanceAnnotation, "default") },
	}
	var forged, sources []*corev1.ConfigMap
	forge := func(name string, options ...option) {
		forged = append(forged, w.create(a, name, append(w.marksOfCopy(w.home, a, name), options...)...))
	}
	for what, forgery := range forgeries {
		for _, name := range []string{what + "-claimed", what + "-orphan"} {
			forge(name, forgery(name))
			forge(name+"-unlabelled", forgery(name+"-unlabelled"), withoutLabel(w.label))
		}
		for _, name := range []string{what + "-claimed", what + "-claimed-unlabelled"} {
			sources = append(sources, w.createSource(w.home, name))
		}
	}
	p := w.start("--resync-period=500ms")
	for i, source := range sources {
		w.waitInLine(source, b)
		w.waitEvent(w.home, source.Name, "Foreign")
		sources[i] = w.edit(w.home, source.Name, withData(map[string]string{"key": "two"}))
	}
	for _, source := range sources {
		w.waitInLine(source, b)
	}
	w.passes(1, b)
	w.allUntouched(forged)
	for i, source := range sources {
		if i%2 == 0 {
			w.delete(w.home, source.Name)
		} else {
			w.edit(w.home, source.Name, withoutLabel(w.label))
		}
	}
	for _, source := range sources {
		w.waitGone(source.Name, b)
	}
	w.passes(1, b)
	w.stop(p)
	w.start("--resync-period=500ms")
	w.settle(a, b)
	w.passes(1, b)
	w.allUntouched(forged)
	for _, e := range w.requests() {
		if e.Object.Namespace == a && (e.Verb == "update" || e.Verb == "delete") && strings.Contains(e.RequestURI, "-claimed") {
			t.Errorf("it was tried: %v", e)
		}
	}
}

// TestC08LabelStripped strips the label from a copy, and our annotations from others: the first is healed, the
// others are released, left alone and reported.
func TestC08LabelStripped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c", "d", "e")
	a, b, c, d, e := w.ns("a"), w.ns("b"), w.ns("c"), w.ns("d"), w.ns("e")
	p := w.start("--resync-period=200ms")
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, a, b, c, d, e)
	copies := w.copies("settings", a, e)
	w.edit(a, "settings", withoutLabel(w.label))
	w.waitInLine(source, a)
	w.edit(e, "settings", withoutLabel("app.kubernetes.io/managed-by"), withoutAnnotation(plan.ChecksumAnnotation))
	w.waitInLine(source, e)
	w.sameObjects(copies)

	noAnnotations := func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	released := []*corev1.ConfigMap{
		w.edit(b, "settings", noAnnotations),
		w.edit(c, "settings", noAnnotations, withoutLabel(w.label)),
		w.edit(d, "settings", withoutAnnotation(plan.CopyAnnotation)),
	}
	w.eventually("all three are reported", w.noted("settings", "Foreign", b, c, d))
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, a, e)
	w.passes(2, a)
	w.allUntouched(released)
	w.stop(p)
	w.start("--resync-period=200ms")
	w.settle(a, b, c, d, e)
	w.delete(w.home, "settings")
	w.waitGone("settings", a, e)
	w.passes(2, a)
	w.allUntouched(released)
}

// TestC09Names has a name of 253 characters with dots, a prefix that is the whole name of a namespace, and a
// namespace whose name goes on behind another's.
func TestC09Names(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "tea", "team", "teamster", "team-a")
	tea, team, teamster, teamA := w.ns("tea"), w.ns("team"), w.ns("teamster"), w.ns("team-a")
	longest := strings.Repeat("a.", 126) + "b"
	w.startExactly("--namespace-prefix=" + team)
	source := w.createSource(w.home, longest)
	w.waitInLine(source, team, teamster, teamA)
	w.waitEvent(w.home, longest, "Mirrored")
	source = w.edit(w.home, longest, withData(map[string]string{"key": "two"}))
	w.waitInLine(source, team, teamster, teamA)
	w.delete(teamA, longest)
	w.waitInLine(source, teamA)
	w.absent(longest, tea)

	for prefix, want := range map[string][]string{
		team:                  {team, teamster, teamA},
		teamster:              {teamster},
		w.ns("team-"):         {teamA},
		teamster + "s":        {},
		" " + teamA + " ,tea": {teamA},
	} {
		source = w.edit(w.home, longest, withAnnotation(plan.PrefixAnnotation, prefix))
		w.waitInLine(source, want...)
		for _, namespace := range []string{tea, team, teamster, teamA} {
			if !slices.Contains(want, namespace) {
				w.waitGone(longest, namespace)
			}
		}
	}
	w.edit(w.home, longest, withoutAnnotation(plan.PrefixAnnotation))
	w.waitInLine(source, team, teamster, teamA)
	w.delete(w.home, longest)
	w.waitGone(longest, team, teamster, teamA)
}

// TestC10TwoInstances runs two controllers with different instances and prefixes: each has its own copies and
// leaves those of the other alone, also when it would want their place, and when the other is away.
func TestC10TwoInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "one-a", "two-a", "two-b")
	oneA, twoA, twoB := w.ns("one-a"), w.ns("two-a"), w.ns("two-b")
	other := *w
	other.instance += "-other"
	other.takeAccount()
	one := w.startExactly("--namespace-prefix=" + w.ns("one-"))
	two := other.startExactly("--namespace-prefix=" + w.ns("two-"))
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, oneA)
	other.waitInLine(source, twoA, twoB)

	// The first is given the place of the second as well.
	w.stop(one)
	theirs := w.copies("settings", twoA, twoB)
	one = w.startExactly("--namespace-prefix="+w.ns("one-"), "--namespace-prefix="+w.ns("two-"))
	if note := w.waitEvent(w.home, "settings", "Foreign"); !strings.Contains(note, twoA) || !strings.Contains(note, twoB) {
		t.Errorf("the event does not name what is in the way: %s", note)
	}
	w.allUntouched(theirs)
	other.stop(two)
	theirs = append(theirs[:1], w.edit(twoB, "settings", withAnnotation(plan.AdoptAnnotation, "true"))) // not for others
	w.settle(oneA, twoA, twoB)
	w.allUntouched(theirs)
	w.stop(one)

	// Each sees a copy of the other become a would-be source, and the source go, while the other is away.
	one = w.startExactly("--namespace-prefix=" + w.ns("one-"))
	w.edit(twoA, "settings", withLabel(w.label, "true"))
	theirs = w.copies("settings", twoA, twoB)
	w.delete(w.home, "settings")
	w.waitGone("settings", oneA)
	w.settle(oneA)
	w.absent("settings", oneA)
	w.allUntouched(theirs)
	w.stop(one)
	other.startExactly("--namespace-prefix=" + w.ns("two-"))
	w.waitGone("settings", twoA, twoB)
	w.expectWrites("settings", "create "+oneA, "delete "+oneA)
	other.expectWrites("settings", "create "+twoA, "create "+twoB, "delete "+twoA, "delete "+twoB)
}
