package mirror

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

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

func TestEchoAwaited(t *testing.T) {
	now := time.Unix(5000, 0)
	have := plantest.ConfigMap("team-a", "settings")
	other := plantest.ConfigMap("team-a", "settings", func(cm *corev1.ConfigMap) { cm.UID = "other" })
	for name, tc := range map[string]struct {
		echo    echo
		have    *corev1.ConfigMap
		version string
		want    bool
	}{
		"no write":                            {echo{version: "41"}, nil, "9", false},
		"the cache is behind":                 {echo{version: "41", at: now}, nil, "9", true}, // as numbers, not as words
		"the cache is there":                  {echo{version: "41", at: now}, nil, "41", false},
		"the cache is ahead":                  {echo{version: "41", at: now}, nil, "100", false},
		"client-go does not know":             {echo{version: "41", at: now}, nil, "", false},
		"a version that does not come":        {echo{version: "41", at: now.Add(-maxEcho - 1)}, nil, "9", false},
		"at the last moment":                  {echo{version: "41", at: now.Add(-maxEcho)}, nil, "9", true},
		"deleted, and there":                  {echo{deleted: have.UID, at: now}, have, "9", true},
		"deleted, and gone":                   {echo{deleted: have.UID, at: now}, nil, "9", false},
		"deleted, and another one there":      {echo{deleted: have.UID, at: now}, other, "9", false},
		"deleted, and held by finalizers":     {echo{deleted: have.UID, at: now}, plantest.ConfigMap("team-a", "settings", plantest.Deleting), "9", false},
		"re-created, and the old one there":   {echo{deleted: have.UID, version: "41", at: now}, have, "9", true},
		"re-created, and the new one not yet": {echo{deleted: have.UID, version: "41", at: now}, nil, "9", true},
		"an object without a UID":             {echo{version: "41", at: now}, &corev1.ConfigMap{}, "41", false},
	} {
		if got := tc.echo.awaited(tc.have, tc.version, now); got != tc.want {
			t.Errorf("%s: got awaited %v, want %v", name, got, tc.want)
		}
	}
}

// losing are the losers of a target, whatever is planned there.
func losing(losers ...key) func(plan.Change) []key {
	return func(plan.Change) []key { return losers }
}

// TestObserve: an event that only shows our own last write reconciles nothing, and ends the wait for it.
func TestObserve(t *testing.T) {
	ours := plantest.ConfigMap("team-a", "settings", withVersion("41"))
	theirs := plantest.ConfigMap("team-a", "settings", withVersion("42"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	wrote, deleted := echo{version: "41", at: time.Unix(5000, 0)}, echo{deleted: ours.UID, at: time.Unix(5000, 0)}
	both := echo{version: "41", deleted: theirs.UID, at: time.Unix(5000, 0)}
	for name, tc := range map[string]struct {
		rec       *record
		cm        *corev1.ConfigMap
		deleted   bool
		reconcile bool
		left      echo
	}{
		"nothing known":                      {nil, ours, false, true, echo{}},
		"no write":                           {&record{repairs: 1}, ours, false, true, echo{}},
		"no write, of an object without UID": {&record{repairs: 1}, &corev1.ConfigMap{}, false, true, echo{}},
		"its deletion":                       {&record{repairs: 1}, &corev1.ConfigMap{}, true, true, echo{}},
		"our write":                          {&record{echo: wrote}, ours, false, false, echo{}},
		"our write, and a key waits":         {&record{echo: wrote, waits: true}, ours, false, true, echo{}},
		"their write":                        {&record{echo: wrote}, theirs, false, true, wrote},
		"a deletion of what we wrote":        {&record{echo: wrote}, ours, true, true, wrote},
		"our deletion":                       {&record{echo: deleted}, ours, true, false, echo{}},
		"our deletion, and a key waits":      {&record{echo: deleted, waits: true}, ours, true, true, echo{}},
		"a write of what we deleted":         {&record{echo: deleted}, ours, false, true, deleted},
		"a deletion of theirs":               {&record{echo: deleted}, theirs, true, true, deleted},
		"a deletion of what is not known":    {&record{echo: deleted}, nil, true, true, deleted},
		"the first part of a re-creation":    {&record{echo: both}, theirs, true, false, echo{version: "41", at: both.at}},
		"the second part of a re-creation":   {&record{echo: both}, ours, false, false, echo{}},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := newStatus(), settings("team-a")
			if tc.rec != nil {
				s.set(k, "uid", *tc.rec)
			}
			if got := s.observe(k, tc.cm, tc.deleted); got != tc.reconcile {
				t.Errorf("got it to be reconciled %v, want %v", got, tc.reconcile)
			}
			if got := s.stored(k).in("uid").echo; got != tc.left {
				t.Errorf("got %+v awaited, want %+v", got, tc.left)
			}
		})
	}
}

