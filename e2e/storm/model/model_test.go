package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var flags = Flags{Prefixes: []string{"team-"}, Excluded: []string{"team-x*"}, CopyLabels: []string{"team", "helm.sh/chart"}, Instance: "default", PruneLimit: 100}

// object returns a ConfigMap with labels and annotations in turn, each as a key and a value.
func object(namespace, name string, labels, annotations []string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	cm.Labels, cm.Annotations = pairs(labels), pairs(annotations)
	cm.Data = map[string]string{"key": "value"}
	return aged(cm, 0)
}

func pairs(list []string) map[string]string {
	out := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

func sourceAt(namespace string, annotations ...string) *corev1.ConfigMap {
	return object(namespace, "settings", []string{Label, Source}, annotations)
}

// copyOf returns a copy of home/settings in team-a that is in sync, as far as the model can tell.
func copyOf(annotations ...string) *corev1.ConfigMap {
	marks := []string{SourceAnnotation, "home/settings", CopyAnnotation, "team-a/settings", InstanceAnnotation, "default",
		ChecksumAnnotation, "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
	return object("team-a", "settings", []string{Label, CopyMark, ManagedBy, Controller}, append(marks, annotations...))
}

func with(cm *corev1.ConfigMap, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	change(cm)
	return cm
}

func unlabelled(cm *corev1.ConfigMap) { delete(cm.Labels, Label) }

func stateOf(namespaces []*corev1.Namespace, cms []*corev1.ConfigMap) State {
	s := State{Namespaces: map[string]*corev1.Namespace{}, ConfigMaps: map[Key]*corev1.ConfigMap{}}
	for _, ns := range namespaces {
		s.Namespaces[ns.Name] = ns
	}
	for _, cm := range cms {
		s.ConfigMaps[KeyOf(cm)] = cm
	}
	return s
}

func namespace(name string, labels ...string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pairs(labels)}}
}

// facts are about all objects.
func facts(yes bool) func(types.UID) bool { return func(types.UID) bool { return yes } }

func pastOf(change func(*Past)) Past {
	p := Past{Pristine: facts(true), Judged: func(Key, Key) bool { return true }, Later: func(*corev1.ConfigMap) bool { return false }}
	if change != nil {
		change(&p)
	}
	return p
}

