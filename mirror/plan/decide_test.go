package plan

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// decision is a case of Decide: a target, the sources of its name, and the change that is wanted.
type decision struct {
	sources []*corev1.ConfigMap
	ns      *corev1.Namespace // nil: team-a
	absent  bool              // the cache does not have team-a
	have    *corev1.ConfigMap

	op        Op
	state     State // zero beside an operation: pending, or expiring
	owner     string
	why       Exclusion
	note      string // the state is foreign or out of scope
	adoptable bool
	behind    string // the namespace of a superseded source
}

// normal returns the decision with the state that follows from its operation.
func (d decision) normal() decision {
	switch {
	case d.op == OpDelete:
		d.state = StateExpiring
	case d.op != OpNone:
		d.state = StatePending
	}
	return d
}

// checkDecisions decides about each case with the object as the cache has it.
func checkDecisions(t *testing.T, r *Rules, decisions map[string]decision) {
	t.Helper()
	for name, tc := range decisions {
		t.Run(name, func(t *testing.T) {
			tgt := Target{Key: keyIn("team-a"), Namespace: plantest.Namespace("team-a"), Have: stripped(r, tc.have)}
			if tc.ns != nil {
				tgt.Key, tgt.Namespace = keyIn(tc.ns.Name), tc.ns
			}
			if tc.absent {
				tgt.Namespace = nil
			}
			if len(tc.sources) > 0 {
				tgt.Key.Name = tc.sources[0].Name
			}
			v := viewOf(r, tc.sources...)
			c := r.Decide(v, tgt)
			if want := tc.normal(); c.Op != want.op || c.State != want.state || c.Why.Rule != want.why {
				t.Errorf("got %v, %v, why %v; want %v, %v, why %v",
					c.Op, c.State, c.Why, want.op, want.state, want.why)
			}
			if tc.owner != "" && c.Owner.Namespace != tc.owner || (c.Owner.Name == "") != (c.State == StateNone) {
				t.Errorf("got owner %v of state %v, want it in %q", c.Owner, c.State, tc.owner)
			}
			described := c.State == StateForeign || c.State == StateOutOfScope
			if tc.note != "" && c.Note != tc.note || (c.Note != "") != described || c.Adoptable != tc.adoptable {
				t.Errorf("got note %q, adoptable %v, of state %v; want %q, %v", c.Note, c.Adoptable, c.State, tc.note, tc.adoptable)
			}
			if behind := namespaces(r.Superseded(v, tgt, c)); strings.Join(behind, " ") != tc.behind {
				t.Errorf("got superseded %q, want %q", behind, tc.behind)
			}
			if owner := v.Find(c.Owner); c.State == StateHeld {
				isSelected := r.Exclusion(owner, tgt.Namespace) == NotExcluded
				if isSelected && c.Source != owner || !isSelected && c.Source != nil {
					t.Errorf("got the content of %v, want that of the owner if it selects the target: %v", c.Source, isSelected)
				}
			}
			if c.Key != tgt.Key {
				t.Errorf("got key %v, want %v", c.Key, tgt.Key)
			}
			if judged := c.Op != OpNone && c.Op != OpCreate; judged && c.Have != tgt.Have {
				t.Errorf("got have %v, want the object that was judged", c.Have)
			}
		})
	}
}

