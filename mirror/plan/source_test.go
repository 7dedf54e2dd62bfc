package plan

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

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
		t.Run(name, func(t *testing.T) {
			src := plantest.Source("platform", "settings")
			src.Annotations = tc.annotations
			err := testRules().ParseSource(src).Frozen
			if err == nil {
				t.Fatal("got no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tc.want) {
				t.Fatalf("got %q, want %q", lines, tc.want)
			}
			if name == "C83 a long label" && !strings.Contains(lines[0], `": must be no more than 63 `) {
				t.Errorf("got %q, want the cause in it", lines[0])
			}
			for i, line := range lines {
				if len(line) > 1000 {
					t.Errorf("got %d bytes, want a text that fits into an event", len(line))
				}
				if !strings.HasPrefix(line, tc.want[i]) {
					t.Errorf("got %q, want it to begin with %q", line, tc.want[i])
				}
			}
		})
	}
}

// TestHold names the annotation that holds targets, and the remedy.
func TestHold(t *testing.T) {
	const isPaused = `mirror-controller.github.io/paused="true"`
	const isRollout = `mirror-controller.github.io/rollout="tier=canary"`
	paused := plantest.Annotation(PausedAnnotation, "true")
	rollout := plantest.Annotation(RolloutAnnotation, "tier=canary")
	for name, tc := range map[string]struct {
		options            []plantest.Option
		heldBy, by, remedy string
	}{
		"none":    {nil, "", "", "remove the annotation"},
		"paused":  {[]plantest.Option{paused}, "paused", isPaused, "remove the annotation"},
		"rollout": {[]plantest.Option{rollout}, "rollout", isRollout, "remove the annotation"},
		"both": {[]plantest.Option{paused, rollout}, "paused", isPaused + ", which wins over " + isRollout,
			"remove both annotations"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testRules().ParseSource(plantest.Source("platform", "settings", tc.options...))
			by, remedy := s.Hold()
			if s.HeldBy() != tc.heldBy || by != tc.by || remedy != tc.remedy {
				t.Errorf("got %q, %q, %q, want %q, %q, %q", s.HeldBy(), by, remedy, tc.heldBy, tc.by, tc.remedy)
			}
		})
	}
}

// TestSourceBytes counts keys and values: each copy takes as much of etcd.
func TestSourceBytes(t *testing.T) {
	cm := plantest.ConfigMap("platform", "settings", plantest.Data("ab", "c"), plantest.BinaryData("de", 0, 1, 2))
	if got := testRules().ParseSource(cm).Bytes; got != 8 {
		t.Errorf("got %d bytes, want 8", got)
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
		plantest.Source("elsewhere", "s", plantest.CreatedAt(0)), // out of scope
	} {
		sources = append(sources, r.ParseSource(cm))
	}
	random := rand.New(rand.NewPCG(3, 0))
	for range 200 {
		random.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
		v, before := NewView(sources), namespaces(sources)
		got := namespaces(v.All)
		if want := []string{"team-x", "z", "b", "team-a", "team-b", "elsewhere"}; !slices.Equal(got, want) ||
			!slices.Equal(namespaces(v.Sources), want[:5]) {
			t.Fatalf("got %v, want %v, of which the last is out of scope", got, want)
		}
		if after := namespaces(sources); !slices.Equal(after, before) {
			t.Fatalf("got the argument changed to %v, want %v", after, before)
		}
	}
}
