package mirror

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// desk is a ledger, and the rules by which its sources are read.
type desk struct {
	*ledger
	rules *rules
}

func newDesk() *desk { return &desk{newLedger("mirror"), testRules()} }

// opens makes these the sources of a name.
func (l *ledger) opens(name string, sources ...*source) (changed bool) {
	return l.open(name, func() []*source { return sources })
}

// notes enters what was decided by the source as the account knows it.
func (l *ledger) notes(key cache.ObjectName, namespace string, st standing) {
	s := &source{key: key}
	if a := l.names[key.Name][key]; a != nil {
		s = a.source
	}
	l.enter(s, namespace, st)
}

// says returns what is to be said about the sources of a name that is idle.
func (l *ledger) says(name string) []statement {
	return l.statements(name, func() bool { return true })
}

// has opens accounts for these sources of the name settings, read from what the cache holds now.
func (d *desk) has(list ...*corev1.ConfigMap) {
	var sources []*source
	for _, cm := range list {
		sources = append(sources, d.rules.readSource(cm))
	}
	d.opens("settings", sources...)
}

// notes enters one outcome for platform/settings in all of the namespaces.
func (d *desk) notes(o outcome, namespaces ...string) {
	for _, ns := range namespaces {
		d.ledger.notes(sourceKey, ns, standing{outcome: o})
	}
}

// writes enters a copy that was written, in all of the namespaces.
func (d *desk) writes(namespaces ...string) {
	for _, ns := range namespaces {
		d.ledger.notes(sourceKey, ns, standing{outcome: outcomeSynced, wrote: true})
	}
}

// says enters a problem and what there is to say about it, in all of the namespaces.
func (d *desk) says(o outcome, note string, namespaces ...string) {
	for _, ns := range namespaces {
		d.ledger.notes(sourceKey, ns, standing{outcome: o, note: note})
	}
}

