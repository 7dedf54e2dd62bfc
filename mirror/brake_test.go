package mirror

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// letters keeps the text of events, each behind the object that it is about.
type letters []string

func (l *letters) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	cm := regarding.(*corev1.ConfigMap)
	*l = append(*l, fmt.Sprintf("%s/%s %s %s %s: ", cm.Namespace, cm.Name, kind, reason, action)+fmt.Sprintf(note, args...))
}

// knowing returns a controller with these ConfigMaps and their namespaces in its caches, and the events that it tells.
// It mirrors from platform into team-* and is not run.
func knowing(t *testing.T, pruneLimit Percent, configMaps ...*corev1.ConfigMap) (*Controller, *letters) {
	t.Helper()
	o := NewOptions()
	o.NamespacePrefixes, o.SourceNamespaces, o.PruneLimit = []string{"team-"}, []string{"platform"}, pruneLimit
	told := &letters{}
	c, err := New(fake.NewClientset(), told, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.queue.ShutDown)
	t.Cleanup(c.retries.queue.ShutDown)
	has(t, c, configMaps...)
	return c, told
}

// has puts ConfigMaps and their namespaces into the caches.
func has(t *testing.T, c *Controller, configMaps ...*corev1.ConfigMap) {
	t.Helper()
	for _, cm := range configMaps {
		if err := c.configMaps.GetIndexer().Add(cm); err != nil {
			t.Fatal(err)
		}
		if err := c.namespaces.GetIndexer().Add(namespace(cm.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
}

// copyIn returns the copy of src in a namespace, with a UID of its own.
func copyIn(src *corev1.ConfigMap, namespace string, options ...cmOption) *corev1.ConfigMap {
	return copyCM(testRules(), src, namespace, append([]cmOption{func(cm *corev1.ConfigMap) {
		cm.UID = types.UID(cm.Namespace + "/" + cm.Name)
	}}, options...)...)
}

// copiesIn returns n of them, in prefix-000 and so on.
func copiesIn(src *corev1.ConfigMap, prefix string, n int) (copies []*corev1.ConfigMap) {
	for _, namespace := range numbered(prefix, n) {
		copies = append(copies, copyIn(src, namespace))
	}
	return copies
}

// judged has the copies judged, and returns what was logged.
func judged(t *testing.T, c *Controller) string {
	t.Helper()
	var out bytes.Buffer
	c.judgeStrangers(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))))
	return out.String()
}

// TestC17Strangers: a stranger is what would be deleted because of the flags and for no other reason; the share is of all
// copies of ours.
func TestC17Strangers(t *testing.T) {
	settings, extra := sourceCM("platform", "settings"), sourceCM("elsewhere", "extra")
	gone := sourceCM("platform", "gone")
	taken, takes := sourceCM("elsewhere", "taken"), sourceCM("platform", "taken")
	narrowed := sourceCM("platform", "narrowed", annotation(PrefixAnnotation, "team-b"))
	frozen := sourceCM("platform", "frozen", annotation(PrefixAnnotation, "Team"))
	sources := []*corev1.ConfigMap{settings, extra, taken, takes, narrowed, frozen}
	for name, tc := range map[string]struct {
		cm             *corev1.ConfigMap
		stranger, ours bool
	}{
		"in line":                            {copyIn(settings, "team-a"), false, true},
		"outside the prefixes":               {copyIn(settings, "other"), true, true},
		"from outside the source namespaces": {copyIn(extra, "team-a"), true, true},
		"both":                               {copyIn(extra, "other"), true, true},
		"of a source that is gone":           {copyIn(gone, "other"), false, true},
		"that another source takes over":     {copyIn(taken, "team-a"), false, true},
		"narrowed away":                      {copyIn(narrowed, "team-a"), false, true},
		"of a frozen source":                 {copyIn(frozen, "other"), false, true},
		"on its way out":                     {copyIn(settings, "other", deleting), false, true},
		"of another instance":                {copyIn(settings, "other", annotation(InstanceAnnotation, "other")), false, false},
		"foreign":                            {configMap("other", "settings", label(DefaultLabel, CopyValue)), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := knowing(t, 50, append(sources, tc.cm)...)
			strangers, copies := c.strangers()
			if got := slices.Contains(strangers, tc.cm); got != tc.stranger || len(strangers) > 1 {
				t.Errorf("got %d strangers, this one %v, want %v", len(strangers), got, tc.stranger)
			}
			if (copies == 1) != tc.ours || copies > 1 {
				t.Errorf("got %d copies, want it counted %v", copies, tc.ours)
			}
		})
	}
}

