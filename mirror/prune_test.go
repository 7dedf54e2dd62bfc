package mirror

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// notes are the texts of events, each after the object that it is about.
type notes []string

func (n *notes) AnnotatedEventf(regarding runtime.Object, _ map[string]string, kind, reason, note string, args ...any) {
	cm := regarding.(*corev1.ConfigMap)
	*n = append(*n, fmt.Sprintf("%s/%s %s %s: ", cm.Namespace, cm.Name, kind, reason)+fmt.Sprintf(note, args...))
}

// pruning returns a controller that takes sources from platform and mirrors them into team-*.
func pruning(t *testing.T, limit plan.Percent, configMaps ...*corev1.ConfigMap) (*Controller, *notes) {
	return stillController(t, func(o *Options) { o.SourceNamespaces, o.PruneLimit = []string{"platform"}, limit }, configMaps...)
}

// copies returns n copies, in prefix-000 and so on.
func copies(source *corev1.ConfigMap, prefix string, n int) (all []*corev1.ConfigMap) {
	for _, namespace := range numbered(prefix, n) {
		all = append(all, plantest.Copy(teamRules(), source, namespace))
	}
	return all
}

// judged judges the copies out of scope. It returns what was logged.
func (c *Controller) judged(t *testing.T) (blocked bool, logged string) {
	t.Helper()
	var out bytes.Buffer
	blocked = c.pruner.judge(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))))
	return blocked, out.String()
}