// statementsOf returns what is to be said now, sorted by source, as "namespace Kind Reason: note".
func (d *desk) statementsOf(name string) []string {
	var out []string
	for _, s := range d.ledger.says(name) {
		out = append(out, s.source.Namespace+" "+s.kind+" "+s.reason+": "+s.note)
	}
	slices.SortStableFunc(out, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	return out
}

// TestStatements goes through the life of sources: each step enters how they stand, and then nothing is left
// to do. What is wanted of a statement is its beginning and, behind each '|', a part of it.
func TestStatements(t *testing.T) {
	type step struct {
		do   func(*desk)
		want []string
	}
	const (
		mirrored   = "platform Normal Mirrored: "
		foreign    = "platform Warning Foreign: "
		superseded = "platform Warning Superseded: "
		failed     = "platform Warning WriteFailed: "
		reserved   = "platform Warning ReservedName: "
		invalid    = "platform Warning InvalidSelector: "
		fighting   = "platform Warning Fight: "
	)
	src := sourceCM("platform", "settings")
	changed := sourceCM("platform", "settings", data("key", "changed"))
	malformed := sourceCM("platform", "settings", annotation(PrefixAnnotation, "Team"))
	tenant := sourceCM("team-z", "settings")
	open := func(list ...*corev1.ConfigMap) func(*desk) { return func(d *desk) { d.has(list...) } }
	begin := func(o outcome, namespaces ...string) func(*desk) {
		return func(d *desk) { d.has(src); d.notes(o, namespaces...) }
	}
	then := func(o outcome, namespaces ...string) func(*desk) {
		return func(d *desk) { d.notes(o, namespaces...) }
	}
	wrote := func(namespaces ...string) func(*desk) { return func(d *desk) { d.writes(namespaces...) } }
	both := func(steps ...func(*desk)) func(*desk) {
		return func(d *desk) {
			for _, s := range steps {
				s(d)
			}
		}
	}
	nothing := func(*desk) {}

	for name, steps := range map[string][]step{
		"a source without targets": {{open(src), nil}, {nothing, nil}},
		"a new source": {
			{both(open(src), wrote("a", "b", "c")), []string{mirrored + "3 copies in line"}},
			{nothing, nil},
			{then(outcomeSynced, "a", "b", "c"), nil}, // a resync
			{open(src), nil}, // read anew, and nothing new in it
		},
		"a new source, one copy": {
			{both(open(src), wrote("a")), []string{mirrored + "1 copy in line"}},
		},
		"C18 a restart with all in line": {
			{begin(outcomeSynced, "a", "b", "c"), nil},
			{nothing, nil},
		},
		"C18 a restart with one drifted": {
			{both(begin(outcomeSynced, "a", "b"), wrote("c")), []string{mirrored + "3 copies in line"}},
			{nothing, nil},
		},
		"each new namespace": {
			{both(open(src), wrote("a")), []string{mirrored + "1 copy in line"}},
			{wrote("b"), nil},
			{wrote("c", "d"), nil},
		},
		"each new namespace after a restart": {
			{begin(outcomeSynced, "a"), nil},
			{wrote("b"), nil},
		},
		"C19 an edited copy is put right": {
			{begin(outcomeSynced, "a", "b"), nil},
			{wrote("a"), nil},
		},
		"the content changes": {
			{both(open(src), wrote("a", "b")), []string{mirrored + "2 copies in line"}},
			{both(open(changed), wrote("a", "b")), []string{mirrored + "2 copies in line"}},
			{nothing, nil},
			{both(open(src), wrote("a", "b")), []string{mirrored + "2 copies in line"}},
		},
		"the content changes after a restart": {
			{begin(outcomeSynced, "a"), nil},
			{both(open(changed), wrote("a")), []string{mirrored + "1 copy in line"}},
		},
		"the content changes, and the copies follow one by one": {
			{both(open(src), wrote("a", "b", "c")), []string{mirrored + "3 copies in line"}},
			{both(open(changed), then(outcomePending, "a", "b", "c"), wrote("a")), nil},
			{wrote("b"), nil},
			{wrote("c"), []string{mirrored + "3 copies in line"}},
		},
		"C38 the content changes twice before the copies follow": {
			{both(open(src), wrote("a", "b")), []string{mirrored + "2 copies in line"}},
			{both(open(changed), then(outcomePending, "b"), wrote("a")), nil},
			{both(open(sourceCM("platform", "settings", data("key", "again"))), then(outcomePending, "a"), wrote("b")), nil},
			{wrote("a"), []string{mirrored + "2 copies in line"}},
		},
		"the content changes, and another process wrote the copies": {
			{begin(outcomeSynced, "a"), nil},
			{both(open(changed), then(outcomeSynced, "a")), nil},
			{wrote("b"), nil},
			{both(open(src), then(outcomeSynced, "a", "b")), nil},
		},
		"a target goes": {
			{both(open(src), wrote("a", "b")), []string{mirrored + "2 copies in line"}},
			{then(outcomeNone, "a"), nil},
			{both(open(changed), wrote("b")), []string{mirrored + "1 copy in line"}},
		},
		"C11 a foreign object": {
			{both(begin(outcomeForeign, "b"), wrote("a")), []string{foreign + "|in namespace b.", mirrored + "1 copy in line, 1 foreign"}},
			{then(outcomeForeign, "b"), nil},
			{wrote("c"), nil},
			{both(open(changed), wrote("a", "c"), then(outcomeForeign, "b")), []string{mirrored + "2 copies in line, 1 foreign"}},
			{wrote("b"), []string{mirrored + "3 copies in line"}},
			{nothing, nil},
		},
		"C11 a foreign object at a restart": {
			{begin(outcomeForeign, "b"), []string{foreign + "|in namespace b."}},
			{nothing, nil},
		},
		"C11 foreign objects in more and more namespaces": {
			{begin(outcomeForeign, "b"), []string{foreign + "|in namespace b."}},
			{then(outcomeForeign, "d"), []string{foreign + "|in 2 namespaces (b, d)."}},
			{then(outcomeForeign, "a", "c"), []string{foreign + "|in 4 namespaces (a, b, c, d)."}},
			{wrote("b"), nil},
			{then(outcomeForeign, "a"), nil},
			{then(outcomeForeign, "b"), []string{foreign + "|in 4 namespaces (a, b, c, d)."}},
			{wrote("a", "b", "c"), nil},
			{wrote("d"), []string{mirrored + "4 copies in line"}},
			{then(outcomeForeign, "d"), []string{foreign + "|in namespace d."}},
		},
		"the namespace of a foreign object goes": {
			{both(begin(outcomeForeign, "b"), then(outcomeSynced, "a")), []string{foreign}},
			{then(outcomeNone, "b"), []string{mirrored + "1 copy in line"}},
		},
		"C03 superseded": {
			{both(open(src), func(d *desk) { d.says(outcomeSuperseded, "base/settings", "a", "b") }, wrote("c")),
				[]string{superseded + "|base/settings|in 2 namespaces (a, b).", mirrored + "1 copy in line, 2 superseded"}},
			{func(d *desk) { d.says(outcomeSuperseded, "base/settings", "a", "b") }, nil},
			{wrote("a"), nil},
			{wrote("b"), []string{mirrored + "3 copies in line"}},
		},
		"C30 a refused write": {
			{both(open(src), func(d *desk) { d.says(outcomeFailed, "quota exceeded", "b") }, wrote("a")),
				[]string{failed + "|in namespace b;|b: quota exceeded", mirrored + "1 copy in line, 1 failed"}},
			{func(d *desk) { d.says(outcomeFailed, "quota exceeded", "b") }, nil},
			{func(d *desk) { d.says(outcomeFailed, "quota exceeded, by more", "b") }, nil},
			{func(d *desk) { d.says(outcomeFailed, "no", "c") }, []string{failed + "|in 2 namespaces (b, c);|b: quota exceeded, by more"}},
			{wrote("b", "c"), []string{mirrored + "3 copies in line"}},
		},
		"C34 a refused write, while the API server is away": {
			{both(open(src), func(d *desk) { d.says(outcomeFailed, "quota exceeded", "b") }, wrote("a")),
				[]string{failed, mirrored + "1 copy in line, 1 failed"}},
			{then(outcomePending, "b"), nil},
			{func(d *desk) { d.says(outcomeFailed, "quota exceeded", "b") }, nil},
			{then(outcomePending, "b"), nil},
			{wrote("b"), []string{mirrored + "2 copies in line"}},
		},
		"C11 a foreign object, while the API server is away": {
			{begin(outcomeForeign, "b"), []string{foreign}},
			{then(outcomePending, "b"), nil},
			{then(outcomeForeign, "b"), nil},
		},
		"a problem is solved while another target waits": {
			{both(begin(outcomeForeign, "b"), wrote("a")), []string{foreign, mirrored + "1 copy in line, 1 foreign"}},
			{both(wrote("b"), then(outcomePending, "a")), nil},
			{then(outcomeSynced, "a"), []string{mirrored + "2 copies in line"}},
		},
		"C44 copies outside the flags": {
			{both(begin(outcomeStranger, "x"), then(outcomeSynced, "a")), []string{foreign + "|outside the controller's namespaces, in namespace x."}},
			{nothing, nil},
			{then(outcomeNone, "x"), []string{mirrored + "1 copy in line"}},
		},
		"C44 copies of what the flags do not let be a source": {
			{both(func(d *desk) { d.rules = testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} }) },
				open(malformed), then(outcomeStranger, "x")), []string{foreign + "|outside the controller's source namespaces, in namespace x."}},
			{then(outcomeNone, "x"), nil},
		},
		"C36 a fight": {
			{begin(outcomeFight, "a"), []string{fighting + "|in namespace a."}},
			{then(outcomeFight, "a"), nil},
			{then(outcomeSynced, "a"), []string{mirrored + "1 copy in line"}},
		},
		"problems of all kinds": {
			{both(begin(outcomeForeign, "b"), func(d *desk) {
				d.says(outcomeSuperseded, "base/settings", "c")
				d.says(outcomeFailed, "no", "d")
			}, wrote("a")), []string{foreign, superseded, failed, mirrored + "1 copy in line, 1 foreign, 1 superseded, 1 failed"}},
			{wrote("b"), []string{mirrored + "2 copies in line, 1 superseded, 1 failed"}},
			{wrote("c", "d"), []string{mirrored + "4 copies in line"}},
		},
		"C31 a malformed narrowing": {
			{both(open(src), wrote("a")), []string{mirrored + "1 copy in line"}},
			{both(open(malformed), then(outcomeFrozen, "a")), []string{invalid + `|namespace-prefix="Team"|prefix "Team"`}},
			{nothing, nil},
			{open(malformed), nil},
			{open(sourceCM("platform", "settings", annotation(PrefixAnnotation, "TEAM"))), []string{invalid + `|prefix "TEAM"`}},
			{both(open(src), then(outcomeSynced, "a")), nil},
			{open(malformed), []string{invalid}},
		},
		"C31 malformed, and a problem is gone with it": {
			{both(begin(outcomeForeign, "b"), wrote("a")), []string{foreign, mirrored + "1 copy in line, 1 foreign"}},
			{both(open(malformed), then(outcomeNone, "b"), then(outcomeFrozen, "a")), []string{invalid}},
		},
		"C31 malformed, and mended with other content": {
			{both(open(malformed), then(outcomeFrozen, "a")), []string{invalid}},
			{both(open(changed), wrote("a")), []string{mirrored + "1 copy in line"}},
		},
		"C31 both annotations malformed": {
			{open(sourceCM("platform", "settings", annotation(PrefixAnnotation, "A"), annotation(SelectorAnnotation, "a=b=c"))),
				[]string{invalid + "|namespace-prefix|; annotation mirror-controller.github.io/namespace-selector"}},
		},
		"C05 a reserved name": {
			{func(d *desk) {
				d.opens("settings", d.rules.readSource(sourceCM("platform", "kube-root-ca.crt")))
			}, []string{reserved + "|kube-root-ca.crt"}},
			{func(d *desk) {
				d.opens("settings", d.rules.readSource(sourceCM("platform", "kube-root-ca.crt")))
			}, nil},
		},
		"C03 two sources of one name": {
			{func(d *desk) {
				d.has(src, tenant)
				d.writes("a", "b")
				for _, ns := range []string{"a", "b"} {
					d.ledger.notes(cache.ObjectName{Namespace: "team-z", Name: "settings"}, ns, standing{outcome: outcomeSuperseded, note: "platform/settings"})
				}
			}, []string{mirrored + "2 copies in line", "team-z Warning Superseded: |platform/settings"}},
			{func(d *desk) {
				d.has(tenant)
				for _, ns := range []string{"a", "b"} {
					d.ledger.notes(cache.ObjectName{Namespace: "team-z", Name: "settings"}, ns, standing{outcome: outcomeSynced, wrote: true})
				}
			}, []string{"team-z Normal Mirrored: 2 copies in line"}},
		},
		"C15 the source goes and comes back": {
			{both(open(src), wrote("a")), []string{mirrored}},
			{open(), nil},
			{begin(outcomeSynced, "a"), nil},
			{open(), nil},
			{both(open(changed), wrote("a")), []string{mirrored + "1 copy in line"}},
		},
		"a source that is gone": {
			{open(src), nil},
			{both(open(), wrote("a"), then(outcomeForeign, "b")), nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk()
			for i, s := range steps {
				s.do(d)
				got := d.statementsOf("settings")
				if len(got) != len(s.want) {
					t.Fatalf("step %d: got %q, want %q", i, got, s.want)
				}
				for j, want := range s.want {
					parts := strings.Split(want, "|")
					if strings.Contains(want, "Mirrored: ") && len(got[j]) != len(want) && !strings.HasSuffix(want, ": ") {
						t.Errorf("step %d: got %q, want %q and no more", i, got[j], want)
					}
					if !strings.HasPrefix(got[j], parts[0]) {
						t.Errorf("step %d: got %q, want it to begin with %q", i, got[j], parts[0])
					}
					for _, part := range parts[1:] {
						if !strings.Contains(got[j], part) {
							t.Errorf("step %d: got %q, want %q in it", i, got[j], part)
						}
					}
				}
				if again := d.statementsOf("settings"); len(again) > 0 {
					t.Errorf("step %d: got %q said a second time", i, again)
				}
			}
		})
	}
}