func TestDecideAboutACopy(t *testing.T) {
	r := testRules()
	src := plantest.Source("platform", "settings")
	reserved := plantest.Source("platform", "kube-root-ca.crt")
	longest := plantest.Source(strings.Repeat("n", 63), longName)
	byPhase, byTime := plantest.Terminating("team-a"), plantest.Terminating("team-a")
	byPhase.DeletionTimestamp, byTime.Status.Phase = nil, corev1.NamespaceActive
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	frozen := plantest.Source("platform", "settings", plantest.Annotation(PrefixAnnotation, "Team"))
	tenant := plantest.Source("team-b", "settings", plantest.CreatedAt(1), plantest.Data("key", "theirs"))
	checkDecisions(t, r, map[string]decision{
		"in sync": {sources: cms(src), have: have(), state: StateSynced},
		"C09 the longest key": {sources: cms(longest), have: plantest.Copy(r, longest, "team-a"),
			state: StateSynced},
		"C05 reserved name":                {sources: cms(reserved)},
		"C05 a copy under a reserved name": {sources: cms(reserved), have: plantest.Copy(r, reserved, "team-a")},
		"C76 being deleted": {sources: cms(src), have: have(plantest.Deleting, plantest.Finalizer), state: StateForeign,
			owner: "platform", note: "a copy is there that is being deleted, and its finalizer example.com/keep keeps it"},
		"C76 being deleted, in sync, without a finalizer": {sources: cms(src), have: have(plantest.Deleting),
			state: StateForeign, note: "a copy is there that is being deleted"},
		"C76 being deleted, adopt left over": {sources: cms(src), state: StateForeign,
			have: have(plantest.Deleting, plantest.Annotation(AdoptAnnotation, AdoptValue))},
		"C76 being deleted, unclaimed": {have: have(plantest.Deleting)},
		"C28 terminating by its phase": {ns: byPhase, have: have()},
		"C28 terminating by its time":  {ns: byTime, have: have()},
		"C31 frozen, another waits": {sources: cms(frozen, tenant), have: have(), state: StateFrozen, owner: "platform",
			behind: "team-b"},
		"C31 frozen, being deleted": {sources: cms(frozen), have: have(plantest.Deleting), state: StateFrozen},
		"C31 frozen, nothing there": {sources: cms(frozen)},
		"C31 frozen, label removed, alone": {sources: cms(frozen), have: have(plantest.Without(DefaultLabel)),
			state: StateFrozen},
		"C31 frozen, label removed": {sources: cms(frozen, tenant), have: have(plantest.Without(DefaultLabel)),
			state: StateFrozen, behind: "team-b"},
		"C31 frozen, a free place":       {sources: cms(frozen, tenant), op: OpCreate, owner: "team-b"},
		"C41 namespace not in the cache": {absent: true, have: have()},
		"C41 the same, wanted":           {absent: true, have: have(), sources: cms(src)},
		"C43 label removed, unwanted":    {have: have(plantest.Without(DefaultLabel))},
	})
}

func TestDecideByNamespaceSelector(t *testing.T) {
	r := testRules(func(o *Options) { o.NamespaceSelector = "tier" })
	src := plantest.Source("platform", "settings")
	narrowed := plantest.Source("platform", "settings", plantest.Annotation(SelectorAnnotation, "tier=silver"))
	gold, none := plantest.Namespace("team-a", "tier", "gold"), plantest.Namespace("team-a")
	have := plantest.Copy(r, src, "team-a")
	checkDecisions(t, r, map[string]decision{
		"selected":     {sources: cms(src), ns: gold, op: OpCreate},
		"not selected": {sources: cms(src), ns: none},
		"narrowed, too": {sources: cms(narrowed), ns: gold, have: have, op: OpDelete,
			why: ExcludedBySelector},
		"selected, no more": {ns: gold, have: have, op: OpDelete, why: SourceGone},
	})
	checkScope(t, r, ExcludedByNamespaceSelector, map[string]decision{
		"C51 no longer selected, opted out": {sources: cms(src), ns: plantest.Namespace("team-a", DefaultLabel, OptOutValue),
			have: have},
		"no longer selected, source gone": {ns: none, have: have},
	})
}

// checkScope checks that --namespace-selector or another flag rules the copies out: they stay, and with --prune they
// are deleted.
func checkScope(t *testing.T, r *Rules, why Exclusion, cases map[string]decision) {
	t.Helper()
	pruning := *r
	pruning.opts.Prune = true
	for name, tc := range cases {
		tc.state, tc.why = StateOutOfScope, why
		tc.note, _ = r.Explain(Unclaimed{Rule: why})
		checkDecisions(t, r, map[string]decision{name: tc})
		tc.op, tc.note = OpDelete, ""
		checkDecisions(t, &pruning, map[string]decision{name + ", --prune": tc})
	}
}

