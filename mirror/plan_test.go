package mirror

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testRules mirror into team-*, but not into team-x*.
func testRules(edit ...func(*Options)) *rules {
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	o.ExcludeNamespaces = []string{"team-x*"}
	for _, e := range edit {
		e(o)
	}
	return newRules(o)
}

type cmOption func(*corev1.ConfigMap)

func configMap(namespace, name string, options ...cmOption) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "uid-" + "1", ResourceVersion: "7",
		CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
		Labels:            map[string]string{}, Annotations: map[string]string{},
	}}
	for _, o := range options {
		o(cm)
	}
	return cm
}

func label(k, v string) cmOption      { return func(cm *corev1.ConfigMap) { cm.Labels[k] = v } }
func annotation(k, v string) cmOption { return func(cm *corev1.ConfigMap) { cm.Annotations[k] = v } }
func data(k, v string) cmOption {
	return func(cm *corev1.ConfigMap) {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[k] = v
	}
}
func without(key string) cmOption {
	return func(cm *corev1.ConfigMap) { delete(cm.Labels, key); delete(cm.Annotations, key) }
}
func immutable(cm *corev1.ConfigMap) { yes := true; cm.Immutable = &yes }
func deleting(cm *corev1.ConfigMap)  { now := metav1.Now(); cm.DeletionTimestamp = &now }
func createdAt(seconds int64) cmOption {
	return func(cm *corev1.ConfigMap) { cm.CreationTimestamp = metav1.NewTime(time.Unix(seconds, 0)) }
}

func sourceCM(namespace, name string, options ...cmOption) *corev1.ConfigMap {
	return configMap(namespace, name, append([]cmOption{label(DefaultLabel, SourceValue), data("key", "value")}, options...)...)
}

// copyCM returns the copy of src in namespace as the API server has it after it was written, edited.
func copyCM(r *rules, src *corev1.ConfigMap, namespace string, options ...cmOption) *corev1.ConfigMap {
	cm := r.desired(r.readSource(src), namespace, nil).DeepCopy()
	cm.UID, cm.ResourceVersion = "uid-copy", "9"
	for _, o := range options {
		o(cm)
	}
	return cm
}

