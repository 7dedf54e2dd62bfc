package mirror

// Faults that reviews, mutation and the storm found, one test for each.

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// a target that is due and free is left in the backlog although nobody is told to take it.
func TestMendedBacklogLeavesDueTargetsWithoutAWakeUp(t *testing.T) {
	b := newBacklog()
	const limit = 4
	for _, ns := range []string{"gone-1", "gone-2", "gone-3", "a"} {
		b.mark("s", ns, mark{})
	}
	b.markAll("s")
	// One queue entry for all of that.
	jobs, more := b.take("s", limit, func() []string { return []string{"a"} })
	woken := more
	for _, j := range jobs {
		due, _ := b.done("s", j.namespace)
		woken = woken || due
	}
	if p := b.names["s"]; p != nil && !woken {
		t.Errorf("got %q left, nothing busy, and no wake-up, want them taken or more", p.marked)
	}
}

// near the end of a round whose last targets are marked, in slices of 64.
func TestMendedBacklogLeavesDueTargetsAtTheEndOfARound(t *testing.T) {
	b := newBacklog()
	all := numbered("r", 64+16)
	b.markAll("s")
	first, _ := b.take("s", 64, func() []string { return all })
	finish(b, "s", first) // written; their echoes come in:
	for _, ns := range all[:60] {
		b.mark("s", ns, mark{})
	}
	for _, ns := range all[64:] {
		b.mark("s", ns, mark{})
	}
	jobs, more := b.take("s", 64, noList)
	woken := more
	for _, j := range jobs {
		due, _ := b.done("s", j.namespace)
		woken = woken || due
	}
	if p := b.names["s"]; p != nil && !woken {
		t.Errorf("got %d targets left (%q), nothing busy, and no wake-up, want more", len(p.marked), p.marked)
	}
}

// a round that is started anew before each slice does not get on if its part of the slice is one target.
func TestMendedBacklogRoundStartedAnewDoesNotGetOn(t *testing.T) {
	b := newBacklog()
	list, _ := listing("a", "b", "c")
	reached := map[string]bool{}
	for range 20 {
		b.markAll("s")
		jobs, _ := b.take("s", 1, list)
		finish(b, "s", jobs)
		for _, j := range jobs {
			reached[j.namespace] = true
		}
	}
	if len(reached) != 3 {
		t.Errorf("got %v reached, want all three", reached)
	}
}

// the backlog of a name is called idle while a round of it is being listed.
func TestMendedBacklogIdleWhileListing(t *testing.T) {
	b := newBacklog()
	b.mark("s", "a", mark{})
	b.take("s", 10, noList)
	b.markAll("s")
	b.take("s", 10, func() []string {
		if _, idle := b.done("s", "a"); idle {
			t.Error("got idle while a round is about to begin, want not idle")
		}
		return []string{"a", "b"}
	})
}

func TestMendedBacklogConcurrencySmallSlices(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) { checkBacklog(t, 40, 8) })
	}
}

// the error of a malformed prefix annotation quotes the whole annotation for every malformed prefix.
func TestMendedNarrowingErrorIsQuadratic(t *testing.T) {
	value := strings.Repeat(",", 2000)
	_, _, err := readNarrowing(map[string]string{PrefixAnnotation: value})
	if n := len(err.Error()); n > 16<<10 {
		t.Errorf("got an error of %d bytes for an annotation of %d, want it bounded", n, len(value))
	}
}

// a look that fails after longer than lookRetry (a timeout) is not followed by a pause.
func TestMendedSlowFailingLookIsAskedAgainAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		s.slow, s.err = 30*time.Second, apierrors.NewTimeoutError("gone", 0)
		for range 3 {
			_, _, _ = l.source(t.Context(), testRules(), sourceKey, "")
		}
		if len(s.gets) != 1 {
			t.Errorf("got %d GETs of 30 s one after another, want 1 and a wait of a second", len(s.gets))
		}
	})
}

// gone, seen alive again, gone again: the grace counts from the first disappearance.
func TestMendedGraceOfASourceThatCameBackInBetween(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		wantLook(t, "gone", l, s, "", nil, time.Second, 1)
		s.cm = sourceCM("platform", "settings")
		time.Sleep(time.Second)
		wantLook(t, "back", l, s, "", nil, time.Second, 2)
		s.cm = nil
		time.Sleep(time.Second)
		wantLook(t, "gone again", l, s, "", nil, time.Second, 3)
	})
}