// TestOutdatedPlanQueues: a target whose record changes while a fan-out works is compared again, and keeps its record.
func TestOutdatedPlanQueues(t *testing.T) {
	k, wrote := settings("team-a"), plantest.ConfigMap("team-a", "settings", withVersion("8"))
	foreign := record{basics: basics{state: plan.StateForeign, countsFor: settings("platform")}}
	for name, tc := range map[string]struct {
		now   func(*status)
		queue bool
		state plan.State
	}{
		"nothing happens":        {func(*status) {}, false, plan.StateNone},
		"our write has arrived":  {func(s *status) { s.observe(k, wrote, false) }, true, plan.StateSynced},
		"a reconcile has ended":  {func(s *status) { s.set(k, "uid", foreign) }, true, plan.StateForeign},
		"the namespace appeared": {func(s *status) { s.appear(k, "other") }, true, plan.StateNone},
		"another target changed": {func(s *status) { s.set(settings("team-b"), "uid", foreign) }, false, plan.StateNone},
		"the fan-out has ended":  {func(s *status) { s.endFanout("settings", nil); s.set(k, "uid", foreign) }, false, plan.StateNone},
	} {
		s := newStatus()
		s.set(k, "uid", record{basics: basics{state: plan.StateSynced}, echo: echo{version: "8", at: time.Now()}})
		s.beginFanout("settings")
		tc.now(s)
		if got := s.planned(plan.Target{Key: k}, plan.Change{}, losing(), "9"); got != tc.queue {
			t.Errorf("%s: got it queued %v, want %v", name, got, tc.queue)
		}
		if got := s.stored(k).state; got != tc.state {
			t.Errorf("%s: got %v, want %v", name, got, tc.state)
		}
	}
}

