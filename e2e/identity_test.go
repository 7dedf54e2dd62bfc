package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What is a source and what is a copy: cases C01, C02, C05, C09 and C10.

// TestC01SourceInTarget has a source in a namespace that the prefix allows: no copy onto itself, no loop.
func TestC01SourceInTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.start("--resync-period=200ms")
	source := w.createSource(a, "settings")
	w.waitInSync(source, b)
	w.passes(2, b)
	w.untouched(source)
	w.expectWrites("settings", "create "+b)
	source = w.edit(a, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, b)
	w.passes(2, b)
	w.untouched(source)
	w.expectWrites("settings", "create "+b, "update "+b)
	w.waitReasons(a, "settings", map[string]int{"Mirrored": 2})
}

// TestC02CopyLabelledAsSource has a user label a copy mirror=true and change it: it is restored and never a source,
// also if its source goes and nobody watches.
func TestC02CopyLabelledAsSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	pretend := []option{withLabel(w.label, "true"), withData(map[string]string{"key": "stolen"})}
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b)
	copies := w.copies("settings", a, b)
	w.edit(a, "settings", pretend...)
	w.waitInSync(source, a, b)
	w.sameObjects(copies)
	w.untouched(copies[1])

	w.stop(p)
	w.edit(a, "settings", pretend...)
	p = w.start()
	w.waitInSync(source, a, b)
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

// TestC09Names has a name of 253 characters with dots, a prefix that is the whole name of a namespace, and a
// namespace whose name goes on behind another's.
func TestC09Names(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "tea", "team", "teamster", "team-a")
	tea, team, teamster, teamA := w.ns("tea"), w.ns("team"), w.ns("teamster"), w.ns("team-a")
	longest := strings.Repeat("a.", 126) + "b"
	w.startExactly("--namespace-prefix=" + team)
	source := w.createSource(w.home, longest)
	w.waitInSync(source, team, teamster, teamA)
	w.waitEvent(w.home, longest, "Mirrored")
	source = w.edit(w.home, longest, withData(map[string]string{"key": "two"}))
	w.waitInSync(source, team, teamster, teamA)
	w.delete(teamA, longest)
	w.waitInSync(source, teamA)
	w.absent(longest, tea)

	for prefix, want := range map[string][]string{
		team:                  {team, teamster, teamA},
		teamster:              {teamster},
		w.ns("team-"):         {teamA},
		teamster + "s":        {},
		" " + teamA + " ,tea": {teamA},
	} {
		source = w.edit(w.home, longest, withAnnotation(plan.PrefixAnnotation, prefix))
		w.waitInSync(source, want...)
		for _, namespace := range []string{tea, team, teamster, teamA} {
			if !slices.Contains(want, namespace) {
				w.waitGone(longest, namespace)
			}
		}
	}
	w.edit(w.home, longest, withoutAnnotation(plan.PrefixAnnotation))
	w.waitInSync(source, team, teamster, teamA)
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
	w.waitInSync(source, oneA)
	other.waitInSync(source, twoA, twoB)

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
