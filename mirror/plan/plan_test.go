package plan

import (
	"slices"
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

	op       Op
	state    State
	why      Exclusion
	byLabels bool
	withheld Op
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
			c := r.Decide(viewOf(r, tc.sources...), tgt)
			if c.Op != tc.op || c.State != tc.state || c.Why.Rule != tc.why || c.ByLabels != tc.byLabels || c.Withheld != tc.withheld {
				t.Errorf("got %v, %v, why %v, by labels %v, withheld %v; want %v, %v, why %v, by labels %v, withheld %v",
					c.Op, c.State, c.Why, c.ByLabels, c.Withheld, tc.op, tc.state, tc.why, tc.byLabels, tc.withheld)
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

func cms(list ...*corev1.ConfigMap) []*corev1.ConfigMap { return list }

func TestDecideAboutACopy(t *testing.T) {
	r := testRules()
	src, unchangeable := plantest.Source("platform", "settings"), plantest.Source("platform", "settings", plantest.Immutable)
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	frozen := plantest.Source("platform", "settings", plantest.Annotation(PrefixAnnotation, "Team"))
	tenant := plantest.Source("team-b", "settings", plantest.CreatedAt(1), plantest.Data("key", "theirs"))
	optedOut, other := plantest.Namespace("team-a", DefaultLabel, OptOutValue), plantest.Namespace("other")
	checkDecisions(t, r, map[string]decision{
		"nothing there":                       {sources: cms(src), op: OpCreate},
		"C01 own namespace":                   {sources: cms(plantest.Source("team-a", "settings"))},
		"C05 reserved name":                   {sources: cms(plantest.Source("platform", "kube-root-ca.crt"))},
		"excluded namespace":                  {sources: cms(src), ns: plantest.Namespace("team-x1")},
		"namespace absent from the cache":     {sources: cms(src), absent: true},
		"absent, with a copy":                 {absent: true, have: have()},
		"C28 namespace terminating":           {sources: cms(src), ns: plantest.Terminating("team-a")},
		"C28 terminating, with a copy":        {ns: plantest.Terminating("team-a"), have: have()},
		"C47 labels not in the cache":         {sources: cms(src), ns: truncated("team-a")},
		"C47 with a copy of no source":        {ns: truncated("team-a"), have: have()},
		"in sync":                             {sources: cms(src), have: have(), state: StateSynced},
		"C19 edited data, checksum untouched": {sources: cms(src), have: have(plantest.Data("key", "edited")), op: OpUpdate},
		"C02 copy labelled true":              {sources: cms(src), have: have(plantest.Label(DefaultLabel, SourceValue)), op: OpUpdate},
		"C08 label removed, read live":        {sources: cms(src), have: have(plantest.Without(DefaultLabel)), op: OpUpdate},
		"C43 label removed, unwanted":         {have: have(plantest.Without(DefaultLabel))},
		"C43 another label value, unwanted":   {have: have(plantest.Label(DefaultLabel, "no"))},
		"C43 label removed, opted out":        {sources: cms(src), ns: optedOut, have: have(plantest.Without(DefaultLabel))},
		"C43 label removed, out of scope":     {sources: cms(src), ns: other, have: plantest.Copy(r, src, "other", plantest.Without(DefaultLabel))},
		"C22 immutable, other data":           {sources: cms(src), have: have(plantest.Immutable, plantest.Data("key", "old")), op: OpRecreate},
		"C23 made immutable, equal data":      {sources: cms(src), have: have(plantest.Immutable), op: OpRecreate},
		"C22 made immutable at the source":    {sources: cms(unchangeable), have: have(), op: OpUpdate},
		"C22 immutable both, metadata differs": {sources: cms(unchangeable), op: OpUpdate,
			have: plantest.Copy(r, unchangeable, "team-a", plantest.Without(ManagedByLabel))},
		"C24 copy being deleted":               {sources: cms(src), have: have(plantest.Deleting), state: StatePending},
		"C24 being deleted, unwanted":          {have: have(plantest.Deleting), state: StatePending},
		"C31 frozen, nothing there":            {sources: cms(frozen)},
		"C31 frozen, copy drifted":             {sources: cms(frozen), have: have(plantest.Data("key", "x")), state: StateFrozen},
		"C31 frozen, opted out":                {sources: cms(frozen), ns: optedOut, have: have(), state: StateFrozen},
		"C31 frozen, label removed, read live": {sources: cms(frozen, tenant), have: have(plantest.Without(DefaultLabel)), state: StateFrozen},
		"C31 frozen, keeps its copy":           {sources: cms(frozen, tenant), have: have(), state: StateFrozen},
		"C31 frozen, another takes free place": {sources: cms(frozen, tenant), op: OpCreate},
		"C03 superseded source's copy":         {sources: cms(src, tenant), have: plantest.Copy(r, tenant, "team-a"), op: OpUpdate},
		"C03 the winner's copy stays":          {sources: cms(src, tenant), have: have(), state: StateSynced},
		"C03 the loser takes over in place":    {sources: cms(tenant), have: have(), op: OpUpdate},
	})
}

func TestDecideByNamespaceSelector(t *testing.T) {
	r := testRules(func(o *Options) { o.NamespaceSelector = "tier in (gold,silver),!internal" })
	src := plantest.Source("platform", "settings")
	narrowed := plantest.Source("platform", "settings", plantest.Annotation(SelectorAnnotation, "tier=silver"))
	gold, none := plantest.Namespace("team-a", "tier", "gold"), plantest.Namespace("team-a")
	internal := plantest.Namespace("team-a", "tier", "gold", "internal", "")
	optedOut := plantest.Namespace("team-a", DefaultLabel, OptOutValue)
	have := plantest.Copy(r, src, "team-a")
	cases := map[string]decision{
		"selected":                      {sources: cms(src), ns: gold, op: OpCreate},
		"not selected":                  {sources: cms(src), ns: none},
		"ruled out":                     {sources: cms(src), ns: internal},
		"narrowed by the source, too":   {sources: cms(narrowed), ns: gold, have: have, op: OpDelete, why: ExcludedBySelector, byLabels: true},
		"selected, but its source went": {ns: gold, have: have, op: OpDelete, why: SourceGone, byLabels: true},
		"not selected, another's copy":  {sources: cms(src), ns: none, have: plantest.ConfigMap("team-a", "settings")},
	}
	outOfScope := map[string]decision{
		"no longer selected":                {sources: cms(src), ns: none, have: have},
		"C51 no longer selected, opted out": {sources: cms(src), ns: optedOut, have: have},
		"no longer selected, source gone":   {ns: none, have: have},
	}
	checkDecisions(t, r, cases)
	checkScope(t, r, ExcludedByNamespaceSelector, outOfScope)
}

// checkScope checks that --namespace-selector or another flag rules the copies out: they stay, and with --prune they are
// deleted.
func checkScope(t *testing.T, r *Rules, why Exclusion, cases map[string]decision) {
	t.Helper()
	pruning := *r
	pruning.prune = true
	for name, tc := range cases {
		byLabels := tc.byLabels || !r.selector.Empty()
		tc.state, tc.why, tc.byLabels = StateOutOfScope, why, false
		checkDecisions(t, r, map[string]decision{name: tc})
		tc.op, tc.state, tc.byLabels = OpDelete, StateNone, byLabels
		checkDecisions(t, &pruning, map[string]decision{name + ", --prune": tc})
	}
}

// TestC51LabelsDoNotOutrank: a tenant who removes a label from their own namespace under --namespace-selector does not make it
// a platform namespace.
func TestC51LabelsDoNotOutrank(t *testing.T) {
	r := testRules(func(o *Options) { o.NamespaceSelector = "tier" })
	platform, tenant := plantest.Source("platform", "settings", plantest.CreatedAt(2)), plantest.Source("team-b", "settings", plantest.CreatedAt(1))
	c := decideAt(r, viewOf(r, tenant, platform), plantest.Namespace("team-a", "tier", "gold"), nil)
	if c.Source == nil || c.Source.Key.Namespace != "platform" {
		t.Errorf("got the source %v, want the platform's", c.Source)
	}
}

func TestDecideAboutAForeignObject(t *testing.T) {
	r, other := testRules(), testRules(func(o *Options) { o.Instance = "other" })
	src, tenant := plantest.Source("platform", "settings"), plantest.Source("team-b", "settings")
	unchangeable := plantest.Source("platform", "settings", plantest.Immutable)
	adopt := plantest.Annotation(AdoptAnnotation, AdoptValue)
	foreign := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.ConfigMap("team-a", "settings", slices.Concat([]plantest.Option{plantest.Data("key", "mine")}, o)...)
	}
	released := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	checkDecisions(t, r, map[string]decision{
		"C11 foreign":                             {sources: cms(src), have: foreign(), state: StateForeign},
		"C11 foreign, unwanted":                   {have: foreign()},
		"C08 released: no source annotation":      {sources: cms(src), have: released(plantest.Without(SourceAnnotation)), state: StateForeign},
		"C08 released: no copy annotation":        {sources: cms(src), have: released(plantest.Without(CopyAnnotation)), state: StateForeign},
		"C08 released: no instance annotation":    {sources: cms(src), have: released(plantest.Without(InstanceAnnotation)), state: StateForeign},
		"C06 copy of another namespace":           {sources: cms(src), have: released(plantest.Annotation(CopyAnnotation, "team-c/settings")), state: StateForeign},
		"C06 copy of another namespace, unwanted": {have: released(plantest.Annotation(CopyAnnotation, "team-c/settings"))},
		"C07 source annotation of another name":   {have: released(plantest.Annotation(SourceAnnotation, "platform/other"))},
		"C07 source annotation no namespace name": {have: released(plantest.Annotation(SourceAnnotation, "Platform/settings"))},
		"C07 its own source":                      {have: released(plantest.Annotation(SourceAnnotation, "team-a/settings"))},
		"C10 copy of another instance":            {sources: cms(src), have: plantest.Copy(other, src, "team-a"), state: StateForeign},
		"C10 of another instance, to adopt":       {sources: cms(src), have: plantest.Copy(other, src, "team-a", adopt), state: StateForeign},
		"C04 target is a source itself":           {sources: cms(src, tenant), ns: plantest.Namespace("team-b"), have: tenant, state: StateForeign},
		"C12 adopted":                             {sources: cms(src), have: foreign(adopt), op: OpUpdate},
		"C12 adopted, immutable":                  {sources: cms(src), have: foreign(adopt, plantest.Immutable), op: OpRecreate},
		"C12 adopted, immutable, equal content": {sources: cms(unchangeable), op: OpUpdate,
			have: foreign(adopt, plantest.Data("key", "value"), plantest.Immutable)},
		"C12 adopted, being deleted":    {sources: cms(src), have: foreign(adopt, plantest.Deleting), state: StatePending},
		"C12 adopted, unwanted":         {have: foreign(adopt)},
		"C12 adopt is not true":         {sources: cms(src), have: foreign(plantest.Annotation(AdoptAnnotation, "yes")), state: StateForeign},
		"C49 adopted, with a finalizer": {sources: cms(src), have: foreign(adopt, plantest.Finalizer), state: StateForeign},
		"C12 a source is not adopted":   {sources: cms(src), have: foreign(adopt, plantest.Label(DefaultLabel, SourceValue)), state: StateForeign},
		"C02 a released copy is never a source": {sources: cms(src), op: OpUpdate,
			have: released(plantest.Without(SourceAnnotation), adopt, plantest.Label(DefaultLabel, SourceValue))},
	})
}

// TestDecideAboutAnUnwantedCopy is the table of decideUnwanted.
func TestDecideAboutAnUnwantedCopy(t *testing.T) {
	r := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform", "team-a", "team-b"} })
	src := plantest.Source("platform", "settings")
	elsewhere := plantest.Source("elsewhere", "settings", plantest.CreatedAt(1))
	have, others := plantest.Copy(r, src, "team-a"), plantest.Copy(r, elsewhere, "team-a")
	narrowed := func(key, value string) []*corev1.ConfigMap {
		return cms(plantest.Source("platform", "settings", plantest.Annotation(key, value)))
	}
	optedOut, outOfScope := plantest.Namespace("team-a", DefaultLabel, OptOutValue), plantest.Namespace("other")
	clone := plantest.Copy(r, src, "other")
	checkDecisions(t, r, map[string]decision{
		"C14 source gone": {have: have, op: OpDelete, why: SourceGone},
		"C14 source gone, another selects by labels": {sources: narrowed(SelectorAnnotation, "tier=gold"), op: OpDelete, why: SourceGone,
			byLabels: true, have: plantest.Copy(r, plantest.Source("team-b", "settings"), "team-a")},
		"C16 source being deleted": {sources: cms(plantest.Source("platform", "settings", plantest.Deleting)), have: have,
			op: OpDelete, why: SourceGone},
		"C14 not selected by prefix":   {sources: narrowed(PrefixAnnotation, "team-b"), have: have, op: OpDelete, why: ExcludedByPrefix},
		"C14 not selected by labels":   {sources: narrowed(SelectorAnnotation, "tier=gold"), have: have, op: OpDelete, why: ExcludedBySelector, byLabels: true},
		"C31 opted out":                {sources: cms(src), ns: optedOut, have: have, op: OpDelete, why: ExcludedByOptOut, byLabels: true},
		"C31 opted out, nothing there": {sources: cms(src), ns: optedOut},

		"source out of scope, another takes over": {sources: cms(elsewhere, src), have: others, op: OpUpdate},
		"source out of scope, nothing there":      {sources: cms(elsewhere)},
	})
	checkScope(t, r, ExcludedSource, map[string]decision{
		"C44 source out of scope":                      {sources: cms(elsewhere), have: others},
		"C17 source out of scope, and gone":            {have: others},
		"C44 source out of scope, opted out of others": {sources: cms(elsewhere, src), ns: optedOut, have: others, byLabels: true},
	})
	checkScope(t, r, ExcludedName, map[string]decision{
		"C44 target out of scope":       {sources: cms(src), ns: outOfScope, have: clone},
		"C50 clone, its source is gone": {ns: outOfScope, have: clone},
	})
}

// TestC62Held is the section "A change in stages", row by row.
func TestC62Held(t *testing.T) {
	r := testRules()
	paused := plantest.Annotation(PausedAnnotation, PausedValue)
	rollout := plantest.Annotation(RolloutAnnotation, "tier=canary")
	src := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "settings", o...) }
	have := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src(), "team-a", o...) }
	changed := func(o ...plantest.Option) []*corev1.ConfigMap {
		return cms(src(append(o, plantest.Data("key", "changed"))...))
	}
	canary, optedOut := plantest.Namespace("team-a", "tier", "canary"), plantest.Namespace("team-a", DefaultLabel, OptOutValue)
	tenant := plantest.Source("team-b", "settings", plantest.CreatedAt(1))
	checkDecisions(t, r, map[string]decision{
		"rollout, matches":             {sources: changed(rollout), ns: canary, have: have(), op: OpUpdate},
		"rollout, nothing there":       {sources: changed(rollout), ns: canary, op: OpCreate},
		"outside":                      {sources: changed(rollout), have: have(), state: StateHeld, withheld: OpUpdate},
		"outside, nothing there":       {sources: changed(rollout), state: StateHeld, withheld: OpCreate},
		"outside, edited":              {sources: cms(src(rollout)), have: have(plantest.Data("key", "x")), state: StateHeld, withheld: OpUpdate},
		"outside, in sync":             {sources: cms(src(rollout)), have: have(), state: StateSynced},
		"outside, immutable":           {sources: changed(rollout), have: have(plantest.Immutable), state: StateHeld, withheld: OpRecreate},
		"outside, being deleted":       {sources: changed(rollout), have: have(plantest.Deleting), state: StateHeld},
		"outside, foreign":             {sources: changed(rollout), have: plantest.ConfigMap("team-a", "settings"), state: StateHeld},
		"outside, handed over":         {sources: changed(rollout), have: plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, AdoptValue)), state: StateHeld, withheld: OpUpdate},
		"outside, terminating":         {sources: changed(rollout), ns: plantest.Terminating("team-a"), have: have()},
		"paused":                       {sources: changed(paused), ns: canary, have: have(), state: StateHeld, withheld: OpUpdate},
		"paused wins over rollout":     {sources: changed(paused, rollout), ns: canary, have: have(), state: StateHeld, withheld: OpUpdate},
		"matches everything":           {sources: changed(plantest.Annotation(RolloutAnnotation, "")), have: have(), op: OpUpdate},
		"paused, malformed: frozen":    {sources: changed(plantest.Annotation(PausedAnnotation, "yes")), have: have(), state: StateFrozen},
		"rollout, malformed: frozen":   {sources: changed(plantest.Annotation(RolloutAnnotation, "a=b=c")), have: have(), state: StateFrozen},
		"narrowed by prefix":           {sources: cms(src(paused, plantest.Annotation(PrefixAnnotation, "team-b"))), have: have(), state: StateHeld, withheld: OpDelete, why: ExcludedByPrefix},
		"narrowed, matches":            {sources: cms(src(rollout, plantest.Annotation(PrefixAnnotation, "team-b"))), ns: canary, have: have(), op: OpDelete, why: ExcludedByPrefix, byLabels: true},
		"opted out":                    {sources: cms(src(paused)), ns: optedOut, have: have(), state: StateHeld, withheld: OpDelete, why: ExcludedByOptOut},
		"opted out, nothing there":     {sources: cms(src(paused)), ns: optedOut},
		"deleted":                      {have: have(), op: OpDelete, why: SourceGone},
		"keeps its copy":               {sources: cms(src(), plantest.Source("team-b", "settings", paused)), have: plantest.Copy(r, tenant, "team-a"), state: StateHeld, withheld: OpUpdate},
		"keeps its target":             {sources: cms(src(paused), tenant), state: StateHeld, withheld: OpCreate},
		"waits to take over":           {sources: cms(src(paused), tenant), have: plantest.Copy(r, tenant, "team-a"), state: StateHeld, withheld: OpUpdate},
		"claims the copy of one gone":  {sources: cms(src(paused)), have: plantest.Copy(r, tenant, "team-a"), state: StateHeld, withheld: OpUpdate},
		"a loser that is held":         {sources: cms(src(), plantest.Source("team-b", "settings", paused)), have: have(plantest.Data("key", "x")), op: OpUpdate},
		"without label, read live":     {sources: cms(src(paused)), have: have(plantest.Without(DefaultLabel)), state: StateHeld, withheld: OpUpdate},
		"reserved name":                {sources: cms(plantest.Source("platform", "kube-root-ca.crt", paused))},
		"its own namespace":            {sources: cms(plantest.Source("team-a", "settings", paused))},
		"C47 labels not in the cache":  {sources: changed(rollout), ns: truncated("team-a"), have: have()},
		"C44 target out of scope":      {sources: cms(src(paused)), ns: plantest.Namespace("other"), have: plantest.Copy(r, src(), "other"), state: StateOutOfScope, why: ExcludedName},
		"frozen source keeps its copy": {sources: cms(src(paused), plantest.Source("team-b", "settings", plantest.Annotation(PrefixAnnotation, ""))), have: plantest.Copy(r, tenant, "team-a"), state: StateFrozen},
	})
	pruning := testRules(func(o *Options) { o.Prune = true })
	checkDecisions(t, pruning, map[string]decision{
		"out of scope, --prune": {sources: cms(src(paused)), ns: plantest.Namespace("other"), have: plantest.Copy(r, src(), "other"),
			state: StateHeld, withheld: OpDelete, why: ExcludedName},
	})
}