// TestC17StrangersUpToTheLimitGo, and only those that were there when they were judged.
func TestC17StrangersUpToTheLimitGo(t *testing.T) {
	settings := sourceCM("platform", "settings")
	for name, tc := range map[string]struct {
		limit          Percent
		inside, beyond int
	}{
		"few":                  {50, 0, pruneFree},
		"a small share":        {50, 30, 20},
		"all, without a limit": {100, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			strangers := copiesIn(settings, "other", tc.beyond)
			c, told := knowing(t, tc.limit, append(append(copiesIn(settings, "team", tc.inside), strangers...), settings)...)
			if said := judged(t, c); !strings.Contains(said, "Deleting the copies") || strings.Contains(said, "Not deleting") {
				t.Errorf("got it logged: %s", said)
			}
			if c.blocked.Load() || len(*told) > 0 {
				t.Errorf("got the brake %v and events %q, want none", c.blocked.Load(), *told)
			}
			late := copyIn(settings, "other-late")
			has(t, c, late)
			decided := func(namespace string) change {
				return c.rules.decide(c.view("settings"), c.target("settings", job{namespace: namespace}))
			}
			for _, cm := range strangers {
				if got := decided(cm.Namespace); !got.byFlags {
					t.Errorf("%s: got %v, want it deleted because of the flags", cm.Namespace, got.op)
				}
			}
			if got := decided(late.Namespace); got.op != opNone || got.outcome != outcomeStranger {
				t.Errorf("turned up later: got %v and %v, want it left alone", got.op, got.outcome)
			}
		})
	}
}

// TestC17TooManyStrangersStay, and each source of theirs is told once.
func TestC17TooManyStrangersStay(t *testing.T) {
	settings, extra, happy := sourceCM("platform", "settings"), sourceCM("elsewhere", "extra"), sourceCM("platform", "happy")
	strangers := append(copiesIn(settings, "other", 8), copiesIn(extra, "team", 4)...)
	c, told := knowing(t, 50, append(append(copiesIn(happy, "team", 8), strangers...), settings, extra, happy)...)
	if said := judged(t, c); !strings.Contains(said, "Not deleting the copies") || strings.Contains(said, "Deleting") ||
		!strings.Contains(said, "outside=12 copies=20 pruneLimit=\"50%\"") {
		t.Errorf("got it logged: %s", said)
	}
	if !c.blocked.Load() {
		t.Error("got the brake off")
	}
	for _, cm := range strangers {
		if c.isPrunable(cm) {
			t.Errorf("got the copy in %s given free", cm.Namespace)
		}
	}
	slices.Sort(*told)
	what := " Warning PruneBlocked Prune: " + sayPruneBlocked(12, 20)
	if want := []string{"elsewhere/extra" + what, "platform/settings" + what}; !slices.Equal(*told, want) {
		t.Errorf("got events %q, want %q", *told, want)
	}
}

func TestC17NoStrangersNoWord(t *testing.T) {
	settings := sourceCM("platform", "settings")
	c, told := knowing(t, 50, append(copiesIn(settings, "team", 20), settings)...)
	if said := judged(t, c); said != "" || len(*told) > 0 || c.blocked.Load() {
		t.Errorf("got %q logged, events %q, the brake %v, want nothing", said, *told, c.blocked.Load())
	}
}

// TestC17TheSourceOfAStrangerMayBeGoneMeanwhile: there is nobody to tell, and the others are told.
func TestC17TheSourceOfAStrangerMayBeGoneMeanwhile(t *testing.T) {
	settings, gone := sourceCM("platform", "settings"), sourceCM("platform", "gone")
	c, told := knowing(t, 50, settings)
	c.tellBlocked([]*corev1.ConfigMap{copyIn(gone, "other"), copyIn(settings, "other")}, 3)
	if len(*told) != 1 || !strings.HasPrefix((*told)[0], "platform/settings ") {
		t.Errorf("got events %q, want one on platform/settings", *told)
	}
}