// TestVerdicts judges the place team-a/settings.
func TestVerdicts(t *testing.T) {
	team := []*corev1.Namespace{namespace("home"), namespace("team-a", "tier", "gold")}
	home := sourceAt("home")
	for name, c := range map[string]struct {
		namespaces []*corev1.Namespace
		there      []*corev1.ConfigMap
		flags      func(*Flags)
		past       func(*Past)
		allowed    []Outcome
		winner     string
	}{
		"a source":                       {there: list(home), allowed: some(Copy), winner: "home/settings"},
		"no source":                      {there: list(object("home", "settings", nil, nil)), allowed: some(Absent)},
		"another value of the label":     {there: list(object("home", "settings", []string{Label, "yes"}, nil)), allowed: some(Absent)},
		"source in the place itself":     {there: list(sourceAt("team-a")), allowed: some(AsItWas)},
		"source there, and a platform's": {there: list(sourceAt("team-a"), home), allowed: some(AsItWas), winner: "home/settings"},
		"platform before the older":      {there: list(aged(sourceAt("team-b"), 2), home), allowed: some(Copy), winner: "home/settings"},
		"the excluded are platform":      {there: list(aged(sourceAt("team-b"), 2), sourceAt("team-x")), allowed: some(Copy), winner: "team-x/settings"},
		"the older":                      {there: list(sourceAt("home"), aged(sourceAt("other"), 2)), allowed: some(Copy), winner: "other/settings"},
		"the smaller":                    {there: list(sourceAt("other"), sourceAt("home")), allowed: some(Copy), winner: "home/settings"},

		"opted out":                           {namespaces: []*corev1.Namespace{namespace("team-a", Label, OptOut)}, there: list(home, copyOf()), allowed: some(Absent)},
		"not selected":                        {there: list(sourceAt("home", SelectorAnnotation, "tier=silver"), copyOf()), allowed: some(Absent)},
		"selected":                            {there: list(sourceAt("home", SelectorAnnotation, "tier in (gold)", PrefixAnnotation, " x , team-a")), allowed: some(Copy), winner: "home/settings"},
		"narrowed away":                       {there: list(sourceAt("home", PrefixAnnotation, "team-b"), copyOf()), allowed: some(Absent)},
		"frozen":                              {there: list(sourceAt("home", PrefixAnnotation, "team-b,"), copyOf()), allowed: some(AsItWas)},
		"frozen, by a prefix of no namespace": {there: list(sourceAt("home", PrefixAnnotation, "team-a,Team-"), copyOf()), allowed: some(AsItWas)},
		"frozen, by one of 64 letters":        {there: list(sourceAt("home", PrefixAnnotation, strings.Repeat("t", 64)), copyOf()), allowed: some(AsItWas)},
		"frozen, by a key that is not known":  {there: list(sourceAt("home", PrefixAnnotation+"es", "team-b"), copyOf()), allowed: some(AsItWas)},
		"all keys that are known": {
			there:   list(sourceAt("home", SourceAnnotation, "", CopyAnnotation, "", ChecksumAnnotation, "", InstanceAnnotation, "", CopiedAnnotation, "", AdoptAnnotation, "")),
			allowed: some(Copy), winner: "home/settings",
		},
		"frozen, nothing there": {there: list(sourceAt("home", SelectorAnnotation, "a in (")), allowed: some(Absent)},
		"frozen keeps its place": {
			there: list(sourceAt("home", PrefixAnnotation, ""), copyOf(), sourceAt("other")), allowed: some(AsItWas), winner: "other/settings",
		},

		"selected by the flags":                   {flags: selecting("tier in (gold)"), there: list(home), allowed: some(Copy), winner: "home/settings"},
		"not selected by the flags":               {flags: selecting("!tier"), there: list(home, copyOf()), allowed: some(Absent)},
		"not selected, nor by its source":         {flags: selecting("!tier"), there: list(sourceAt("home", SelectorAnnotation, "!tier"), copyOf()), past: blocks, allowed: some(Absent)},
		"not selected, and the limit blocks":      {flags: selecting("!tier"), there: list(home, copyOf()), past: blocks, allowed: some(AsItWas)},
		"not selected, and turned up later":       {flags: selecting("!tier"), there: list(home, copyOf()), past: turnedUp, allowed: some(Absent)},
		"not selected, and frozen":                {flags: selecting("!tier"), there: list(sourceAt("home", PrefixAnnotation, ""), copyOf()), allowed: some(AsItWas)},
		"who is not selected is no platform's":    {flags: selecting("tier"), there: list(aged(sourceAt("team-b"), 2), home), allowed: some(Copy), winner: "home/settings"},
		"an older one that is not selected holds": {flags: selecting("tier"), there: list(aged(sourceAt("team-b"), 2), sourceAt("team-c")), allowed: some(Copy), winner: "team-b/settings"},

		"foreign":                     {there: list(home, object("team-a", "settings", []string{Label, CopyMark}, nil)), allowed: some(AsItWas), winner: "home/settings"},
		"of another instance":         {there: list(home, copyOf(InstanceAnnotation, "other", AdoptAnnotation, "true")), allowed: some(AsItWas), winner: "home/settings"},
		"a clone":                     {there: list(copyOf(CopyAnnotation, "team-b/settings")), allowed: some(AsItWas)},
		"handed over":                 {there: list(home, object("team-a", "settings", []string{Label, CopyMark}, []string{AdoptAnnotation, "true"})), allowed: some(Copy), winner: "home/settings"},
		"handed over without a label": {there: list(home, object("team-a", "settings", nil, []string{AdoptAnnotation, "true"})), allowed: some(Copy), winner: "home/settings"},
		"handed over with a finalizer": {
			there:   list(home, with(object("team-a", "settings", []string{Label, CopyMark}, []string{AdoptAnnotation, "true"}), finalized)),
			allowed: some(AsItWas), winner: "home/settings",
		},
		"of no namespace that can be":  {there: list(copyOf(SourceAnnotation, "Home/settings")), allowed: some(AsItWas)},
		"of a namespace of 64 letters": {there: list(copyOf(SourceAnnotation, strings.Repeat("h", 64)+"/settings")), allowed: some(AsItWas)},
		"of a namespace that is gone":  {there: list(copyOf(SourceAnnotation, strings.Repeat("h", 63)+"/settings")), allowed: some(Absent)},

		"without label":                           {there: list(home, with(copyOf(), unlabelled)), allowed: some(Copy), winner: "home/settings"},
		"without label and source":                {there: list(with(copyOf(), unlabelled)), allowed: some(AsItWas)},
		"without label, opted out":                {namespaces: []*corev1.Namespace{namespace("team-a", Label, OptOut)}, there: list(home, with(copyOf(), unlabelled)), allowed: some(AsItWas)},
		"without label, of a source out of scope": {there: list(home, with(copyOf(), unlabelled)), flags: away, allowed: some(AsItWas)},
		"held by a finalizer":                     {there: list(with(copyOf(), deleted)), allowed: some(AsItWas)},
		"source being deleted":                    {there: list(with(sourceAt("home"), deleted), copyOf()), allowed: some(Absent)},

		"out of scope":             {there: list(home, copyOf()), flags: away, allowed: some(Absent)},
		"out of scope since later": {there: list(home, copyOf()), flags: away, past: func(p *Past) { p.Judged = func(Key, Key) bool { return false } }, allowed: some(Absent, AsItWas)},
		"out of scope, turned up later": {there: list(home, copyOf()), flags: away, past: func(p *Past) {
			p.Judged = func(Key, Key) bool { return false }
			p.Later = func(*corev1.ConfigMap) bool { return true }
		}, allowed: some(AsItWas)},
		"turned up later, and the source is gone":  {there: list(copyOf()), flags: away, past: func(p *Past) { p.Later = func(*corev1.ConfigMap) bool { return true } }, allowed: some(Absent)},
		"out of scope, and the prune limit blocks": {there: list(home, copyOf()), flags: away, past: func(p *Past) { p.Blocked = true }, allowed: some(AsItWas)},
		"source out of scope":                      {there: list(home, copyOf()), flags: func(f *Flags) { f.SourceNamespaces = []string{"other"} }, allowed: some(Absent)},
		"out of scope, and the source is gone":     {there: list(copyOf()), flags: away, past: func(p *Past) { p.Blocked = true }, allowed: some(Absent)},
	} {
		t.Run(name, func(t *testing.T) {
			f, namespaces := flags, c.namespaces
			if c.flags != nil {
				c.flags(&f)
			}
			if namespaces == nil {
				namespaces = team
			}
			all := f.Verdicts(stateOf(namespaces, c.there), pastOf(c.past))
			i := slices.IndexFunc(all, func(v Verdict) bool { return v.Key == Key{"team-a", "settings"} })
			if i < 0 {
				t.Fatal("no verdict")
			}
			winner := ""
			if all[i].Winner != nil {
				winner = KeyOf(all[i].Winner).String()
			}
			if !slices.Equal(all[i].Allowed, c.allowed) || winner != c.winner {
				t.Errorf("allowed %v for %q (%s), want %v for %q", all[i].Allowed, winner, all[i].Why, c.allowed, c.winner)
			}
		})
	}
}