func TestDecideAboutAForeignObject(t *testing.T) {
	r, other := testRules(), testRules(func(o *Options) { o.Instance = "other" })
	src, tenant := plantest.Source("platform", "settings"), plantest.Source("team-b", "settings")
	adopt := plantest.Annotation(AdoptAnnotation, AdoptValue)
	foreign := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.ConfigMap("team-a", "settings", slices.Concat([]plantest.Option{plantest.Data("key", "mine")}, o)...)
	}
	ours := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	elsewhere, itself := plantest.Annotation(CopyAnnotation, "team-c/settings"),
		plantest.Annotation(SourceAnnotation, "team-a/settings")
	checkDecisions(t, r, map[string]decision{
		"C02 a released copy is no source": {sources: cms(src), op: OpUpdate,
			have: ours(plantest.Without(SourceAnnotation), adopt, plantest.Label(DefaultLabel, SourceValue))},
		"C04 the target is a source": {sources: cms(src, tenant), ns: plantest.Namespace("team-b"),
			have: tenant, state: StateForeign, owner: "platform", note: "another source of this name is there"},
		"C06 copy of another namespace": {sources: cms(src), have: ours(elsewhere), state: StateForeign, adoptable: true,
			note: "a foreign ConfigMap of this name is there"},
		"C06 the same, unwanted":                    {have: ours(elsewhere)},
		"C06 copy of another name in the namespace": {have: ours(plantest.Annotation(CopyAnnotation, "team-a/other"))},
		"C02 a copy asks for nothing": {
			sources: cms(plantest.Copy(r, src, "team-b", plantest.Label(DefaultLabel, SourceValue)))},
		"C07 no possible source":       {have: ours(plantest.Annotation(SourceAnnotation, "Platform/settings"))},
		"C07 its own source":           {have: ours(itself)},
		"C07 a source of another name": {have: ours(plantest.Annotation(SourceAnnotation, "platform/other"))},
		"C08 released": {sources: cms(src), have: ours(plantest.Without(InstanceAnnotation)),
			state: StateForeign, note: "a copy of no instance is there"},
		"C10 of another instance": {sources: cms(src), have: plantest.Copy(other, src, "team-a", adopt),
			state: StateForeign, note: "a copy of instance other is there"},
		"C11 foreign":           {sources: cms(src), have: foreign(), state: StateForeign, adoptable: true},
		"C11 foreign, unwanted": {have: foreign(adopt)},
		"C76 adopted, being deleted": {sources: cms(src), have: foreign(adopt, plantest.Deleting, plantest.Finalizer),
			state: StateForeign, note: "a foreign ConfigMap of this name is there that is being deleted, " +
				"and its finalizer example.com/keep keeps it"},
		"C76 being deleted": {sources: cms(src), have: foreign(plantest.Deleting), state: StateForeign},
		"C76 a source, being deleted": {sources: cms(src), state: StateForeign,
			have: foreign(plantest.Deleting, plantest.Label(DefaultLabel, SourceValue))},
		"C76 being deleted, unclaimed": {have: foreign(plantest.Deleting)},
		"C12 a source is not adopted": {sources: cms(src), have: foreign(adopt, plantest.Label(DefaultLabel, SourceValue)),
			state: StateForeign},
		"C49 to adopt, with a finalizer": {sources: cms(src), have: foreign(adopt, plantest.Finalizer), state: StateForeign,
			note: "a foreign ConfigMap of this name is there, " +
				"and its finalizer example.com/keep keeps it from being handed over"},
	})
}