// TestPlanQueues is the table of what a fan-out queues, and of the state until the result is known.
func TestPlanQueues(t *testing.T) {
	now := time.Now()
	blue, other := parsed(sourceIn("platform")), parsed(sourceIn("base"))
	create := plan.Change{Op: plan.OpCreate, Source: blue}
	unwanted := plan.Change{Op: plan.OpDelete, CopyOf: other.Key}
	replaced := plan.Change{Op: plan.OpUpdate, Source: other}
	of := func(state plan.State, r record) record {
		r.basics = basics{state, other.Key, contentOf(blue)}
		return r
	}
	for name, tc := range map[string]struct {
		rec   record
		c     plan.Change
		queue bool
		state plan.State
		owner key
	}{
		"a new target":               {record{}, create, true, plan.StatePending, blue.Key},
		"a drifted copy":             {of(plan.StateSynced, record{}), create, true, plan.StatePending, blue.Key},
		"a copy to delete":           {record{}, unwanted, true, plan.StatePending, other.Key},
		"a problem":                  {of(plan.StateForeign, record{}), create, true, plan.StateForeign, other.Key},
		"in sync":                    {of(plan.StatePending, record{reason: transient, note: "no"}), plan.Change{Source: blue, State: plan.StateSynced}, false, plan.StateSynced, blue.Key},
		"in sync, and the echo came": {of(plan.StateSynced, record{echo: echo{version: "8", at: now}}), plan.Change{Source: blue, State: plan.StateSynced}, false, plan.StateSynced, blue.Key},
		"in sync, and a fight":       {record{repairs: freeRepairs, repairedAt: now}, plan.Change{Source: blue, State: plan.StateSynced}, false, plan.StateFight, blue.Key},
		"frozen, and a fight":        {record{repairs: freeRepairs, repairedAt: now}, plan.Change{CopyOf: other.Key, State: plan.StateFrozen}, false, plan.StateFrozen, other.Key},
		"no longer a target":         {of(plan.StateFailed, record{reason: rejected, notBefore: now.Add(time.Hour)}), plan.Change{}, false, plan.StateNone, key{}},
		"it waits for its echo":      {of(plan.StateSynced, record{echo: echo{version: "41", at: now}}), plan.Change{Op: plan.OpUpdate, Source: blue}, false, plan.StateSynced, other.Key},
		"a fight":                    {of(plan.StateFight, record{repairs: 15, repairedAt: now}), create, false, plan.StateFight, other.Key},
		"the echo of other content":  {of(plan.StateSynced, record{echo: echo{version: "41", at: now}}), replaced, true, plan.StatePending, other.Key},
		"its timer is set":           {of(plan.StatePending, record{echo: echo{version: "41", at: now}, waits: true}), replaced, false, plan.StatePending, other.Key},
		"it waits for the next try":  {of(plan.StateFailed, record{reason: rejected, notBefore: now.Add(time.Hour)}), create, false, plan.StateFailed, create.Source.Key},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.rec.content.checksum != "" && tc.c.Op == plan.OpCreate && !tc.queue {
				tc.rec.tried = contentOf(tc.c.Source)
			}
			s, target := newStatus(), plan.Target{Key: settings("team-a"), Namespace: plantest.Namespace("team-a")}
			s.set(target.Key, target.Namespace.UID, tc.rec)
			if got := s.planned(target, tc.c, losing(settings("loser")), "9"); got != tc.queue {
				t.Errorf("got it queued %v, want %v", got, tc.queue)
			}
			if got := s.total(plan.StateSuperseded); got != 1 {
				t.Errorf("got %d superseded, want 1 in any case", got)
			}
			got := s.stored(target.Key).in(target.Namespace.UID)
			if got.state != tc.state || got.countsFor != tc.owner {
				t.Errorf("got %v of %v, want %v of %v", got.state, got.countsFor, tc.state, tc.owner)
			}
			if tc.c.Op == plan.OpNone && (got.echo != (echo{}) || got.reason != noRetry || !got.notBefore.IsZero() || got.note != "") {
				t.Errorf("got %+v, want no failure known", got)
			}
		})
	}
}

// TestRuns: a fan-out or a report of a name waits until a gap after the last one is over.
func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatus()
		s.nameStatus("settings")
		for _, step := range []struct{ after, want time.Duration }{
			{0, 0}, {30 * time.Millisecond, 70 * time.Millisecond}, {69 * time.Millisecond, time.Millisecond}, {time.Millisecond, 0}, {time.Millisecond, 99 * time.Millisecond}, {time.Hour, 0},
		} {
			time.Sleep(step.after)
			if got := s.beginRun("settings", runGap); got != step.want {
				t.Errorf("got a wait of %v, want %v", got, step.want)
			}
		}
		if got := s.beginRun("other", runGap); got != 0 {
			t.Errorf("another name: got a wait of %v, want none", got)
		}
	})
}

