package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestParseNarrowing(t *testing.T) {
	const (
		prefixKey   = "mirror-controller.github.io/namespace-prefix"
		selectorKey = "mirror-controller.github.io/namespace-selector"
		noSuchStart = "must be the beginning of a namespace name: lower-case letters, digits and '-', with a letter or digit first"
		empty       = "must not be empty; remove the annotation for all targets"
	)
	long := strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		annotations map[string]string
		prefixes    []string
		selects     []map[string]string
		rejects     []map[string]string
		problems    []string // the beginning of each line of the error; none: no error
	}{
		"nothing":            {annotations: nil, selects: []map[string]string{nil, {"a": "b"}}},
		"other annotations":  {annotations: map[string]string{"namespace-prefix": "Team", "x/namespace-selector": "a=b=c"}, selects: []map[string]string{nil}},
		"one prefix":         {annotations: map[string]string{prefixKey: "team-a"}, prefixes: []string{"team-a"}, selects: []map[string]string{nil}},
		"several prefixes":   {annotations: map[string]string{prefixKey: "team-a,team-b,0"}, prefixes: []string{"team-a", "team-b", "0"}},
		"blanks are trimmed": {annotations: map[string]string{prefixKey: " team-a ,\tteam-b\n, team-c"}, prefixes: []string{"team-a", "team-b", "team-c"}},
		"prefix repeated":    {annotations: map[string]string{prefixKey: "team-a,team-a"}, prefixes: []string{"team-a", "team-a"}},
		"C31 empty prefix in front": {annotations: map[string]string{prefixKey: ",team-a"},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix=",team-a": prefix "": ` + empty}},
		"C31 empty prefix at the end": {annotations: map[string]string{prefixKey: "team-a, "},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix="team-a, ": prefix "": ` + empty}},
		"C31 empty annotation": {annotations: map[string]string{prefixKey: ""},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix="": prefix "": ` + empty}},
		"C31 blank annotation": {annotations: map[string]string{prefixKey: " "},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix=" ": prefix "": ` + empty}},
		"C31 prefix in upper case": {annotations: map[string]string{prefixKey: "team-a, Team"},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix="team-a, Team": prefix "Team": ` + noSuchStart}},
		"C31 prefix is a pattern": {annotations: map[string]string{prefixKey: "team-*"},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix="team-*": prefix "team-*": ` + noSuchStart}},
		"C31 another separator": {annotations: map[string]string{prefixKey: "team-a team-b"},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix="team-a team-b": prefix "team-a team-b": ` + noSuchStart}},
		"C31 prefix too long": {annotations: map[string]string{prefixKey: long},
			problems: []string{`annotation mirror-controller.github.io/namespace-prefix="` + long + `": prefix "` + long + `": must have at most 63 characters`}},
		"a selector": {annotations: map[string]string{selectorKey: "tier=gold"},
			selects: []map[string]string{{"tier": "gold"}, {"tier": "gold", "x": "y"}}, rejects: []map[string]string{nil, {"tier": "silver"}}},
		"a selector of sets": {annotations: map[string]string{selectorKey: "tier in (gold, silver), !closed"},
			selects: []map[string]string{{"tier": "gold"}, {"tier": "silver"}}, rejects: []map[string]string{nil, {"tier": "gold", "closed": ""}}},
		"a selector that negates": {annotations: map[string]string{selectorKey: "tier!=gold"},
			selects: []map[string]string{nil, {"tier": "silver"}}, rejects: []map[string]string{{"tier": "gold"}}},
		"an empty selector matches all": {annotations: map[string]string{selectorKey: ""}, selects: []map[string]string{nil, {"a": "b"}}},
		"a blank selector matches all":  {annotations: map[string]string{selectorKey: " "}, selects: []map[string]string{nil, {"a": "b"}}},
		"C31 malformed selector": {annotations: map[string]string{selectorKey: "tier==="},
			problems: []string{`annotation mirror-controller.github.io/namespace-selector="tier===": not a label selector: `}},
		"C31 selector, key malformed": {annotations: map[string]string{selectorKey: "-=a"},
			problems: []string{`annotation mirror-controller.github.io/namespace-selector="-=a": not a label selector: `}},
		"both": {annotations: map[string]string{prefixKey: "team-a", selectorKey: "tier=gold"}, prefixes: []string{"team-a"},
			selects: []map[string]string{{"tier": "gold"}}, rejects: []map[string]string{nil}},
		"C31 both malformed": {annotations: map[string]string{prefixKey: "Team", selectorKey: "a=b=c"},
			problems: []string{
				`annotation mirror-controller.github.io/namespace-prefix="Team": prefix "Team": ` + noSuchStart,
				`annotation mirror-controller.github.io/namespace-selector="a=b=c": not a label selector: `}},
	} {
		t.Run(name, func(t *testing.T) {
			prefixes, selector, err := parseNarrowing(tc.annotations)
			if len(tc.problems) > 0 {
				if err == nil {
					t.Fatalf("got no error, want %q", tc.problems)
				}
				lines := strings.Split(err.Error(), "\n")
				if len(lines) != len(tc.problems) {
					t.Fatalf("got %d problems %q, want %d", len(lines), lines, len(tc.problems))
				}
				for i, line := range lines {
					rest, found := strings.CutPrefix(line, tc.problems[i])
					if !found || rest == "" && strings.HasSuffix(tc.problems[i], " ") {
						t.Errorf("got %q, want it to begin with %q and to say why", line, tc.problems[i])
					}
				}
				return
			}
			if err != nil {
				t.Fatalf("got error %v, want none", err)
			}
			if !slices.Equal(prefixes, tc.prefixes) || (prefixes == nil) != (tc.prefixes == nil) {
				t.Errorf("got prefixes %#v, want %#v", prefixes, tc.prefixes)
			}
			for _, l := range tc.selects {
				if !selector.Matches(labels.Set(l)) {
					t.Errorf("got %v not selected, want it selected", l)
				}
			}
			for _, l := range tc.rejects {
				if selector.Matches(labels.Set(l)) {
					t.Errorf("got %v selected, want it not selected", l)
				}
			}
		})
	}
}

func TestExclusion(t *testing.T) {
	all := testRules(func(o *Options) { o.NamespacePrefixes, o.AllNamespaces, o.ExcludeNamespaces = nil, true, nil })
	gilded := testRules(func(o *Options) { o.NamespaceSelector = "tier=gold" })
	prefix := func(p string) plantest.Option {
		return plantest.Annotation("mirror-controller.github.io/namespace-prefix", p)
	}
	selector := func(s string) plantest.Option {
		return plantest.Annotation("mirror-controller.github.io/namespace-selector", s)
	}
	source := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "s", o...) }
	a, gold := plantest.Namespace("team-a"), plantest.Namespace("team-a", "tier", "gold")
	for name, tc := range map[string]struct {
		rules *Rules // nil: testRules
		src   *corev1.ConfigMap
		ns    *corev1.Namespace
		want  Exclusion
	}{
		"a target":                        {nil, source(), a, NotExcluded},
		"C01 its own namespace":           {nil, plantest.Source("team-a", "s"), a, ExcludedName},
		"C01 another than its own":        {nil, plantest.Source("team-a", "s"), plantest.Namespace("team-b"), NotExcluded},
		"C01 its own, all namespaces":     {all, plantest.Source("default", "s"), plantest.Namespace("default"), ExcludedName},
		"all namespaces":                  {all, plantest.Source("default", "s"), plantest.Namespace("other"), NotExcluded},
		"target out of scope":             {nil, source(), plantest.Namespace("other"), ExcludedName},
		"source out of scope":             {fromPlatform(), plantest.Source("base", "s"), a, ExcludedSource},
		"excluded by the flags":           {nil, source(), plantest.Namespace("team-x1"), ExcludedName},
		"C09 teamster":                    {nil, source(), plantest.Namespace("teamster"), ExcludedName},
		"C28 terminating":                 {nil, source(), plantest.Terminating("team-a"), ExcludedTerminating},
		"C31 opted out":                   {nil, source(), plantest.Namespace("team-a", "mirror", "false"), ExcludedByOptOut},
		"C05 reserved name":               {nil, plantest.Source("platform", "kube-root-ca.crt"), a, ExcludedSource},
		"C05 reserved by OpenShift":       {nil, plantest.Source("platform", "openshift-service-ca.crt"), a, ExcludedSource},
		"C05 reserved by Istio":           {nil, plantest.Source("platform", "istio-ca-root-cert"), a, ExcludedSource},
		"C05 much like a reserved name":   {nil, plantest.Source("platform", "kube-root-ca"), a, NotExcluded},
		"C31 frozen by its prefix":        {nil, source(prefix("Team")), a, ExcludedSource},
		"C31 frozen by one of them":       {nil, source(prefix("team-a,Team")), a, ExcludedSource},
		"C31 frozen by its selector":      {nil, source(selector("a=b=c")), a, ExcludedSource},
		"narrowed to it":                  {nil, source(prefix("team-a")), a, NotExcluded},
		"C09 narrowed to a whole name":    {nil, source(prefix("team-a")), plantest.Namespace("team-ab"), NotExcluded},
		"narrowed to another":             {nil, source(prefix("team-b")), a, ExcludedByPrefix},
		"narrowed to several":             {nil, source(prefix("team-b, team-a")), a, NotExcluded},
		"narrowing does not widen":        {nil, source(prefix("other")), plantest.Namespace("other"), ExcludedName},
		"narrowed to less than the flags": {nil, source(prefix("t")), a, NotExcluded},
		"nor into what is excluded":       {nil, source(prefix("team-x")), plantest.Namespace("team-x1"), ExcludedName},
		"selected":                        {nil, source(selector("tier=gold")), gold, NotExcluded},
		"not selected":                    {nil, source(selector("tier=gold")), a, ExcludedBySelector},
		"selected and out of scope":       {nil, source(selector("tier=gold")), plantest.Namespace("other", "tier", "gold"), ExcludedName},
		"selected and opted out":          {nil, source(selector("tier=gold")), plantest.Namespace("team-a", "tier", "gold", "mirror", "false"), ExcludedByOptOut},
		"selected, narrowed to another":   {nil, source(selector("tier=gold"), prefix("team-b")), gold, ExcludedByPrefix},
		"not selected, narrowed to it":    {nil, source(selector("tier=gold"), prefix("team-a")), a, ExcludedBySelector},
		"both":                            {nil, source(selector("tier=gold"), prefix("team-a")), gold, NotExcluded},
		"an empty selector":               {nil, source(selector("")), a, NotExcluded},
		"not selected by the flag":        {gilded, source(), a, ExcludedByNamespaceSelector},
		"namespace without labels":        {nil, source(selector("!tier")), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}, NotExcluded},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.rules
			if r == nil {
				r = testRules()
			}
			if got := r.Exclusion(r.ParseSource(tc.src), tc.ns); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestParseSource(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app", "x*"}, []string{"note"} })
	cm := plantest.Source("platform", "settings",
		plantest.Label("app", "web"), plantest.Label("x1", ""), plantest.Label("other", "1"),
		plantest.Annotation("note", "n"), plantest.Annotation("more", "1"), plantest.Annotation(PrefixAnnotation, "team-a"))
	before := cm.DeepCopy()
	s := r.ParseSource(cm)
	if s.ConfigMap != cm {
		t.Error("got another ConfigMap, want the argument itself")
	}
	if !reflect.DeepEqual(cm, before) {
		t.Errorf("got the argument changed to %v, want %v", cm, before)
	}
	if want := (types.NamespacedName{Namespace: "platform", Name: "settings"}); s.Key != want {
		t.Errorf("got key %v, want %v", s.Key, want)
	}
	if want := (texts{"app": "web", "x1": ""}); !reflect.DeepEqual(s.labels, want) {
		t.Errorf("got labels %v, want %v", s.labels, want)
	}
	if want := (texts{"note": "n"}); !reflect.DeepEqual(s.annotations, want) {
		t.Errorf("got annotations %v, want %v", s.annotations, want)
	}
	if want := "annotation:note,label:app,label:x1"; s.copied != want {
		t.Errorf("got copied %q, want %q", s.copied, want)
	}
	if want := payloadDigest(cm); s.payload != want {
		t.Errorf("got payload %x, want %x", s.payload, want)
	}
	if want := checksum(payloadDigest(cm), s.labels, s.annotations); s.Checksum != want {
		t.Errorf("got checksum %s, want %s", s.Checksum, want)
	}
}

func TestParseSourceStatus(t *testing.T) {
	type status struct{ outOfScope, reserved, frozen, platform bool }
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want status
	}{
		"in no target":               {plantest.Source("platform", "s"), status{platform: true}},
		"C03 in a target":            {plantest.Source("team-a", "s"), status{}},
		"C03 in an excluded one":     {plantest.Source("team-x1", "s"), status{platform: true}},
		"C05 of a reserved name":     {plantest.Source("platform", "kube-root-ca.crt"), status{reserved: true, platform: true}},
		"C17 out of scope":           {plantest.Source("elsewhere", "s"), status{outOfScope: true, platform: true}},
		"C31 frozen":                 {plantest.Source("platform", "s", plantest.Annotation(PrefixAnnotation, "")), status{frozen: true, platform: true}},
		"C31 frozen and in a target": {plantest.Source("team-a", "s", plantest.Annotation(SelectorAnnotation, "=")), status{frozen: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRules(func(o *Options) { o.SourceNamespaces = []string{"platform", "team-a", "team-x1"} })
			s := r.ParseSource(tc.cm)
			if got := (status{s.OutOfScope, s.Reserved, s.Frozen != nil, s.platform}); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestC03NewViewSorts makes a view of every order of the same sources: the winner depends on the cluster alone.
func TestC03NewViewSorts(t *testing.T) {
	r := testRules(func(o *Options) { o.SourceNamespaces = []string{"team-a", "team-b", "team-x", "z", "b"} })
	var sources []*Source
	for _, cm := range []*corev1.ConfigMap{
		plantest.Source("team-a", "s", plantest.CreatedAt(1)),
		plantest.Source("z", "s", plantest.CreatedAt(5)),
		plantest.Source("b", "s", plantest.CreatedAt(9)),
		plantest.Source("team-x", "s", plantest.CreatedAt(5)), // excluded, so no tenant's
		plantest.Source("team-b", "s", plantest.CreatedAt(1)),
		plantest.Source("elsewhere", "s", plantest.CreatedAt(2)), // out of scope
	} {
		sources = append(sources, r.ParseSource(cm))
	}
	wantIn, wantOut := []string{"team-x", "z", "b", "team-a", "team-b"}, []string{"elsewhere"}
	orders := 0
	permute(sources, 0, func(order []*Source) {
		orders++
		before := slices.Clone(order)
		v := NewView(order)
		if got := namespaces(v.Sources); !slices.Equal(got, wantIn) {
			t.Errorf("got %v, want %v", got, wantIn)
		}
		if got := namespaces(v.OutOfScope); !slices.Equal(got, wantOut) {
			t.Errorf("got %v out of scope, want %v", got, wantOut)
		}
		if !slices.Equal(order, before) {
			t.Errorf("got the argument changed to %v, want %v", namespaces(order), namespaces(before))
		}
	})
	for _, a := range sources {
		for _, b := range sources {
			if compareSources(a, b) != -compareSources(b, a) {
				t.Errorf("got another order of %s and %s than of %[2]s and %[1]s", a.Key, b.Key)
			}
		}
	}
	if orders != 720 {
		t.Errorf("got %d orders tried, want 720", orders)
	}
}

func TestViewFindAndAll(t *testing.T) {
	r := fromPlatform()
	v := viewOf(r, plantest.Source("elsewhere", "settings"), plantest.Source("platform", "settings"))
	if s := v.Find(keyIn("platform")); s == nil || s.Key != keyIn("platform") {
		t.Errorf("got %v, want the source in platform", s)
	}
	if s := v.Find(keyIn("elsewhere")); s != nil {
		t.Errorf("got %v, want no source that is out of scope", s)
	}
	if s := v.Find(types.NamespacedName{Namespace: "platform", Name: "other"}); s != nil {
		t.Errorf("got %v, want no source of another name", s)
	}
	want := []string{"platform", "elsewhere"}
	if got := namespaces(v.All()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_ = append(v.All(), nil) // overwrites nothing of the view
	if got := namespaces(v.All()); !slices.Equal(got, want) {
		t.Errorf("after an append got %v, want %v", got, want)
	}
}

func namespaces(sources []*Source) (list []string) {
	for _, s := range sources {
		list = append(list, s.Key.Namespace)
	}
	return list
}

// permute calls f with every order of list from index i on.
func permute[T any](list []T, i int, f func([]T)) {
	if i == len(list) {
		f(list)
		return
	}
	for j := i; j < len(list); j++ {
		list[i], list[j] = list[j], list[i]
		permute(list, i+1, f)
		list[i], list[j] = list[j], list[i]
	}
}

// TestC47LongNarrowing: a selector of 256 KiB would take megabytes of memory, and a millisecond for each namespace.
func TestC47LongNarrowing(t *testing.T) {
	for _, key := range []string{PrefixAnnotation, SelectorAnnotation} {
		for n, frozen := range map[int]bool{maxNarrowing: false, maxNarrowing + 1: true} {
			value := strings.Repeat("a,", maxNarrowing)[:n-1] + "a"
			s := testRules().ParseSource(plantest.Source("platform", "settings", plantest.Annotation(key, value)))
			if (s.Frozen != nil) != frozen && key == SelectorAnnotation || frozen && s.Frozen == nil {
				t.Errorf("%s of %d bytes: got frozen by %v, want frozen %v", key, n, s.Frozen, frozen)
			}
			if frozen && len(s.Frozen.Error()) > 200 {
				t.Errorf("%s: got an error of %d bytes", key, len(s.Frozen.Error()))
			}
		}
	}
}