// TestC62CountsFor: a held target counts for the source that holds it, and that source is not superseded there.
func TestC62CountsFor(t *testing.T) {
	r, ns := testRules(), plantest.Namespace("team-a")
	paused := plantest.Annotation(PausedAnnotation, PausedValue)
	platform, tenant := plantest.Source("platform", "settings"), plantest.Source("team-b", "settings", paused)
	v := viewOf(r, platform, tenant)
	target := Target{Key: keyIn("team-a"), Namespace: ns, Have: plantest.Copy(r, tenant, "team-a", plantest.Data("key", "x"))}
	c := r.Decide(v, target)
	if got := c.CountsFor().Namespace; got != "team-b" {
		t.Errorf("the copy of a source that holds it: got it counted for %s, want team-b", got)
	}
	if got := namespaces(r.Superseded(v, target, c)); !slices.Equal(got, []string{"platform"}) {
		t.Errorf("got superseded %v, want platform", got)
	}
	want := `team-b/settings holds the target, which stays as it is, by the annotation mirror-controller.github.io/paused="true"`
	if got := r.Reason(v, target, c); got != want {
		t.Errorf("got reason %q, want %q", got, want)
	}

	v = viewOf(r, plantest.Source("platform", "settings", paused), plantest.Source("team-b", "settings"))
	c = r.Decide(v, target)
	if got := c.CountsFor().Namespace; got != "platform" {
		t.Errorf("the winner holds: got the target counted for %s, want platform", got)
	}
	if got := namespaces(r.Superseded(v, target, c)); !slices.Equal(got, []string{"team-b"}) {
		t.Errorf("the winner holds: got superseded %v, want team-b", got)
	}
}