// the note of a disappearance that nobody asks about stays for ever.
func TestMendedSweepLeavesUnaskedDisappearances(t *testing.T) {
	bubble(t, func(t *testing.T, s *script, l *looks) {
		l.vanished(sourceKey)
		time.Sleep(time.Hour)
		l.sweep()
		if len(l.sources) > 0 {
			t.Errorf("got %d entries left after an hour, want none", len(l.sources))
		}
	})
}

// an API server that is away for a moment makes known problems new.
func TestMendedKnownProblemIsToldAgainAfterPending(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.notes(outcomeForeign, "a")
	d.statementsOf("settings")
	d.notes(outcomePending, "a")
	d.statementsOf("settings")
	d.notes(outcomeForeign, "a")
	if got := d.statementsOf("settings"); len(got) > 0 {
		t.Errorf("C11: got %q said again, want nothing", got)
	}
}

// that all is solved is not said if anything was pending at the moment when it was.
func TestMendedSolvedIsForgottenWhilePending(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.writes("a")
	d.says(outcomeFailed, "quota", "b")
	d.statementsOf("settings")
	d.notes(outcomePending, "b")
	d.statementsOf("settings")
	d.writes("b")
	if got := d.statementsOf("settings"); len(got) != 1 {
		t.Errorf("got %q, want Mirrored", got)
	}
}

// a look that did not come to an end loses the mark of the one before.
func TestMendedRetriesOverwriteTheMark(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		r.add(inA, mark{vanished: true}, transient)
		r.add(inA, mark{}, transient) // an event about the target, and the API server is still away
		wantNext(t, r, "C43", inA, mark{vanished: true}, 50*time.Millisecond)
	})
}

// a namespace that is created anew under the same name inherits the fight of the old one.
func TestMendedFightsOutliveTheNamespace(t *testing.T) {
	f := newFights()
	at := cache.ObjectName{Namespace: "team-a", Name: "settings"}
	for range 30 {
		f.wrote(at, "same", false) // deleted with its namespace, and written to the new one
	}
	if hold := f.hold(at, "same"); hold > 0 {
		t.Logf("C29: a write is held for %v; controller.namespaceGone has to forget it", hold)
	}
	if _, ok := any(f).(interface{ forgetNamespace(string) }); !ok {
		t.Error("C29: got no way to forget the fights of a namespace that is gone")
	}
}

// keys of other replicators that travel.
func TestMendedReplicatorKeysThatTravel(t *testing.T) {
	for _, key := range []string{
		"propagate.hnc.x-k8s.io/select", "propagate.hnc.x-k8s.io/all", "propagate.hnc.x-k8s.io/none",
		"clustersecret.io", // a label key without a slash
		"v1.kubernetes-replicator.olli.com/replicate-to",
	} {
		if !stays(key, "mirror") {
			t.Errorf("got %s travelling, want it to stay", key)
		}
	}
}

// an exclusion that can match no namespace at all is accepted.
func TestMendedExclusionThatMatchesNothing(t *testing.T) {
	o := validOptions(func(o *Options) { o.ExcludeNamespaces = []string{"team-x-"} })
	if err := o.Validate(); err == nil {
		t.Error(`got --exclude-namespace="team-x-" accepted, want it refused: no namespace has that name, and a '*' was meant`)
	}
}

// a long domain as the beginning of a key is refused.
func TestMendedLongDomainPattern(t *testing.T) {
	pattern := strings.Repeat("department.", 7) + "example.com*"
	if !validKeyPattern(pattern) {
		t.Errorf("got %q refused, want it accepted", pattern)
	}
}

// what is told of a source with a problem that became another one.
func TestMendedMirroredAlthoughAProblemRemains(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.notes(outcomeForeign, "a")
	d.statementsOf("settings")
	d.says(outcomeFailed, "no", "a")
	for _, s := range d.statementsOf("settings") {
		if strings.Contains(s, "Mirrored") {
			t.Errorf("got %q, want only that the write failed", s)
		}
	}
}

var _ = errors.New
var _ = fmt.Sprint
var _ corev1.ConfigMap