func list(cms ...*corev1.ConfigMap) []*corev1.ConfigMap { return cms }
func some(outcomes ...Outcome) []Outcome                { return outcomes }
func finalized(cm *corev1.ConfigMap)                    { cm.Finalizers = []string{"example.com/x"} }
func selecting(s string) func(*Flags)                   { return func(f *Flags) { f.Selector = s } }
func blocks(p *Past)                                    { p.Blocked = true }
func turnedUp(p *Past)                                  { p.Later = func(*corev1.ConfigMap) bool { return true } }
func away(f *Flags)                                     { f.Prefixes = []string{"dev-"} }
func deleted(cm *corev1.ConfigMap)                      { cm.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// aged returns the object, older than others by so many seconds.
func aged(cm *corev1.ConfigMap, seconds int64) *corev1.ConfigMap {
	cm.CreationTimestamp = metav1.Unix(1000-seconds, 0)
	return cm
}

// TestNoVerdict shows the places on which the contract has nothing to say.
func TestNoVerdict(t *testing.T) {
	dying := namespace("team-a")
	dying.Status.Phase = corev1.NamespaceTerminating
	reservedSource := object("home", "kube-root-ca.crt", []string{Label, Source}, nil)
	s := stateOf([]*corev1.Namespace{dying, namespace("team-b")}, list(sourceAt("home"), reservedSource))
	for _, v := range flags.Verdicts(s, pastOf(nil)) {
		if v.Namespace == "team-a" || v.Name == "kube-root-ca.crt" {
			t.Errorf("a verdict on %s: %v", v.Key, v.Allowed)
		}
	}
}

// TestUnmet has copies that are in sync in all but one respect.
func TestUnmet(t *testing.T) {
	source := object("home", "settings", []string{Label, Source, "team", "a", "helm.sh/chart", "x"}, nil)
	good := func() *corev1.ConfigMap {
		cm := copyOf(CopiedAnnotation, "label:team")
		cm.Labels["team"], cm.Labels["cost"] = "a", "mine"
		return cm
	}
	v := Verdict{Key: KeyOf(good()), Winner: source, Allowed: some(Copy)}
	if err := flags.Unmet(v, pastOf(nil), good()); err != nil {
		t.Error(err)
	}
	yes := true
	for name, spoil := range map[string]func(*corev1.ConfigMap){
		"data":            func(cm *corev1.ConfigMap) { cm.Data["key"] = "other" },
		"more data":       func(cm *corev1.ConfigMap) { cm.Data["more"] = "" },
		"binary data":     func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"b": nil} },
		"immutable":       func(cm *corev1.ConfigMap) { cm.Immutable = &yes },
		"label":           unlabelled,
		"managed by":      func(cm *corev1.ConfigMap) { cm.Labels[ManagedBy] = "helm" },
		"source":          func(cm *corev1.ConfigMap) { cm.Annotations[SourceAnnotation] = "other/settings" },
		"checksum":        func(cm *corev1.ConfigMap) { cm.Annotations[ChecksumAnnotation] = "sha256:0" },
		"adopting":        func(cm *corev1.ConfigMap) { cm.Annotations[AdoptAnnotation] = "true" },
		"copied label":    func(cm *corev1.ConfigMap) { cm.Labels["team"] = "b" },
		"copied list":     func(cm *corev1.ConfigMap) { delete(cm.Annotations, CopiedAnnotation) },
		"copied invented": func(cm *corev1.ConfigMap) { cm.Annotations[CopiedAnnotation] = "label:team,label:teams" },
		"copied twice":    func(cm *corev1.ConfigMap) { cm.Annotations[CopiedAnnotation] = "label:team,label:team" },
		"copied as other": func(cm *corev1.ConfigMap) { cm.Annotations[CopiedAnnotation] = "annotation:team" },
		"copied in part":  func(cm *corev1.ConfigMap) { cm.Annotations[CopiedAnnotation] = "label:teams" },
		"copied too far":  func(cm *corev1.ConfigMap) { cm.Labels["helm.sh/chart"] = "x" },
	} {
		cm := good()
		spoil(cm)
		if flags.Unmet(v, pastOf(nil), cm) == nil {
			t.Errorf("%s: met", name)
		}
	}
	stale := good()
	delete(source.Labels, "team")
	if err := flags.Unmet(v, pastOf(nil), with(stale, func(cm *corev1.ConfigMap) { delete(cm.Annotations, CopiedAnnotation) })); err == nil {
		t.Error("a label that is no longer copied: met")
	}
	if flags.Unmet(v, pastOf(nil), nil) == nil || flags.Unmet(Verdict{Allowed: some(Absent)}, pastOf(nil), stale) == nil {
		t.Error("presence: met")
	}
}