// TestANewNamespaceHasNoHistory: the record of its predecessor does not count, not even a shared one.
func TestANewNamespaceHasNoHistory(t *testing.T) {
	synced := basics{plan.StateSynced, settings("platform"), content{checksum: "blue"}}
	for name, rec := range map[string]record{
		"a failure": {basics: synced, reason: rejected, failures: 7, notBefore: time.Now().Add(time.Hour)},
		"a fight":   {basics: synced, repairs: 12, repairedAt: time.Now()},
		"in sync":   {basics: synced},
		"nothing":   {},
	} {
		s, k := newStatus(), settings("team-a")
		s.set(k, "old", rec)
		s.appear(k, "new")
		got := s.stored(k).in("new")
		if got.appeared.IsZero() {
			t.Errorf("%s: got no time at which the namespace appeared", name)
		}
		if got.basics != (basics{}) || got.reason != noRetry || got.repairs != 0 || !got.notBefore.IsZero() {
			t.Errorf("%s: got %+v, want nothing but the namespace's time", name, got)
		}
		s.set(k, "new", record{basics: synced, repairs: 1})
		if s.appear(k, "new"); s.stored(k).in("new").repairs != 1 {
			t.Errorf("%s: got a record lost that is newer than the event", name)
		}
		if got := s.stored(k).in("old"); got.repairs != 0 {
			t.Errorf("%s: got the record of another namespace", name)
		}
	}
}

// TestStatusCounts compares the counts with the records under random operations.
func TestStatusCounts(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := newStatus()
		sources := []*plan.Source{parsed(sourceIn("platform")), parsed(sourceIn("base")), parsed(sourceIn("workshop"))}
		some := func() *plan.Source { return sources[random.IntN(len(sources))] }
		for i := range 2000 {
			k := settings(fmt.Sprintf("team-%d", random.IntN(6)))
			uid := types.UID(fmt.Sprint("uid-", random.IntN(2)))
			var losers []key
			for range random.IntN(3) {
				losers = append(losers, some().Key)
			}
			target := plan.Target{Key: k, Namespace: plantest.Namespace(k.Namespace)}
			target.Namespace.UID = uid
			switch random.IntN(6) {
			case 0:
				rec := s.stored(k).in(uid)
				rec.conclude(plan.State(random.IntN(int(plan.States))), some().Key, contentOf(some()), time.Now())
				rec.losers = losers
				s.set(k, uid, rec)
			case 1:
				rec := s.stored(k).in(uid)
				rec.fail(result{change: plan.Change{Source: some()}, state: plan.StateFailed, reason: rejected, err: errAway}, time.Now())
				s.set(k, uid, rec)
			case 2:
				s.planned(target, plan.Change{Op: plan.OpCreate, Source: some()}, losing(losers...), "9")
			case 3:
				s.planned(target, plan.Change{Source: some(), State: plan.StateSynced}, losing(losers...), "9")
			case 4:
				s.appear(k, uid)
				s.observe(k, nil, true)
			case 5:
				s.summarize("settings", plan.NewView(sources[random.IntN(len(sources)):])) // some are gone
			}
			if recount(t, s); t.Failed() {
				t.Fatalf("seed %d, step %d", seed, i)
			}
		}
		for _, namespace := range slices.Sorted(slices.Values(s.namespaces("settings"))) {
			s.set(settings(namespace), "", record{})
		}
		s.beginFanout("settings")
		if s.summarize("settings", &plan.View{}); len(s.names) > 0 {
			t.Errorf("got %+v left after all targets and sources went, want nothing", s.names["settings"])
		}
	}
}

// recount compares the counts of all states with the records.
func recount(t *testing.T, s *status) {
	t.Helper()
	var totals [plan.States]int
	counts := map[key][plan.States]int{}
	one := func(k key, state plan.State) {
		c := counts[k]
		c[state]++
		counts[k] = c
		totals[state]++
	}
	for _, n := range s.names {
		for namespace, r := range n.targets {
			if r.state != plan.StateNone {
				one(r.countsFor, r.state)
			}
			for _, loser := range r.losers {
				one(loser, plan.StateSuperseded)
			}
			if r.isPlain() && r != n.shared[r.basics] && r.uid != "" {
				t.Errorf("got a plain record of its own in %s: %+v", namespace, r)
			}
		}
		got := map[key][plan.States]int{}
		for k, src := range n.sources {
			if src.counts != [plan.States]int{} {
				got[k] = src.counts
			}
		}
		if !maps.Equal(got, counts) {
			t.Errorf("got counts %v, want %v", got, counts)
		}
	}
	if s.totals != totals {
		t.Errorf("got totals %v, want %v", s.totals, totals)
	}
	for state := range plan.States {
		if got := s.total(state); got != totals[state] {
			t.Errorf("got %d %v, want %d", got, state, totals[state])
		}
	}
}