func namespace(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

func viewOf(r *rules, name string, sources ...*corev1.ConfigMap) view {
	v := view{
		name:     name,
		prunable: func(*corev1.ConfigMap) bool { return false },
	}
	for _, cm := range sources {
		switch {
		case r.isSource(cm):
			v.sources = append(v.sources, r.readSource(cm))
		case r.asksToBeMirrored(cm):
			v.outsiders = append(v.outsiders, r.readSource(cm))
		}
	}
	sortSources(v.sources)
	return v
}

func TestDecide(t *testing.T) {
	r := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform", "team-a", "team-b"} })
	other := testRules(func(o *Options) { o.Instance = "other" })
	src := sourceCM("platform", "settings")
	elsewhere := sourceCM("elsewhere", "settings", createdAt(1))
	tenant := sourceCM("team-b", "settings", createdAt(1), data("key", "theirs"))
	frozen := sourceCM("platform", "settings", annotation(PrefixAnnotation, "Team"))
	foreign := func(o ...cmOption) *corev1.ConfigMap {
		return configMap("team-a", "settings", append([]cmOption{data("key", "mine")}, o...)...)
	}
	dying := namespace("team-a")
	dying.Status.Phase = corev1.NamespaceTerminating
	a := namespace("team-a")
	out := namespace("team-a", DefaultLabel, OptOutValue)

	for name, tc := range map[string]struct {
		sources  []*corev1.ConfigMap
		ns       *corev1.Namespace
		at       string // namespace of the target; team-a if empty
		have     *corev1.ConfigMap
		vanished bool
		prunable bool
		op       op
		outcome  outcome
		premise  premise
	}{
		"nothing there":                   {sources: cms(src), ns: a, op: opCreate},
		"C01 own namespace":               {sources: cms(sourceCM("team-a", "settings")), ns: a},
		"namespace absent from the cache": {sources: cms(src)},
		"absent, with a copy":             {have: copyCM(r, src, "team-a")},
		"C28 namespace terminating":       {sources: cms(src), ns: dying},
		"terminating, with a copy":        {ns: dying, have: copyCM(r, src, "team-a")},
		"C31 opted out, nothing there":    {sources: cms(src), ns: out},
		"C31 opted out, with a copy": {sources: cms(src), ns: out, have: copyCM(r, src, "team-a"),
			op: opDelete, premise: premise{source: true, namespace: true}},
		"in line": {sources: cms(src), ns: a, have: copyCM(r, src, "team-a"), outcome: outcomeSynced},
		"C19 edited data, checksum untouched": {sources: cms(src), ns: a,
			have: copyCM(r, src, "team-a", editData("key", "edited")), op: opUpdate},
		"C19 extra key": {sources: cms(src), ns: a, have: copyCM(r, src, "team-a", editData("more", "")), op: opUpdate},
		"C19 removed key": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", func(cm *corev1.ConfigMap) { cm.Data = nil })},
		"edited checksum": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", annotation(ChecksumAnnotation, "sha256:00"))},
		"C02 copy labelled true": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", label(DefaultLabel, SourceValue))},
		"C08 label stripped, read live": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", without(DefaultLabel))},
		"managed-by removed": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", without(ManagedByLabel))},
		"adopt on a copy": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", annotation(AdoptAnnotation, AdoptValue))},
		"C08 released: source annotation gone": {sources: cms(src), ns: a, outcome: outcomeForeign,
			have: copyCM(r, src, "team-a", without(SourceAnnotation))},
		"C08 released: copy annotation gone": {sources: cms(src), ns: a, outcome: outcomeForeign,
			have: copyCM(r, src, "team-a", without(CopyAnnotation))},
		"C08 released: instance annotation gone": {sources: cms(src), ns: a, outcome: outcomeForeign,
			have: copyCM(r, src, "team-a", without(InstanceAnnotation))},
		"C06 copy of another namespace": {sources: cms(src), ns: a, outcome: outcomeForeign,
			have: copyCM(r, src, "team-a", annotation(CopyAnnotation, "team-c/settings"))},
		"C06 unwanted": {ns: a, have: copyCM(r, src, "team-a", annotation(CopyAnnotation, "team-c/settings"))},
		"C07 source annotation of another name": {ns: a,
			have: copyCM(r, src, "team-a", annotation(SourceAnnotation, "platform/other"))},
		"C07 its own source": {ns: a,
			have: copyCM(r, src, "team-a", annotation(SourceAnnotation, "team-a/settings"))},
		"C10 copy of another instance": {sources: cms(src), ns: a, have: copyCM(other, src, "team-a"), outcome: outcomeForeign},
		"C10 of another instance, to adopt": {sources: cms(src), ns: a, outcome: outcomeForeign,
			have: copyCM(other, src, "team-a", annotation(AdoptAnnotation, AdoptValue))},
		"C11 foreign":           {sources: cms(src), ns: a, have: foreign(), outcome: outcomeForeign},
		"foreign, unwanted":     {ns: a, have: foreign()},
		"C12 adopted":           {sources: cms(src), ns: a, have: foreign(annotation(AdoptAnnotation, "true")), op: opUpdate},
		"adopt is not true":     {sources: cms(src), ns: a, have: foreign(annotation(AdoptAnnotation, "yes")), outcome: outcomeForeign},
		"adopted, unwanted":     {ns: a, have: foreign(annotation(AdoptAnnotation, "true"))},
		"C12 adopted immutable": {sources: cms(src), ns: a, have: foreign(annotation(AdoptAnnotation, "true"), immutable), op: opRecreate},
		"C12 adopted immutable, the same content": {sources: cms(sourceCM("platform", "settings", immutable)), ns: a, op: opUpdate,
			have: foreign(annotation(AdoptAnnotation, "true"), editData("key", "value"), immutable)},
		"a source is not adopted": {sources: cms(src), ns: a, outcome: outcomeForeign,
			have: foreign(annotation(AdoptAnnotation, "true"), label(DefaultLabel, SourceValue))},
		"C02 what names itself as a copy is no source": {sources: cms(src), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a", without(SourceAnnotation), annotation(AdoptAnnotation, "true"), label(DefaultLabel, SourceValue))},
		"C04 target is a source itself":              {sources: cms(src, tenant), at: "team-b", ns: namespace("team-b"), have: tenant, outcome: outcomeForeign},
		"C03 superseded source's copy is taken over": {sources: cms(src, tenant), ns: a, have: copyCM(r, tenant, "team-a"), op: opUpdate},
		"C03 the winner's copy stays":                {sources: cms(src, tenant), ns: a, have: copyCM(r, src, "team-a"), outcome: outcomeSynced},
		"C03 the loser takes over in place":          {sources: cms(tenant), ns: a, have: copyCM(r, src, "team-a"), op: opUpdate},
		"C14 source gone":                            {ns: a, have: copyCM(r, src, "team-a"), op: opDelete, premise: premise{source: true}},
		"C14 narrowed away by prefix": {sources: cms(sourceCM("platform", "settings", annotation(PrefixAnnotation, "team-b"))),
			ns: a, have: copyCM(r, src, "team-a"), op: opDelete, premise: premise{source: true}},
		"C14 narrowed away by selector": {sources: cms(sourceCM("platform", "settings", annotation(SelectorAnnotation, "tier=gold"))),
			ns: a, have: copyCM(r, src, "team-a"), op: opDelete, premise: premise{source: true, namespace: true}},
		"C16 source being deleted": {sources: cms(sourceCM("platform", "settings", deleting)), ns: a,
			have: copyCM(r, src, "team-a"), op: opDelete, premise: premise{source: true}},
		"C14 outside the flags, judged": {sources: cms(src), at: "other", ns: namespace("other"), have: copyCM(r, src, "other"),
			prunable: true, op: opDelete},
		"C44 outside the flags, not judged": {sources: cms(src), at: "other", ns: namespace("other"), have: copyCM(r, src, "other"),
			outcome: outcomeStranger},
		"C41 outside the source namespaces, judged, opted out of another's": {sources: cms(elsewhere, src), ns: out,
			have: copyCM(r, elsewhere, "team-a"), prunable: true, op: opDelete, premise: premise{namespace: true}},
		"C14 outside the source namespaces, judged": {sources: cms(elsewhere), ns: a, have: copyCM(r, elsewhere, "team-a"),
			prunable: true, op: opDelete},
		"C44 outside the source namespaces, not judged": {sources: cms(elsewhere), ns: a, have: copyCM(r, elsewhere, "team-a"),
			outcome: outcomeStranger},
		"outside the source namespaces, another takes over": {sources: cms(elsewhere, src), ns: a,
			have: copyCM(r, elsewhere, "team-a"), op: opUpdate},
		"outside the source namespaces, nothing there": {sources: cms(elsewhere), ns: a},
		"excluded namespace":                           {sources: cms(src), at: "team-x1", ns: namespace("team-x1")},
		"outside the flags, source gone": {at: "other", ns: namespace("other"), have: copyCM(r, src, "other"),
			op: opDelete, premise: premise{source: true}},
		"C22 immutable, other data": {sources: cms(src), ns: a, op: opRecreate,
			have: copyCM(r, src, "team-a", immutable, editData("key", "old"))},
		"C23 made immutable, data the same": {sources: cms(src), ns: a, have: copyCM(r, src, "team-a", immutable), op: opRecreate},
		"C22 immutable both, metadata differs": {sources: cms(sourceCM("platform", "settings", immutable)), ns: a, op: opUpdate,
			have: copyCM(r, sourceCM("platform", "settings", immutable), "team-a", without(ManagedByLabel))},
		"C22 made immutable at the source": {sources: cms(sourceCM("platform", "settings", immutable)), ns: a, op: opUpdate,
			have: copyCM(r, src, "team-a")},
		"C24 copy being deleted":           {sources: cms(src), ns: a, have: copyCM(r, src, "team-a", deleting), outcome: outcomePending},
		"C24 being deleted, unwanted":      {ns: a, have: copyCM(r, src, "team-a", deleting), outcome: outcomePending},
		"C43 vanished, unwanted":           {ns: a, vanished: true, op: opLook},
		"C43 vanished, wanted":             {sources: cms(src), ns: a, vanished: true, op: opCreate},
		"C31 frozen, nothing there":        {sources: cms(frozen), ns: a},
		"C31 frozen, copy drifted":         {sources: cms(frozen), ns: a, have: copyCM(r, src, "team-a", editData("key", "x")), outcome: outcomeFrozen},
		"C31 frozen, namesake keeps off":   {sources: cms(frozen, tenant), ns: a, have: copyCM(r, src, "team-a"), outcome: outcomeFrozen},
		"C31 frozen, nothing for it there": {sources: cms(frozen, tenant), ns: a, op: opCreate},
		"C31 frozen, opted out":            {sources: cms(frozen), ns: out, have: copyCM(r, src, "team-a"), outcome: outcomeFrozen},
		"C05 reserved":                     {sources: cms(sourceCM("platform", "kube-root-ca.crt")), ns: a},
	} {
		t.Run(name, func(t *testing.T) {
			objectName := "settings"
			if len(tc.sources) > 0 {
				objectName = tc.sources[0].Name
			}
			v := viewOf(r, objectName, tc.sources...)
			v.prunable = func(*corev1.ConfigMap) bool { return tc.prunable }
			at := tc.at
			if at == "" {
				at = "team-a"
			}
			have := tc.have
			if have != nil {
				have = have.DeepCopy()
				r.strip(have) // as the cache holds it
			}
			changes := r.plan(v, []target{{namespace: at, object: tc.ns, have: have, vanished: tc.vanished}})
			c := changes[0]
			if c.op != tc.op || c.outcome != tc.outcome || c.premise != tc.premise || c.byFlags != tc.prunable {
				t.Errorf("got %v, outcome %v, premise %+v, by flags %v; want %v, outcome %v, premise %+v, by flags %v",
					c.op, c.outcome, c.premise, c.byFlags, tc.op, tc.outcome, tc.premise, tc.prunable)
			}
			if c.op != opNone && c.op != opCreate && c.op != opLook && c.have != have {
				t.Errorf("have is not the object that was judged")
			}
		})
	}
}

func cms(list ...*corev1.ConfigMap) []*corev1.ConfigMap { return list }

// editData changes the data of a copy, which shares its map with the source no longer.
func editData(k, v string) cmOption {
	return func(cm *corev1.ConfigMap) { cm.Data[k] = v }
}

// TestC41NamesakeClaims: where another source of the name would claim the target but for the labels of a namespace
// cache that may be old, the namespace is asked for live, and its claim keeps the copy.
func TestC41NamesakeClaims(t *testing.T) {
	r := testRules()
	gone := sourceCM("platform", "settings")
	golden := sourceCM("base", "settings", annotation(SelectorAnnotation, "tier=gold"))
	v := viewOf(r, "settings", golden)
	c := r.decide(v, target{namespace: "team-a", object: namespace("team-a"), have: copyCM(r, gone, "team-a")})
	if want := (premise{source: true, namespace: true}); c.op != opDelete || c.premise != want {
		t.Fatalf("got %v behind %+v, want a deletion behind %+v", c.op, c.premise, want)
	}
	if r.stillUnwanted(v, nil, namespace("team-a", "tier", "gold")) {
		t.Error("the copy counts as unwanted although another source claims the target")
	}
	if !r.stillUnwanted(v, nil, namespace("team-a")) {
		t.Error("the copy counts as wanted although no source claims the target")
	}
}

// TestC41NamesakeClaimsOfAnOutsider is the same for a copy that goes because of the flags: its source is no longer in a
// namespace that they allow.
func TestC41NamesakeClaimsOfAnOutsider(t *testing.T) {
	r := testRules(func(o *Options) { o.SourceNamespaces = []string{"base"} })
	outsider := sourceCM("platform", "settings")
	v := viewOf(r, "settings", outsider, sourceCM("base", "settings"))
	v.prunable = func(*corev1.ConfigMap) bool { return true }
	old, now := namespace("team-a", DefaultLabel, OptOutValue), namespace("team-a")
	c := r.decide(v, target{namespace: "team-a", object: old, have: copyCM(testRules(), outsider, "team-a")})
	if want := (premise{namespace: true}); c.op != opDelete || !c.byFlags || c.premise != want {
		t.Fatalf("got %v behind %+v, by flags: %v, want a deletion by flags behind %+v", c.op, c.premise, c.byFlags, want)
	}
	if r.stillUnwanted(v, nil, now) {
		t.Error("the copy counts as unwanted although another source claims the target")
	}
	if !r.stillUnwanted(v, nil, old) {
		t.Error("the copy counts as wanted although no source claims the target")
	}
}

// TestPlanSecondPassIsEmpty applies each plan to a model and plans again: nothing may be left, and no foreign object
// may have been in a plan.
func TestPlanSecondPassIsEmpty(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels = []string{"*"}; o.CopyAnnotations = []string{"*"} })
	src := sourceCM("platform", "settings", label("app", "web"), annotation("note", "x"), annotation("helm.sh/chart", "no"))
	older := sourceCM("platform", "settings", label("gone", "1"), data("key", "old"))
	v := viewOf(r, "settings", src)
	for name, have := range map[string]*corev1.ConfigMap{
		"nothing":     nil,
		"older":       copyCM(r, older, "team-a"),
		"with others": copyCM(r, older, "team-a", label("theirs", "1"), annotation("theirs", "1")),
		"adopted":     configMap("team-a", "settings", data("mine", "1"), label("theirs", "1"), annotation("theirs", "1"), annotation(AdoptAnnotation, AdoptValue)),
	} {
		t.Run(name, func(t *testing.T) {
			tgt := target{namespace: "team-a", object: namespace("team-a"), have: have}
			c := r.decide(v, tgt)
			written := r.desired(c.source, "team-a", c.have)
			if have != nil && (written.ResourceVersion != have.ResourceVersion || written.UID != have.UID) {
				t.Errorf("the write is not bound to the object that was judged")
			}
			if name == "with others" || name == "adopted" {
				if written.Labels["theirs"] != "1" || written.Annotations["theirs"] != "1" {
					t.Errorf("other people's metadata is gone: %v %v", written.Labels, written.Annotations)
				}
			}
			if _, ok := written.Labels["gone"]; ok {
				t.Errorf("a label that the source no longer has stays on the copy")
			}
			if _, ok := written.Annotations["helm.sh/chart"]; ok {
				t.Errorf("a mark of a GitOps tool travelled")
			}
			if written.Labels["app"] != "web" || written.Annotations["note"] != "x" {
				t.Errorf("selected metadata did not travel: %v %v", written.Labels, written.Annotations)
			}
			tgt.have = written
			if again := r.decide(v, tgt); again.op != opNone || again.outcome != outcomeSynced {
				t.Errorf("second pass: %v %v", again.op, again.outcome)
			}
		})
	}
}