// one of two known problems is pending for a moment and then back.
func TestMendedKnownProblemIsToldAgainWhileAnotherRemains(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.notes(outcomeForeign, "a", "b")
	d.statementsOf("settings")
	d.notes(outcomePending, "a")
	d.statementsOf("settings")
	d.notes(outcomeForeign, "a")
	if got := d.statementsOf("settings"); len(got) > 0 {
		t.Errorf("C11: got %q said again, want nothing", got)
	}
}

// a copy without label, of a frozen source, at a target that another source claims, is not put right when its source is
// mended, but after the resync period.
func TestMendedFrozenCopyWithoutLabelIsInTheWay(t *testing.T) {
	r := testRules()
	frozen, mended := sourceCM("platform", "settings", annotation(SelectorAnnotation, "tier in (")), sourceCM("platform", "settings")
	mended.ResourceVersion = "2"
	lost := copyCM(r, mended, "team-a")
	delete(lost.Labels, r.label)
	client := fake.NewClientset(lost)
	c := newTeamController(t, client)
	c.active.Store(true)
	has(t, c, frozen, sourceCM("shared", "settings"))
	if err := c.namespaces.GetIndexer().Add(namespace("team-a")); err != nil {
		t.Fatal(err)
	}
	look := func() {
		c.reconcile(t.Context(), t.Context(), "settings")
		c.writes.Wait()
	}
	for range 2 * rampTries {
		c.mark("settings", "platform", mark{}) // any event of that name // as when the time of the next try has come
		look()
	}
	has(t, c, mended)
	c.markAll("settings")
	look()
	got, err := client.CoreV1().ConfigMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels[r.label] != CopyValue {
		t.Errorf("got labels %v, want it put right at once", got.Labels)
	}
}

// a source that is deleted between the look at the sources and the taking of the round, which its deletion had asked for
// already: the round went by what was, and there was no other. To read a large source takes long enough for that.
func TestMendedDeletionBetweenTheLookAndTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(namespace("platform"), namespace("team-a"), sourceCM("platform", "settings"))
		c := newTeamController(t, client)
		then := interpose(c, readSources)
		defer runs(t, c)()
		copies := func() (names []string) {
			list, err := client.CoreV1().ConfigMaps("team-a").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, cm := range list.Items {
				names = append(names, cm.Name)
			}
			return names
		}
		if got := copies(); len(got) != 1 {
			t.Fatalf("got %q, want one copy", got)
		}
		then(1, func() {
			if err := client.CoreV1().ConfigMaps("platform").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond) // all that there is to do about it but by this worker is done
		})
		c.mark("settings", "platform", mark{}) // any event of that name
		time.Sleep(time.Minute)
		if got := copies(); len(got) != 0 {
			t.Errorf("got %q a minute after their source is gone", got)
		}
	})
}

// a deletion of which nobody knows what was deleted: it may have been a source, and it may have been a copy.
func TestMendedDeletionOfTheUnknown(t *testing.T) {
	c := newTeamController(t, fake.NewClientset())
	c.active.Store(true)
	c.looks.sources[cache.ObjectName{Namespace: "team-a", Name: "settings"}] = &sourceLook{settledAt: time.Now()}
	c.configMapDeleted(coreinformers.DeletedConfigMap{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "team-a/settings"}})
	p := c.backlog.names["settings"]
	if p == nil || !p.round || !p.due["team-a"].vanished {
		t.Errorf("got %+v due, want a round, and a look for the copy that may have vanished", p)
	}
	if look := c.looks.sources[cache.ObjectName{Namespace: "team-a", Name: "settings"}]; look == nil || look.vanishedAt.IsZero() || !look.settledAt.IsZero() {
		t.Errorf("got %+v known of the source, want that it vanished", look)
	}
}

// what we deleted, and what the watch shows only as replaced by another, is not remembered for ever.
func TestMendedDeletionOfWhatWasReplaced(t *testing.T) {
	s := newStill(t)
	old := copyIn(sourceCM("platform", "settings"), "team-a")
	anew := old.DeepCopy()
	old.UID, anew.UID = "old", "new"
	s.writer.expectDeletion(old.UID, true)
	s.configMapUpdated(old, anew)
	if n := len(s.writer.deleting); n != 0 {
		t.Errorf("got %d deletions still expected, want none", n)
	}
}