func TestStatementsAreAboutOneName(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.writes("a")
	other := d.rules.readSource(sourceCM("platform", "other"))
	d.opens("other", other)
	d.enter(other, "a", standing{outcome: outcomeSynced, wrote: true})
	for _, name := range []string{"none", "settings", "other"} {
		got := d.ledger.says(name)
		if name == "none" {
			if len(got) > 0 {
				t.Errorf("got %v about a name without sources", got)
			}
			continue
		}
		if len(got) != 1 || got[0].source.Name != name {
			t.Errorf("%s: got %v, want one statement about it", name, got)
		}
	}
}

// TestStatementsRegardTheSourceAsItIsNow: an event names the object with its present resourceVersion.
func TestStatementsRegardTheSourceAsItIsNow(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	now := sourceCM("platform", "settings", func(cm *corev1.ConfigMap) { cm.ResourceVersion = "99" })
	d.has(now)
	d.writes("a")
	got := d.ledger.says("settings")
	if len(got) != 1 || got[0].source != now {
		t.Errorf("got %v, want one statement about the object at 99", got)
	}
}

// TestLedgerTotals compares the totals with a count of all that was entered, while sources come and go.
func TestLedgerTotals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := testRules()
	l := newLedger("mirror")
	names := []string{"one", "two"}
	all := map[string][]*source{}
	for _, name := range names {
		for _, ns := range []string{"platform", "base", "team-z"} {
			all[name] = append(all[name], r.readSource(sourceCM(ns, name)))
		}
	}
	model := map[cache.ObjectName]map[string]outcome{}
	for i := range 5000 {
		name := names[random.IntN(len(names))]
		if random.IntN(20) == 0 {
			var present []*source
			for _, s := range all[name] {
				if random.IntN(3) > 0 {
					present = append(present, s)
				} else {
					delete(model, s.key)
				}
			}
			l.opens(name, present...)
			for _, s := range present {
				if model[s.key] == nil {
					model[s.key] = map[string]outcome{}
				}
			}
			if (l.names[name] == nil) != (len(present) == 0) {
				t.Fatalf("step %d: got accounts %v for %d sources", i, l.names[name], len(present))
			}
		}
		key := all[name][random.IntN(3)].key
		ns, o := string(rune('a'+random.IntN(5))), outcome(random.IntN(int(outcomes)))
		l.notes(key, ns, standing{outcome: o, note: []string{"", "x", "y"}[random.IntN(3)], wrote: random.IntN(2) == 0})
		if model[key] != nil {
			model[key][ns] = o
		}
		if random.IntN(10) == 0 {
			l.says(name)
		}

		var want [outcomes]int
		for _, at := range model {
			for _, o := range at {
				want[o]++
			}
		}
		for o := outcomeNone + 1; o < outcomes; o++ {
			if l.total[o] != want[o] {
				t.Fatalf("step %d: got %d %v, want %d", i, l.total[o], o, want[o])
			}
		}
	}
	for _, name := range names {
		l.opens(name)
	}
	if l.total != [outcomes]int{} || len(l.names) != 0 {
		t.Errorf("got totals %v and accounts %v after all sources went, want none", l.total, l.names)
	}
}

