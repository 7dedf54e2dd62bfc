package plan

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC31MalformedAnnotations: the error says where and why, also about an annotation that a source cannot have (C54).
// A selector of 256 KiB (C47) would take megabytes of memory, and a millisecond for each namespace.
func TestC31MalformedAnnotations(t *testing.T) {
	const (
		inPrefix    = "annotation mirror-controller.github.io/namespace-prefix: a prefix "
		inSelector  = "annotation mirror-controller.github.io/namespace-selector: not a label selector: "
		inRollout   = "annotation mirror-controller.github.io/rollout: not a label selector: "
		inPaused    = `annotation mirror-controller.github.io/paused: must be "true"; to go on, remove the annotation; it is `
		noSuchStart = "must be the beginning of a namespace name: lower-case letters, digits and '-', " +
			"with a letter or digit first"
		empty   = "must not be empty; remove the annotation for all targets"
		tooLong = ": has 4097 bytes, must have at most 4096; it is "
		unknown = ": is not known; a source can have mirror-controller.github.io/namespace-prefix, " +
			"mirror-controller.github.io/namespace-selector, mirror-controller.github.io/rollout, " +
			"mirror-controller.github.io/paused"
	)
	long, kilobyte := strings.Repeat("a", 64), strings.Repeat("a", 1<<10)
	for name, tc := range map[string]struct {
		annotations texts
		want        []string // the beginning of each line of the error
	}{
		"empty prefix": {texts{PrefixAnnotation: "team-a, "}, []string{inPrefix + empty + `: ""; it is "team-a, "`}},
		"upper case": {texts{PrefixAnnotation: "team-a, Team, X"}, []string{inPrefix + noSuchStart +
			`: "Team"; it is "team-a, Team, X"`}},
		"prefix too long": {texts{PrefixAnnotation: long}, []string{inPrefix + "must have at most 63 characters"}},
		"malformed selector": {texts{SelectorAnnotation: "tier==="},
			[]string{inSelector + "unable to parse requirement: found '='"}},
		"control character": {texts{SelectorAnnotation: "tier=a\x0bb"}, []string{inSelector}},
		"C62 rollout":       {texts{RolloutAnnotation: "tier in canary"}, []string{inRollout}},
		"C62 paused":        {texts{PausedAnnotation: "yes"}, []string{inPaused + `"yes"`}},
		"C62 paused, empty": {texts{PausedAnnotation: ""}, []string{inPaused + `""`}},
		"all": {texts{PrefixAnnotation: "Team", SelectorAnnotation: "a=b=c", RolloutAnnotation: "a=b=c",
			PausedAnnotation: "false"},
			[]string{inPrefix + noSuchStart, inSelector, inRollout, inPaused + `"false"`}},
		"C83 a long prefix": {texts{PrefixAnnotation: "team-a," + kilobyte}, []string{inPrefix + "must have at most 63"}},
		"C83 a prefix at the end": {texts{PrefixAnnotation: strings.Repeat("team-a,", 200) + "Team"},
			[]string{inPrefix + noSuchStart + `: "Team"; it is "team-a,team-a,`}},
		"C83 a long label": {texts{RolloutAnnotation: "tier=" + kilobyte}, []string{inRollout +
			"unable to parse requirement: " + `values[0][tier]: Invalid value: "aaa`}},
		"C83 the end of a long selector": {texts{SelectorAnnotation: strings.Repeat("tier=gold,", 200) + "tier==="},
			[]string{inSelector + "unable to parse requirement: found '=', expected: identifier"}},
		"C47 prefixes too long": {texts{PrefixAnnotation: strings.Repeat("a", 4097)},
			[]string{"annotation " + PrefixAnnotation + tooLong}},
		"C47 selectors too long": {texts{SelectorAnnotation: strings.Repeat("a", 4097),
			RolloutAnnotation: strings.Repeat("a", 4097)},
			[]string{"annotation " + SelectorAnnotation + tooLong, "annotation " + RolloutAnnotation + tooLong}},
		"C54 much like one that is known": {texts{Domain + "/namespace-prefixes": "team-a"},
			[]string{"annotation mirror-controller.github.io/namespace-prefixes" + unknown}},
		"C54 upper case": {texts{Domain + "/Namespace-Prefix": "team-a"},
			[]string{"annotation mirror-controller.github.io/Namespace-Prefix" + unknown}},
		"C54 much like one of copies": {texts{Domain + "/checksums": ""},
			[]string{"annotation mirror-controller.github.io/checksums" + unknown}},
	} {
		src := plantest.Source("platform", "settings")
		src.Annotations = tc.annotations
		err := testRules().ParseSource(src).Frozen
		if err == nil {
			t.Fatalf("%s: got no error", name)
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(tc.want) {
			t.Fatalf("%s: got %q, want %q", name, lines, tc.want)
		}
		if name == "C83 a long label" && !strings.Contains(lines[0], `": must be no more than 63 `) {
			t.Errorf("%s: got %q, want the cause in it", name, lines[0])
		}
		for i, line := range lines {
			if len(line) > 1000 {
				t.Errorf("%s: got %d bytes, want a text that fits into an event", name, len(line))
			}
			if !strings.HasPrefix(line, tc.want[i]) {
				t.Errorf("%s: got %q, want it to begin with %q", name, line, tc.want[i])
			}
		}
	}
}

func TestExclusion(t *testing.T) {
	all := testRules(func(o *Options) { o.NamespacePrefixes, o.AllNamespaces, o.ExcludeNamespaces = nil, true, nil })
	gilded := testRules(func(o *Options) { o.NamespaceSelector = "tier=gold" })
	relabelled := testRules(func(o *Options) { o.Label = "example.com/mirror" })
	prefix := func(p string) plantest.Option { return plantest.Annotation(PrefixAnnotation, p) }
	selector := func(s string) plantest.Option { return plantest.Annotation(SelectorAnnotation, s) }
	source := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Source("platform", "s", o...) }
	a, gold := plantest.Namespace("team-a"), plantest.Namespace("team-a", "tier", "gold")
	optedOut := plantest.Namespace("team-a", "tier", "gold", "mirror", "false")
	unlike := plantest.Namespace("team-a", "mirror", "False")
	bare := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	for name, tc := range map[string]struct {
		rules *Rules
		src   *corev1.ConfigMap
		ns    *corev1.Namespace
		want  Exclusion
	}{
		"a target":                     {testRules(), source(), a, NotExcluded},
		"C01 its own namespace":        {testRules(), plantest.Source("team-a", "s"), a, ExcludedOwn},
		"C01 its own, all namespaces":  {all, plantest.Source("default", "s"), plantest.Namespace("default"), ExcludedOwn},
		"all namespaces":               {all, plantest.Source("default", "s"), plantest.Namespace("other"), NotExcluded},
		"target out of scope":          {testRules(), source(), plantest.Namespace("other"), ExcludedName},
		"source out of scope":          {fromPlatform(), plantest.Source("base", "s"), a, ExcludedSource},
		"C28 terminating":              {testRules(), source(), plantest.Terminating("team-a"), ExcludedTerminating},
		"C31 opted out":                {testRules(), source(selector("tier=gold")), optedOut, ExcludedByOptOut},
		"C31 label of another value":   {testRules(), source(), unlike, NotExcluded},
		"C31 the default label of old": {relabelled, source(), optedOut, NotExcluded},
		"C05 reserved name":            {testRules(), plantest.Source("platform", "kube-root-ca.crt"), a, ExcludedSource},
		"C05 by OpenShift": {testRules(), plantest.Source("base", "openshift-service-ca.crt"), a,
			ExcludedSource},
		"C05 by Istio":                  {testRules(), plantest.Source("platform", "istio-ca-root-cert"), a, ExcludedSource},
		"C05 much like a reserved name": {testRules(), plantest.Source("platform", "kube-root-ca"), a, NotExcluded},
		"C31 frozen":                    {testRules(), source(prefix("team-a,Team")), a, ExcludedSource},
		"C09 narrowed to a whole name":  {testRules(), source(prefix("team-a")), plantest.Namespace("team-ab"), NotExcluded},
		"narrowed to another": {testRules(), source(selector("tier=gold"), prefix("team-b")),
			gold, ExcludedByPrefix},
		"narrowing does not widen": {testRules(), source(prefix("other")), plantest.Namespace("other"), ExcludedName},
		"not selected": {testRules(), source(selector("tier=gold"), prefix("team-a")),
			a, ExcludedBySelector},
		"not selected by the flag": {gilded, source(), a, ExcludedByNamespaceSelector},
		"namespace without labels": {testRules(), source(selector("!tier")), bare, NotExcluded},
		"C47 a selector at its limit": {testRules(), source(selector(strings.Repeat("!a,", 1364) + "!bcd")), bare,
			NotExcluded},
	} {
		s := tc.rules.ParseSource(tc.src)
		if got := tc.rules.Exclusion(s, tc.ns); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

// TestC03NewViewSorts the same sources in many orders: the winner depends on the cluster alone. No label makes a
// namespace that the flags allow by name one of the platform (C51).
func TestC03NewViewSorts(t *testing.T) {
	r := testRules(func(o *Options) {
		o.SourceNamespaces, o.NamespaceSelector = []string{"team-a", "team-b", "team-x", "z", "b"}, "tier"
	})
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
	random := rand.New(rand.NewPCG(3, 0))
	for range 200 {
		random.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		v, before := NewView(sources), namespaces(sources)
		got := namespaces(v.All())
		if want := []string{"team-x", "z", "b", "team-a", "team-b", "elsewhere"}; !slices.Equal(got, want) ||
			len(v.OutOfScope) != 1 {
			t.Fatalf("got %v, want %v, of which the last is out of scope", got, want)
		}
		if after := namespaces(sources); !slices.Equal(after, before) {
			t.Fatalf("got the argument changed to %v, want %v", after, before)
		}
	}
}

func namespaces(sources []*Source) (list []string) {
	for _, s := range sources {
		list = append(list, s.Key.Namespace)
	}
	return list
}

// TestC54KnownAnnotations: each key of the contract is known, and so are keys of other domains.
func TestC54KnownAnnotations(t *testing.T) {
	text, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range regexp.MustCompile(`(?m)Annotation\s+= Domain \+ "(/.*)"$`).FindAllStringSubmatch(string(text), -1) {
		keys = append(keys, Domain+m[1])
	}
	slices.Sort(keys)
	known := slices.Sorted(slices.Values(slices.Concat(ourAnnotations, sourceAnnotations)))
	if !slices.Equal(keys, known) {
		t.Errorf("known are %v, want those of keys.go, %v", known, keys)
	}
	annotations := map[string]string{"namespace-prefixes": "", "x" + Domain + "/namespace-prefixes": "",
		Domain + ".example/x": "", Domain: ""}
	for _, key := range keys {
		annotations[key] = "true"
	}
	if err := checkKnown(annotations); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