func TestDecideAboutAnUnwantedCopy(t *testing.T) {
	r := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform", "team-a", "team-b"} })
	src := plantest.Source("platform", "settings")
	elsewhere := plantest.Source("elsewhere", "settings", plantest.CreatedAt(1))
	have, others := plantest.Copy(r, src, "team-a"), plantest.Copy(r, elsewhere, "team-a")
	narrowed := func(key, value string) []*corev1.ConfigMap {
		return cms(plantest.Source("platform", "settings", plantest.Annotation(key, value)))
	}
	optedOut, outOfScope := plantest.Namespace("team-a", DefaultLabel, OptOutValue), plantest.Namespace("other")
	clone, tenants := plantest.Copy(r, src, "other"), plantest.Copy(r, plantest.Source("team-b", "settings"), "team-a")
	checkDecisions(t, r, map[string]decision{
		"C14 source gone": {have: have, op: OpDelete, why: SourceGone},
		"C14 source gone, another selects by labels": {sources: narrowed(SelectorAnnotation, "tier=gold"), have: tenants,
			op: OpDelete, why: SourceGone},
		"C14 narrowed by prefix": {sources: narrowed(PrefixAnnotation, "team-b"), have: have, op: OpDelete,
			why: ExcludedByPrefix},
		"C14 narrowed by labels": {sources: narrowed(SelectorAnnotation, "tier=gold"), have: have,
			op: OpDelete, why: ExcludedBySelector},
		"C02 labelled true": {have: plantest.Copy(r, src, "team-a", plantest.Label(DefaultLabel, SourceValue)), op: OpDelete,
			why: SourceGone},
		"C16 source being deleted": {sources: cms(plantest.Source("platform", "settings", plantest.Deleting)), have: have,
			op: OpDelete, why: SourceGone},
		"C31 opted out": {sources: cms(src), ns: optedOut, have: have, op: OpDelete, why: ExcludedByOptOut},

		"source out of scope, another takes over": {sources: cms(elsewhere, src), have: others, op: OpUpdate},
	})
	checkScope(t, r, ExcludedSource, map[string]decision{
		"C44 source out of scope":           {sources: cms(elsewhere), have: others},
		"C17 source out of scope, and gone": {have: others},
		"C44 source out of scope, opted out of others": {sources: cms(elsewhere, src), ns: optedOut,
			have: others},
	})
	checkScope(t, r, ExcludedName, map[string]decision{
		"C44 target out of scope":       {sources: cms(src), ns: outOfScope, have: clone},
		"C50 clone, its source is gone": {ns: outOfScope, have: clone},
	})
	excluded := plantest.Namespace("team-x1")
	checkScope(t, r, ExcludedExplicitly, map[string]decision{
		"C44 target is excluded": {sources: cms(src), ns: excluded, have: plantest.Copy(r, src, "team-x1")},
	})
}