// TestEqualRecordsAreShared: ten thousand targets in sync share one record, and a target without anything has none.
func TestEqualRecordsAreShared(t *testing.T) {
	s := newStatus()
	synced := record{basics: basics{plan.StateSynced, settings("platform"), content{checksum: "blue"}}}
	s.set(settings("team-a"), "a", synced)
	s.set(settings("team-b"), "b", synced)
	s.set(settings("team-c"), "c", record{basics: synced.basics, repairs: 1})
	s.set(settings("team-d"), "d", record{})
	s.set(settings("team-e"), "e", record{basics: synced.basics, waits: true})
	n := s.names["settings"].targets
	if n["team-a"] != n["team-b"] || n["team-a"] == n["team-c"] || n["team-a"] == n["team-e"] || len(n) != 4 {
		t.Errorf("got %v, want a and b with one record, and c and e with their own", n)
	}
	if got := slices.Sorted(slices.Values(s.namespaces("settings"))); !slices.Equal(got, []string{"team-a", "team-b", "team-c", "team-e"}) {
		t.Errorf("got records for %v", got)
	}
	if s.beginFanout("settings"); len(s.names["settings"].shared) > 0 {
		t.Error("got records kept to be shared by targets of former contents")
	}
	if got := s.namespaces("other"); len(got) > 0 {
		t.Errorf("got records for %v of a name that is not known", got)
	}
}

// TestDirty: a name is dirty if there may be something to report, and only then.
func TestDirty(t *testing.T) {
	base := settings("platform")
	of := func(state plan.State) record { return record{basics: basics{state: state, countsFor: base}} }
	for name, tc := range map[string]struct {
		before, after record
		want          bool
	}{
		"arrived":                     {of(plan.StatePending), of(plan.StateSynced), true},
		"gone":                        {of(plan.StatePending), record{}, true},
		"a new problem":               {of(plan.StateSynced), of(plan.StateFailed), true},
		"no longer a problem":         {of(plan.StateFight), of(plan.StateSynced), true},
		"another problem":             {of(plan.StateForeign), of(plan.StateFailed), true},
		"the problem of another":      {of(plan.StateOutOfScope), record{basics: basics{state: plan.StateOutOfScope, countsFor: settings("base")}}, true},
		"another source has it":       {of(plan.StateSynced), record{basics: of(plan.StateSynced).basics, losers: []key{settings("base")}}, true},
		"as before":                   {of(plan.StateFailed), of(plan.StateFailed), false},
		"still pending":               {of(plan.StatePending), of(plan.StatePending), false},
		"to be written":               {of(plan.StateSynced), of(plan.StatePending), false},
		"in sync, and in sync":        {of(plan.StateSynced), of(plan.StateSynced), false},
		"in sync with another source": {of(plan.StateSynced), record{basics: basics{state: plan.StateSynced, countsFor: settings("base")}}, false},
	} {
		s, k := newStatus(), settings("team-a")
		s.set(k, "a", tc.before)
		s.summarize("settings", &plan.View{})
		s.nameStatus("settings").dirty = false
		for range 2 { // the second time nothing is new, but nothing was reported either
			s.set(k, "a", tc.after)
			if got := s.isDirty("settings"); got != tc.want {
				t.Errorf("%s: got something to report %v, want %v", name, got, tc.want)
			}
		}
	}
	if newStatus().isDirty("settings") {
		t.Error("got something to report about a name that is not known")
	}
}