// TestOutOfScope: a copy is out of scope if its source is there and only the flags are against it.
func TestOutOfScope(t *testing.T) {
	wanted, extra := sourceIn("platform"), plantest.Source("elsewhere", "extra")
	gone := plantest.Source("platform", "gone")
	taken, takes := plantest.Source("elsewhere", "taken"), plantest.Source("platform", "taken")
	narrowed := plantest.Source("platform", "narrowed", plantest.Annotation(plan.PrefixAnnotation, "team-b"))
	frozen := plantest.Source("platform", "frozen", plantest.Annotation(plan.PrefixAnnotation, "Team"))
	copyOf := func(source *corev1.ConfigMap, namespace string, options ...plantest.Option) *corev1.ConfigMap {
		return plantest.Copy(teamRules(), source, namespace, options...)
	}
	for name, tc := range map[string]struct {
		cm   *corev1.ConfigMap
		want bool
	}{
		"in sync":                             {copyOf(wanted, "team-a"), false},
		"in a namespace out of scope":         {copyOf(wanted, "other"), true},
		"of a source out of scope":            {copyOf(extra, "team-a"), true},
		"both":                                {copyOf(extra, "other"), true},
		"of a source that is gone":            {copyOf(gone, "other"), false},
		"that another source takes over":      {copyOf(taken, "team-a"), false},
		"that the source does not select":     {copyOf(narrowed, "team-a"), false},
		"of a frozen source":                  {copyOf(frozen, "other"), false},
		"that is being deleted":               {copyOf(wanted, "other", plantest.Deleting), false},
		"of another instance":                 {copyOf(wanted, "other", plantest.Annotation(plan.InstanceAnnotation, "other")), false},
		"foreign":                             {plantest.ConfigMap("other", "settings", plantest.Label("mirror", "copy")), false},
		"in a namespace that is not yet seen": {copyOf(wanted, "unseen"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := pruning(t, 50, wanted, extra, taken, takes, narrowed, frozen, tc.cm)
			if tc.cm.Namespace == "unseen" {
				if err := c.caches.namespaces.GetIndexer().Delete(plantest.Namespace("unseen")); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.pruner.rules.JudgePruning(c.caches, 50).OutOfScope; slices.Contains(got, tc.cm) != tc.want || len(got) > 1 {
				t.Errorf("got %d copies out of scope, want this one: %v", len(got), tc.want)
			}
		})
	}
}

// TestPruneLimit: the limit is a share of the wanted copies and those out of scope.
func TestPruneLimit(t *testing.T) {
	const blocks, allows = true, false
	for name, tc := range map[string]struct {
		limit              plan.Percent
		wanted, outOfScope int
		forged             int // copies of sources that are not there
		blocks             bool
	}{
		"C56 three, and it is all":       {50, 0, 3, 0, blocks},
		"less than half":                 {50, 21, 20, 0, allows},
		"half":                           {50, 20, 20, 0, blocks},
		"forged copies do not count":     {50, 20, 20, 100, blocks},
		"all, without a limit":           {100, 0, 20, 0, allows},
		"one, with a limit of zero":      {0, 100, 1, 0, blocks},
		"a small share, and a small one": {1, 100, 11, 0, blocks},
	} {
		t.Run(name, func(t *testing.T) {
			source := sourceIn("platform")
			outOfScope := copies(source, "other", tc.outOfScope)
			c, notes := pruning(t, tc.limit, append(append(copies(plantest.Source("platform", "forged"), "team", tc.forged), outOfScope...), source)...)
			for _, namespace := range numbered("team", 100)[tc.wanted:] {
				c.showNamespace(t, plantest.Namespace(namespace, "mirror", "false"))
			}
			for _, namespace := range numbered("team", tc.wanted) {
				c.showNamespace(t, plantest.Namespace(namespace))
			}
			blocked, logged := c.judged(t)
			if blocked != tc.blocks {
				t.Errorf("got blocked %v, want %v", blocked, tc.blocks)
			}
			for _, cm := range outOfScope {
				if got := c.caches.target(plan.KeyOf(cm)).Prunable; got == tc.blocks {
					t.Errorf("%s: got it prunable %v", cm.Namespace, got)
				}
			}
			sizes := fmt.Sprintf("outOfScope=%d copies=%d pruneLimit=\"%v\"", tc.outOfScope, tc.wanted+tc.outOfScope, tc.limit)
			if !strings.Contains(logged, sizes) || strings.Contains(logged, `type="Warning" reason="PruneBlocked"`) != tc.blocks || len(*notes) > 0 != tc.blocks {
				t.Errorf("got %s and events %q, want %s", logged, *notes, sizes)
			}
			late := plantest.Copy(teamRules(), source, "late", func(cm *corev1.ConfigMap) { cm.UID = "late" })
			c.show(t, late)
			if c.caches.target(plan.KeyOf(late)).Prunable {
				t.Error("got a copy prunable that turned up later")
			}
		})
	}
}

// TestPruneBlockedIsReported once on each source.
func TestPruneBlockedIsReported(t *testing.T) {
	source, extra := sourceIn("platform"), plantest.Source("elsewhere", "extra")
	happy, gone := plantest.Source("platform", "happy"), plantest.Source("platform", "gone")
	all := slices.Concat(copies(source, "other", 8), copies(extra, "team", 4), []*corev1.ConfigMap{source, extra, happy})
	c, got := pruning(t, 50, all...)
	if blocked, _ := c.judged(t); !blocked {
		t.Error("got the copies out of scope deleted")
	}
	slices.Sort(*got)
	what := " Warning PruneBlocked: " + pruneBlockedText(12, 20)
	if want := []string{"elsewhere/extra" + what, "platform/settings" + what}; !slices.Equal(*got, want) {
		t.Errorf("got events %q, want %q", *got, want)
	}
	*got = nil
	c.pruner.reportBlocked(plan.Pruning{Copies: 3,
		OutOfScope: []*corev1.ConfigMap{plantest.Copy(teamRules(), gone, "other"), plantest.Copy(teamRules(), source, "other")}})
	if len(*got) != 1 || !strings.HasPrefix((*got)[0], "platform/settings ") {
		t.Errorf("a source that went meanwhile: got events %q, want one on the other source", *got)
	}
}

// TestNothingOutOfScope: then nothing is logged and nothing is free to delete.
func TestNothingOutOfScope(t *testing.T) {
	source := sourceIn("platform")
	c, notes := pruning(t, 0, append(copies(source, "team", 20), source)...)
	blocked, logged := c.judged(t)
	if blocked || logged != "" || len(*notes) > 0 || len(c.caches.prunable) > 0 {
		t.Errorf("got blocked %v, %q logged, events %q, want nothing", blocked, logged, *notes)
	}
}

// TestPruneLimitByNamespaceSelector: a changed selector is judged at the takeover, as a changed prefix is. A label that changes
// later is none of its business.
func TestPruneLimitByNamespaceSelector(t *testing.T) {
	for name, tc := range map[string]struct {
		limit plan.Percent
		left  int
	}{"blocked": {50, 12}, "allowed": {100, 0}} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{source()}
			for _, namespace := range numbered("team", 12) {
				objects = append(objects, plantest.Namespace(namespace), copyOf(source(), namespace))
			}
			edit := func(o *Options) { o.NamespaceSelector, o.PruneLimit = "tier", tc.limit }
			alone(t, having(objects...), edit, func(t *testing.T, s scene) {
				time.Sleep(time.Minute)
				if n := s.copied("team", "value"); n != tc.left {
					t.Fatalf("got %d copies, want %d", n, tc.left)
				}
				if got := s.value("mirror_prune_blocked"); got != float64(tc.left) {
					t.Errorf("got %v copies blocked, want %d", got, tc.left)
				}
				first := numbered("team", 1)[0]
				s.setNamespace(plantest.Namespace(first, "tier", "gold"))
				time.Sleep(time.Minute)
				s.wantCopy(first, "value")
				s.setNamespace(plantest.Namespace(first))
				time.Sleep(time.Minute)
				s.wantNone(first)
			})
		})
	}
}