// TestC62Held is the table of what the annotations rollout and paused hold: deploy/docs/staging.md is about them.
// Unless a row has more, a target is held. Case C74: the source that wins a target owns it, and the others that select
// it are superseded.
func TestC62Held(t *testing.T) {
	r, ns := testRules(), plantest.Namespace("team-a")
	paused, rollout := plantest.Annotation(PausedAnnotation, PausedValue),
		plantest.Annotation(RolloutAnnotation, "tier=canary")
	narrow := plantest.Annotation(PrefixAnnotation, "team-b")
	src := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o...) }
	changed := func(o ...plantest.Option) []*corev1.ConfigMap {
		return cms(src(append(o, plantest.Data("key", "changed"))...))
	}
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src(), "team-a", o...) }
	edited := have(plantest.Data("key", "x"))
	foreign := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.ConfigMap("team-a", "settings", o...) }
	canary := plantest.Namespace("team-a", "tier", "canary")
	optedOut := plantest.Namespace("team-a", DefaultLabel, OptOutValue)
	tenant := plantest.Source("team-b", "settings", plantest.CreatedAt(1))
	holding := plantest.Source("team-b", "settings", paused)
	elsewhere := plantest.Source("team-b", "settings", plantest.Annotation(PrefixAnnotation, "team-c"))
	theirs := plantest.Copy(r, tenant, "team-a")
	malformed := plantest.Source("team-b", "settings", plantest.Annotation(PrefixAnnotation, ""))
	held := func(sources []*corev1.ConfigMap, ns *corev1.Namespace, have *corev1.ConfigMap) decision {
		return decision{sources: sources, ns: ns, have: have, state: StateHeld}
	}
	because := func(d decision, why Exclusion) decision {
		d.why = why
		return d
	}
	first := func(d decision) decision { // of two that select the target
		d.behind = "team-b"
		return d
	}
	checkDecisions(t, r, map[string]decision{
		"a canary":                {sources: changed(rollout), ns: canary, have: have(), op: OpUpdate},
		"a canary, nothing there": {sources: changed(rollout), ns: canary, op: OpCreate},
		"outside":                 held(changed(rollout), ns, have()),
		"outside, nothing there":  held(changed(rollout), ns, nil),
		"outside, edited":         held(cms(src(rollout)), ns, edited),
		"outside, in sync":        {sources: cms(src(rollout)), have: have(), state: StateSynced},
		"outside, immutable":      held(changed(rollout), ns, have(plantest.Immutable)),
		"outside, being deleted":  held(changed(rollout), ns, have(plantest.Deleting)),
		"outside, foreign":        held(changed(rollout), ns, foreign()),
		"outside, handed over": held(changed(rollout), ns,
			foreign(plantest.Annotation(AdoptAnnotation, AdoptValue))),
		"outside, terminating":     {sources: changed(rollout), ns: plantest.Terminating("team-a"), have: have()},
		"paused wins over rollout": held(changed(paused, rollout), canary, have()),
		"matches everything": {sources: changed(plantest.Annotation(RolloutAnnotation, "")),
			have: have(), op: OpUpdate},
		"malformed": {sources: changed(plantest.Annotation(PausedAnnotation, "yes")),
			have: have(), state: StateFrozen},
		"narrowed":                         because(held(cms(src(paused, narrow)), ns, have()), ExcludedByPrefix),
		"opted out":                        because(held(cms(src(paused)), optedOut, have()), ExcludedByOptOut),
		"opted out, nothing there":         {sources: cms(src(paused)), ns: optedOut},
		"deleted":                          {have: have(), op: OpDelete, why: SourceGone},
		"C74 a forged source annotation":   {sources: cms(src(), holding), have: theirs, op: OpUpdate, behind: "team-b"},
		"C74 selects other namespaces":     {sources: cms(src(), elsewhere), have: theirs, op: OpUpdate, owner: "platform"},
		"C74 keeps its copy, ranked first": first(held(cms(src(paused), holding), ns, edited)),
		"C74 keeps its copy, alone": held(cms(plantest.Source("team-b", "settings", paused,
			plantest.Data("key", "changed"))), ns, theirs),
		"C74 narrowed, another waits": first(held(cms(src(paused, narrow), tenant), ns, have())),
		"C74 narrowed, nothing there": {sources: cms(src(paused, narrow), tenant), ns: ns, op: OpCreate, owner: "team-b"},
		"C74 narrowed, a copy of another": {sources: cms(src(paused, narrow), tenant), have: theirs,
			state: StateSynced, owner: "team-b"},
		"C74 narrowed, label removed": {sources: cms(src(paused, narrow)), have: have(plantest.Without(DefaultLabel))},
		"C74 narrowed, being deleted": {sources: cms(src(paused, narrow)), ns: ns, have: have(plantest.Deleting)},
		"keeps its target":            first(held(cms(src(paused), tenant), ns, nil)),
		"waits to take over":          first(held(cms(src(paused), tenant), ns, theirs)),
		"claims the copy of one gone": held(cms(src(paused)), ns, theirs),
		"C74 ranks behind, paused":    {sources: cms(src(), holding), have: edited, op: OpUpdate, behind: "team-b"},
		"without label, read live":    held(cms(src(paused)), ns, have(plantest.Without(DefaultLabel))),
		"reserved name":               {sources: cms(plantest.Source("platform", "kube-root-ca.crt", paused))},
		"its own namespace":           {sources: cms(plantest.Source("team-a", "settings", paused))},
		"narrowed, a canary": {sources: cms(src(rollout, narrow)), ns: canary, have: have(),
			op: OpDelete, why: ExcludedByPrefix},
		"C74 malformed, ranks behind":               held(cms(src(paused), malformed), ns, theirs),
		"C74 malformed, a forged source annotation": {sources: cms(src(), malformed), have: theirs, op: OpUpdate},
		"C74 malformed, the winner is gone": {sources: cms(malformed), have: theirs, state: StateFrozen,
			owner: "team-b"},
	})
	other, clone := plantest.Namespace("other"), plantest.Copy(r, src(), "other")
	outOfScope := because(held(cms(src(paused)), other, clone), ExcludedName)
	checkDecisions(t, testRules(func(o *Options) { o.Prune = true }),
		map[string]decision{"out of scope, --prune": outOfScope})
	outOfScope.state = StateOutOfScope
	checkDecisions(t, r, map[string]decision{"C44 out of scope": outOfScope})
}