// TestLedgerTakesNothingOldForInLine: of a copy of older content another round is to come, of an object in the way it makes
// no difference.
func TestLedgerTakesNothingOldForInLine(t *testing.T) {
	d := newDesk()
	old := d.rules.readSource(sourceCM("platform", "settings"))
	d.opens("settings", old)
	d.has(sourceCM("platform", "settings", data("key", "changed")))
	d.enter(old, "a", standing{outcome: outcomeSynced, wrote: true})
	d.enter(old, "b", standing{outcome: outcomeForeign})
	for o, want := range map[outcome]int{outcomeSynced: 0, outcomePending: 1, outcomeForeign: 1} {
		if got := d.copies(o); got != want {
			t.Errorf("got %d %v, want %d", got, o, want)
		}
	}
}

func TestLedgerOpenTellsWhatIsNew(t *testing.T) {
	l, r := newLedger("mirror"), testRules()
	one, other := r.readSource(sourceCM("platform", "settings")), r.readSource(sourceCM("base", "settings"))
	again := r.readSource(sourceCM("platform", "settings", data("key", "changed")))
	for i, step := range []struct {
		sources []*source
		want    bool
	}{
		{nil, false},
		{[]*source{one}, true},
		{[]*source{one}, false},
		{[]*source{one, other}, true},
		{[]*source{other, one}, false},
		{[]*source{again, other}, true},
		{[]*source{again, other}, false},
		{[]*source{again}, false},
		{[]*source{again, other}, true},
		{nil, false},
		{[]*source{again}, true},
	} {
		if got := l.opens("settings", step.sources...); got != step.want {
			t.Errorf("step %d: got changed %v, want %v", i, got, step.want)
		}
	}
}