func TestStillUnwanted(t *testing.T) {
	r := testRules()
	src := sourceCM("platform", "settings")
	for name, tc := range map[string]struct {
		live *corev1.ConfigMap
		ns   *corev1.Namespace
		want bool
	}{
		"gone":                         {nil, namespace("team-a"), true},
		"unlabelled":                   {sourceCM("platform", "settings", without(DefaultLabel)), namespace("team-a"), true},
		"being deleted":                {sourceCM("platform", "settings", deleting), namespace("team-a"), true},
		"C41 it is there after all":    {src, namespace("team-a"), false},
		"frozen meanwhile":             {sourceCM("platform", "settings", annotation(PrefixAnnotation, "")), namespace("team-a"), false},
		"narrowed":                     {sourceCM("platform", "settings", annotation(PrefixAnnotation, "team-b")), namespace("team-a"), true},
		"opted out":                    {src, namespace("team-a", DefaultLabel, OptOutValue), true},
		"C41 no longer opted out live": {src, namespace("team-a", DefaultLabel, "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.stillUnwanted(view{}, tc.live, tc.ns); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPrecedence(t *testing.T) {
	r := testRules()
	for name, tc := range map[string]struct{ first, second *corev1.ConfigMap }{
		"platform before an older tenant": {sourceCM("platform", "s", createdAt(9)), sourceCM("team-a", "s", createdAt(1))},
		"excluded counts as platform":     {sourceCM("team-x", "s", createdAt(9)), sourceCM("team-a", "s", createdAt(1))},
		"older first":                     {sourceCM("z", "s", createdAt(1)), sourceCM("b", "s", createdAt(2))},
		"smaller key first":               {sourceCM("b", "s"), sourceCM("c", "s")},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := r.readSource(tc.first), r.readSource(tc.second)
			if compareSources(a, b) >= 0 || compareSources(b, a) <= 0 {
				t.Errorf("%s does not come before %s", a.key, b.key)
			}
		})
	}
}