// TestTargetNamespaces: those with an object, and those that the flags allow if the name has a source.
func TestTargetNamespaces(t *testing.T) {
	o := NewOptions()
	o.NamespacePrefixes, o.SourceNamespaces = []string{"team-"}, []string{"platform"}
	rules := NewRules(&o)
	namespaces, objects := slices.Values([]string{"platform", "team-a", "team-b", "dev"}),
		slices.Values([]string{"dev", "gone"})
	for name, tc := range map[string]struct {
		from string // the namespace of a source; empty: there is none
		want []string
	}{
		"no source":              {"", []string{"dev", "gone"}},
		"a source":               {"platform", []string{"dev", "gone", "team-a", "team-b"}},
		"a source of no concern": {"elsewhere", []string{"dev", "gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			var sources []*Source
			if tc.from != "" {
				sources = append(sources, rules.ParseSource(plantest.Source(tc.from, "settings")))
			}
			got := slices.Sorted(maps.Keys(rules.TargetNamespaces(NewView(sources), namespaces, objects)))
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStillUnwanted: the live read confirms a deletion, or not. A selector of the flags, or any source of the name,
// also one out of scope, makes labels decide.
func TestStillUnwanted(t *testing.T) {
	r, narrow := testRules(), testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} })
	pruning := testRules(func(o *Options) { o.SourceNamespaces, o.Prune = []string{"base"}, true })
	selecting := testRules(func(o *Options) { o.NamespaceSelector = "tier" })
	src := plantest.Source("platform", "settings")
	deletion := Change{CopyOf: KeyOf(src)}
	edited := func(o plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o) }
	a, gold, other := plantest.Namespace("team-a"), plantest.Namespace("team-a", "tier", "gold"),
		plantest.Namespace("other")
	out := plantest.Namespace("team-a", DefaultLabel, OptOutValue)
	canary := plantest.Namespace("team-a", DefaultLabel, OptOutValue, "tier", "canary")
	paused := edited(plantest.Annotation(PausedAnnotation, PausedValue))
	rollout := edited(plantest.Annotation(RolloutAnnotation, "tier=canary"))
	narrowed := cms(edited(plantest.Annotation(PrefixAnnotation, "team-z")))
	another := cms(plantest.Source("base", "settings", plantest.Annotation(SelectorAnnotation, "tier=gold")))
	for name, tc := range map[string]struct {
		rules  *Rules
		cached []*corev1.ConfigMap
		live   *corev1.ConfigMap
		ns     *corev1.Namespace
		want   bool
	}{
		"source gone":                      {r, narrowed, nil, a, true},
		"source unlabelled":                {r, narrowed, edited(plantest.Without(DefaultLabel)), a, true},
		"source narrowed":                  {r, narrowed, edited(plantest.Annotation(PrefixAnnotation, "team-b")), a, true},
		"C16 source being deleted":         {r, narrowed, edited(plantest.Deleting), a, true},
		"C41 source is there":              {r, narrowed, src, a, false},
		"C31 source frozen meanwhile":      {r, narrowed, edited(plantest.Annotation(PrefixAnnotation, "")), a, false},
		"C31 opted out":                    {r, narrowed, src, out, true},
		"C41 no longer opted out":          {r, narrowed, src, plantest.Namespace("team-a", DefaultLabel, "x"), false},
		"C62 paused meanwhile":             {r, narrowed, paused, out, false},
		"C62 held by rollout":              {r, narrowed, rollout, out, false},
		"C62 not held by rollout":          {r, narrowed, rollout, canary, true},
		"C17 source out of scope":          {narrow, narrowed, nil, a, false},
		"C17 source out of scope, --prune": {pruning, narrowed, nil, a, true},
		"C17 source there, --prune":        {pruning, narrowed, src, a, true},
		"C50 target out of scope":          {r, narrowed, nil, other, false},
		"C17 target out of scope, --prune": {pruning, narrowed, nil, other, true},
		"C41 no longer out of scope":       {selecting, narrowed, src, gold, false},
		"C51 not selected":                 {selecting, narrowed, src, a, false},
		"C41 another source claims":        {r, another, nil, gold, false},
		"C41 another source does not":      {r, another, nil, a, true},
		"C41 the cache shows no source":    {r, nil, src, out, false}, // nor perhaps the labels
		"no source, and a selector":        {selecting, nil, nil, gold, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(tc.rules, tc.cached...)
			if got := tc.rules.StillUnwanted(deletion, v, tc.live, tc.ns); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got, want := tc.rules.DependsOnLabels(v), tc.cached != nil || tc.rules == selecting; got != want {
				t.Errorf("got labels that decide %v, want %v", got, want)
			}
		})
	}
}
