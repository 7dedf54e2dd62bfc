package mirror

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

func TestReadNarrowing(t *testing.T) {
	const (
		prefixKey   = "mirror-controller.github.io/namespace-prefix"
		selectorKey = "mirror-controller.github.io/namespace-selector"
		noSuchStart = "no name of a namespace begins so: it has lower-case letters, digits and '-', and begins with a letter or digit"
		empty       = "must not be empty; to mirror into all namespaces, say --all-namespaces"
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
			prefixes, selector, err := readNarrowing(tc.annotations)
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

func TestClaims(t *testing.T) {
	dying := namespace("team-a")
	dying.Status.Phase = corev1.NamespaceTerminating
	all := testRules(func(o *Options) { o.NamespacePrefixes, o.AllNamespaces, o.ExcludeNamespaces = nil, true, nil })
	prefix := func(p string) cmOption { return annotation("mirror-controller.github.io/namespace-prefix", p) }
	selector := func(s string) cmOption { return annotation("mirror-controller.github.io/namespace-selector", s) }
	for name, tc := range map[string]struct {
		rules  *rules // nil: the usual ones
		src    *corev1.ConfigMap
		ns     *corev1.Namespace
		claims bool
		byName bool // what claimsName says
	}{
		"a target":                        {nil, sourceCM("platform", "s"), namespace("team-a"), true, true},
		"C01 its own namespace":           {nil, sourceCM("team-a", "s"), namespace("team-a"), false, false},
		"C01 another than its own":        {nil, sourceCM("team-a", "s"), namespace("team-b"), true, true},
		"C01 its own, all namespaces":     {all, sourceCM("default", "s"), namespace("default"), false, false},
		"all namespaces":                  {all, sourceCM("default", "s"), namespace("other"), true, true},
		"outside the flags":               {nil, sourceCM("platform", "s"), namespace("other"), false, false},
		"outside the source namespaces":   {fromPlatform(), sourceCM("base", "s"), namespace("team-a"), false, false},
		"excluded by the flags":           {nil, sourceCM("platform", "s"), namespace("team-x1"), false, false},
		"C09 teamster":                    {nil, sourceCM("platform", "s"), namespace("teamster"), false, false},
		"C28 terminating":                 {nil, sourceCM("platform", "s"), dying, false, true},
		"C31 opted out":                   {nil, sourceCM("platform", "s"), namespace("team-a", "mirror", "false"), false, true},
		"C05 reserved name":               {nil, sourceCM("platform", "kube-root-ca.crt"), namespace("team-a"), false, false},
		"C05 reserved by OpenShift":       {nil, sourceCM("platform", "openshift-service-ca.crt"), namespace("team-a"), false, false},
		"C05 reserved by Istio":           {nil, sourceCM("platform", "istio-ca-root-cert"), namespace("team-a"), false, false},
		"C05 much like a reserved name":   {nil, sourceCM("platform", "kube-root-ca"), namespace("team-a"), true, true},
		"C31 frozen by its prefix":        {nil, sourceCM("platform", "s", prefix("Team")), namespace("team-a"), false, false},
		"C31 frozen by one of them":       {nil, sourceCM("platform", "s", prefix("team-a,Team")), namespace("team-a"), false, false},
		"C31 frozen by its selector":      {nil, sourceCM("platform", "s", selector("a=b=c")), namespace("team-a"), false, false},
		"narrowed to it":                  {nil, sourceCM("platform", "s", prefix("team-a")), namespace("team-a"), true, true},
		"C09 narrowed to a whole name":    {nil, sourceCM("platform", "s", prefix("team-a")), namespace("team-ab"), true, true},
		"narrowed to another":             {nil, sourceCM("platform", "s", prefix("team-b")), namespace("team-a"), false, false},
		"narrowed to several":             {nil, sourceCM("platform", "s", prefix("team-b, team-a")), namespace("team-a"), true, true},
		"narrowing does not widen":        {nil, sourceCM("platform", "s", prefix("other")), namespace("other"), false, false},
		"narrowed to less than the flags": {nil, sourceCM("platform", "s", prefix("t")), namespace("team-a"), true, true},
		"nor into what is excluded":       {nil, sourceCM("platform", "s", prefix("team-x")), namespace("team-x1"), false, false},
		"selected":                        {nil, sourceCM("platform", "s", selector("tier=gold")), namespace("team-a", "tier", "gold"), true, true},
		"not selected":                    {nil, sourceCM("platform", "s", selector("tier=gold")), namespace("team-a"), false, true},
		"selected outside the flags":      {nil, sourceCM("platform", "s", selector("tier=gold")), namespace("other", "tier", "gold"), false, false},
		"selected and opted out":          {nil, sourceCM("platform", "s", selector("tier=gold")), namespace("team-a", "tier", "gold", "mirror", "false"), false, true},
		"selected, narrowed to another":   {nil, sourceCM("platform", "s", selector("tier=gold"), prefix("team-b")), namespace("team-a", "tier", "gold"), false, false},
		"not selected, narrowed to it":    {nil, sourceCM("platform", "s", selector("tier=gold"), prefix("team-a")), namespace("team-a"), false, true},
		"both":                            {nil, sourceCM("platform", "s", selector("tier=gold"), prefix("team-a")), namespace("team-a", "tier", "gold"), true, true},
		"an empty selector":               {nil, sourceCM("platform", "s", selector("")), namespace("team-a"), true, true},
		"namespace without labels":        {nil, sourceCM("platform", "s", selector("!tier")), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := tc.rules
			if r == nil {
				r = testRules()
			}
			s := r.readSource(tc.src)
			if got := s.claims(r, tc.ns); got != tc.claims {
				t.Errorf("got claims %v, want %v", got, tc.claims)
			}
			if got := s.claimsName(r, tc.ns.Name); got != tc.byName {
				t.Errorf("got claimsName %v, want %v", got, tc.byName)
			}
		})
	}
}

func TestReadSource(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app", "x*"}, []string{"note"} })
	cm := sourceCM("platform", "settings", label("app", "web"), label("x1", ""), label("other", "1"), annotation("note", "n"), annotation("more", "1"),
		annotation("mirror-controller.github.io/namespace-prefix", "team-a"))
	before := cm.DeepCopy()
	s := r.readSource(cm)
	if s.cm != cm {
		t.Error("got another object kept than the one that was read")
	}
	if !reflect.DeepEqual(cm, before) {
		t.Errorf("got the object changed to %v, want %v", cm, before)
	}
	if want := (cache.ObjectName{Namespace: "platform", Name: "settings"}); s.key != want {
		t.Errorf("got key %v, want %v", s.key, want)
	}
	if s.reserved || s.frozen != nil || !s.platform {
		t.Errorf("got reserved %v, frozen %v, platform %v; want false, nil, true", s.reserved, s.frozen, s.platform)
	}
	if want := map[string]string{"app": "web", "x1": ""}; !reflect.DeepEqual(s.labels, want) {
		t.Errorf("got labels %v, want %v", s.labels, want)
	}
	if want := map[string]string{"note": "n"}; !reflect.DeepEqual(s.annotations, want) {
		t.Errorf("got annotations %v, want %v", s.annotations, want)
	}
	if want := "annotation:note,label:app,label:x1"; s.copied != want {
		t.Errorf("got copied %q, want %q", s.copied, want)
	}
	if want := payloadDigest(cm); s.payload != want {
		t.Errorf("got payload %x, want %x", s.payload, want)
	}
	if want := checksum(payloadDigest(cm), map[string]string{"app": "web", "x1": ""}, map[string]string{"note": "n"}); s.checksum != want {
		t.Errorf("got checksum %s, want %s", s.checksum, want)
	}
}

func TestReadSourceWhereItLives(t *testing.T) {
	for name, tc := range map[string]struct {
		cm       *corev1.ConfigMap
		reserved bool
		frozen   bool
		platform bool
	}{
		"outside the targets":        {sourceCM("platform", "s"), false, false, true},
		"C03 in a target":            {sourceCM("team-a", "s"), false, false, false},
		"C03 in an excluded one":     {sourceCM("team-x1", "s"), false, false, true},
		"C05 of a reserved name":     {sourceCM("platform", "kube-root-ca.crt"), true, false, true},
		"C31 frozen":                 {sourceCM("platform", "s", annotation(PrefixAnnotation, "")), false, true, true},
		"C31 frozen and in a target": {sourceCM("team-a", "s", annotation(SelectorAnnotation, "=")), false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := testRules().readSource(tc.cm)
			if s.reserved != tc.reserved || (s.frozen != nil) != tc.frozen || s.platform != tc.platform {
				t.Errorf("got reserved %v, frozen %v, platform %v; want %v, %v, %v",
					s.reserved, s.frozen, s.platform, tc.reserved, tc.frozen, tc.platform)
			}
		})
	}
}

// TestSortSources sorts every order of the same sources: the outcome depends on the cluster alone.
func TestSortSources(t *testing.T) {
	r := testRules()
	var sources []*source
	for _, cm := range []*corev1.ConfigMap{
		sourceCM("team-a", "s", createdAt(1)),
		sourceCM("z", "s", createdAt(5)),
		sourceCM("b", "s", createdAt(9)),
		sourceCM("team-x", "s", createdAt(5)), // excluded, so it counts as platform
		sourceCM("team-b", "s", createdAt(1)),
	} {
		sources = append(sources, r.readSource(cm))
	}
	want := []string{"team-x/s", "z/s", "b/s", "team-a/s", "team-b/s"}
	orders := 0
	permute(sources, 0, func(order []*source) {
		orders++
		sorted := slices.Clone(order)
		sortSources(sorted)
		var got []string
		for _, s := range sorted {
			got = append(got, s.key.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("C03: got %v, want %v", got, want)
		}
	})
	if orders != 120 {
		t.Errorf("got %d orders tried, want 120", orders)
	}
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