func TestLedgerKeepsNothingOfTargetsThatAreNone(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.says(outcomeFailed, "no", "a", "b")
	d.writes("c")
	d.notes(outcomeNone, "a", "b", "c", "never-seen")
	a := d.names["settings"][sourceKey]
	if len(a.at) != 0 || len(a.notes) != 0 {
		t.Errorf("got %v and notes %v kept, want nothing", slices.Collect(maps.Keys(a.at)), a.notes)
	}
	d.says(outcomeFailed, "no", "a")
	d.writes("a")
	if len(a.notes) != 0 {
		t.Errorf("got notes %v kept of a problem that is over, want none", a.notes)
	}
}

// TestActionsOfEvents: what is said of an object in the way and of copies outside the flags has one reason, and must not
// take each other's place.
func TestActionsOfEvents(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.notes(outcomeForeign, "a")
	d.notes(outcomeStranger, "x")
	var actions []string
	for _, s := range d.ledger.says("settings") {
		if s.reason == ReasonForeign {
			actions = append(actions, s.action)
		}
	}
	if !slices.Equal(actions, []string{actionMirror, actionPrune}) {
		t.Errorf("got actions %q of reason Foreign, want two that differ", actions)
	}
}

// TestLedgerOutdates what was in line with a source only if its content is another one.
func TestLedgerOutdates(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings"))
	d.notes(outcomeSynced, "team-a", "team-b")
	d.notes(outcomeForeign, "team-c")
	for _, step := range []struct {
		source          *corev1.ConfigMap
		synced, pending int
	}{
		{sourceCM("platform", "settings", annotation("note", "does not travel")), 2, 0},
		{sourceCM("platform", "settings", data("key", "new")), 0, 2},
	} {
		d.has(step.source)
		if synced, pending := d.copies(outcomeSynced), d.copies(outcomePending); synced != step.synced || pending != step.pending {
			t.Errorf("got %d in line and %d pending, want %d and %d", synced, pending, step.synced, step.pending)
		}
		if got := d.pending(sourceKey); got != (step.pending > 0) {
			t.Errorf("got the source pending %v, want %v", got, step.pending > 0)
		}
	}
}

func TestLedgerExpectsWhereNothingIsKnown(t *testing.T) {
	d := newDesk()
	d.expect(sourceKey, "team-a") // there is no such source
	if d.pending(sourceKey) || d.copies(outcomePending) > 0 {
		t.Error("got something pending without a source")
	}
	d.has(sourceCM("platform", "settings"))
	d.notes(outcomeForeign, "team-a")
	d.expect(sourceKey, "team-a")
	if d.pending(sourceKey) || d.copies(outcomeForeign) != 1 {
		t.Error("got a copy expected where something else is known")
	}
	for range 2 {
		d.expect(sourceKey, "team-b")
		if !d.pending(sourceKey) || d.copies(outcomePending) != 1 {
			t.Errorf("got %d pending, want 1", d.copies(outcomePending))
		}
	}
}

func TestLedgerCountsInvalidSources(t *testing.T) {
	d := newDesk()
	d.has(sourceCM("platform", "settings", annotation(PrefixAnnotation, "Team")), sourceCM("base", "settings"), sourceCM("team-a", "settings"))
	if sources, invalid := d.sources(), d.invalidSources(); sources != 3 || invalid != 1 {
		t.Errorf("got %d sources, %d of them invalid, want 3 and 1", sources, invalid)
	}
}