// TestPruneLimit has 11 copies in dev-a, which are out of scope, and 22 sources that want as many copies in team-a.
func TestPruneLimit(t *testing.T) {
	s := stateOf([]*corev1.Namespace{namespace("home"), namespace("team-a"), namespace("dev-a")}, nil)
	for i := range 22 {
		name := string(rune('a' + i))
		s.ConfigMaps[Key{"home", name}] = object("home", name, []string{Label, Source}, nil)
		target := "team-a"
		if i < 11 {
			target = "dev-a"
		}
		cm := object(target, name, []string{Label, CopyMark}, []string{
			SourceAnnotation, "home/" + name, CopyAnnotation, target + "/" + name, InstanceAnnotation, "default"})
		s.ConfigMaps[KeyOf(cm)] = cm
	}
	limited := func(limit int) Flags {
		f := flags
		f.PruneLimit = limit
		return f
	}
	blocked := func(outOfScope int, want map[int]bool) {
		t.Helper()
		if n, copies := flags.Prunable(s); n != outOfScope || copies != outOfScope+22 {
			t.Errorf("%d out of scope of %d, want %d of %d", n, copies, outOfScope, outOfScope+22)
		}
		for limit, want := range want {
			if got := limited(limit).PruneBlocked(s); got != want {
				t.Errorf("%d of %d out of scope, limit %d%%: blocked %v, want %v", outOfScope, outOfScope+22, limit, got, want)
			}
		}
	}
	blocked(11, map[int]bool{0: true, 1: true, 33: true, 34: false, 100: false})
	for limit, want := range map[int]bool{1: false, 33: true, 34: true, 36: false, 100: false} {
		if got := limited(limit).AtEdge(s); got != want {
			t.Errorf("11 of 33 out of scope, limit %d%%: at the edge %v, want %v", limit, got, want)
		}
	}
	forged := copyOf(SourceAnnotation, "nowhere/settings")
	s.ConfigMaps[KeyOf(forged)] = forged
	blocked(11, map[int]bool{33: true}) // it does not count
	gone := s.Namespaces["dev-a"]
	delete(s.Namespaces, "dev-a") // where no namespace is nothing is deleted
	blocked(0, map[int]bool{0: false})
	s.Namespaces["dev-a"] = gone
	delete(s.ConfigMaps, Key{"dev-a", "a"})
	blocked(10, map[int]bool{0: true, 31: true, 32: false}) // 31.25%

	// And none is wanted, and 11 more go, where only the selector of the flags keeps sources away.
	unselected := flags
	unselected.Selector = "tier"
	if n, copies := unselected.Prunable(s); n != 21 || copies != 21 {
		t.Errorf("%d out of scope of %d, want 21 of 21", n, copies)
	}
	s.Namespaces["team-a"].Labels = map[string]string{"tier": "gold"}
	if n, copies := unselected.Prunable(s); n != 10 || copies != 32 {
		t.Errorf("%d out of scope of %d, want 10 of 32", n, copies)
	}

	// However few there are.
	for i := range 9 {
		delete(s.ConfigMaps, Key{"dev-a", string(rune('b' + i))})
	}
	blocked(1, map[int]bool{0: true, 4: true, 5: false, 100: false}) // 4.3%
	delete(s.ConfigMaps, Key{"dev-a", "k"})
	blocked(0, map[int]bool{0: false, 1: false})
}

func TestCarries(t *testing.T) {
	source := object("home", "settings", []string{Label, Source, "team", "a", "cost", "1"}, nil)
	copied := copyOf()
	if flags.Carries(copied, source) {
		t.Error("without the label that travels: carries")
	}
	copied.Labels["team"] = "a"
	if !flags.Carries(copied, source) {
		t.Error("with the label that travels: does not carry")
	}
}
