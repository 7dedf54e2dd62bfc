package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// desk is a status, and the sources of the name settings that it is reported for.
type desk struct {
	t *testing.T
	*status
	sources []*plan.Source
}

// has makes these the sources, as the controller parses them. The first one is called "the source" here.
func (d *desk) has(list ...*corev1.ConfigMap) {
	d.sources = nil
	for _, cm := range list {
		d.sources = append(d.sources, teamRules().ParseSource(cm))
	}
}

// set records the state of a target.
func (d *desk) set(namespace string, r record) {
	n := d.lock("settings")
	defer n.unlock()
	n.set(namespace, "", r)
}

// at records a state of the source at targets.
func (d *desk) at(state plan.State, note string, namespaces ...string) {
	for _, namespace := range namespaces {
		rec := record{retry: retry{note: note}}
		if state != plan.StateNone {
			rec.basics = basics{state: state, countsFor: d.sources[0].Key, content: contentOf(d.sources[0])}
		}
		d.set(namespace, rec)
	}
}

// writes records copies of the source that were written.
func (d *desk) writes(namespaces ...string) {
	d.at(plan.StateSynced, "", namespaces...)
	n := d.lock("settings")
	defer n.unlock()
	n.source(d.sources[0].Key).wrote = time.Now()
}

// report returns what is new after the next fan-out, when every message is due, in the order of the namespaces.
func (d *desk) report() []sourceReport {
	time.Sleep(report.Spacing)
	return d.reportNow()
}

// reportNow is report without the wait.
func (d *desk) reportNow() []sourceReport {
	n := d.lock("settings")
	defer n.unlock()
	n.beginFanout()
	all, _ := reporterOf(d.t, d.status).collect(n, plan.NewView(d.sources), nil)
	slices.SortFunc(all, func(a, b sourceReport) int { return strings.Compare(a.Key.Namespace, b.Key.Namespace) })
	return all
}

// syncedDigits are the first digits of the checksum in the text of a Mirrored.
var syncedDigits = regexp.MustCompile(`^Synced [0-9a-f]{12}`)

// messages returns what is new, as "namespace Kind Reason Action: note".
func (d *desk) messages() (all []string) {
	for _, s := range d.report() {
		for _, m := range s.messages {
			note := syncedDigits.ReplaceAllString(m.Note, "Synced")
			all = append(all, fmt.Sprintf("%s %s %s: %s", s.Key.Namespace, m.Type, m.Reason, note))
		}
	}
	return all
}

// TestNews goes through the lives of sources. Each step records states, and then no target is in the queue. A wanted
// message is given by its beginning and, after each '|', a part of it.
func TestNews(t *testing.T) {
	type step struct {
		do   func(*desk)
		want []string
	}
	const (
		mirrored   = "platform Normal Mirrored: Synced to "
		foreign    = "platform Warning Foreign: Not copied to "
		failed     = "platform Warning WriteFailed: Out of sync in "
		outOfScope = "platform Warning OutOfScope: Copies in "
		fight      = "platform Warning Fight: Another client keeps modifying or deleting the copy in "
		frozen     = "platform Warning InvalidAnnotation: Frozen"
		reserved   = "platform Warning ReservedName: Not mirrored"
		held       = "platform Normal Held: Held in "
	)
	has := func(options ...plantest.Option) func(*desk) {
		return func(d *desk) { d.has(sourceIn("platform", options...)) }
	}
	changed, malformed := has(plantest.Data("key", "changed")), has(plantest.Annotation(plan.PrefixAnnotation, "Team"))
	at := func(state plan.State, namespaces ...string) func(*desk) {
		return func(d *desk) { d.at(state, "", namespaces...) }
	}
	noted := func(state plan.State, note string, namespaces ...string) func(*desk) {
		return func(d *desk) { d.at(state, note, namespaces...) }
	}
	wrote := func(namespaces ...string) func(*desk) { return func(d *desk) { d.writes(namespaces...) } }
	all := func(steps ...func(*desk)) func(*desk) {
		return func(d *desk) {
			for _, s := range steps {
				s(d)
			}
		}
	}
	for name, steps := range map[string][]step{
		"a start, and new namespaces": {{at(plan.StateSynced, "a"), []string{mirrored + "1 namespace"}}, {wrote("b"), nil}},
		"the content changes, and another process writes all but the first copies": {
			{wrote("a"), []string{mirrored + "1 namespace"}}, {all(changed, at(plan.StateSynced, "a")), []string{mirrored + "1 namespace"}},
		},
		"a target goes": {
			{wrote("a", "b"), []string{mirrored + "2 namespaces"}},
			{at(plan.StateNone, "a"), nil},
			{all(changed, wrote("b")), []string{mirrored + "1 namespace"}},
		},
		"foreign objects, more and fewer": {
			{at(plan.StateForeign, "b"), []string{foreign + "namespace b: ", mirrored + "0 namespaces; 1 is blocked (see Foreign)"}},
			{at(plan.StateForeign, "d", "a"), []string{foreign + "3 namespaces (a, b, d): ", mirrored + "0 namespaces; 3 are blocked (see Foreign)"}},
			{wrote("b"), []string{foreign + "2 namespaces (a, d): ", mirrored + "1 namespace; 2 are blocked (see Foreign)"}},
			{at(plan.StateNone, "a", "d"), []string{mirrored + "1 namespace"}},
		},
		"a problem is over, and nothing is there": {{at(plan.StateForeign, "b"), []string{foreign, mirrored + "0 namespaces; 1 is blocked (see Foreign)"}}, {at(plan.StateNone, "b"), nil}},
		"a rejected write": {
			{all(noted(plan.StateRejected, "quota", "b"), wrote("a")), []string{failed + "namespace b|Error in b: quota", mirrored + "1 namespace; 1 is blocked (see WriteFailed)"}},
			{noted(plan.StateRejected, "no", "a"), []string{failed + "2 namespaces (a, b)|Error in a: no", mirrored + "0 namespaces; 2 are blocked (see WriteFailed)"}},
			{wrote("a", "b"), []string{mirrored + "2 namespaces"}},
		},
		"copies out of scope": {
			{all(at(plan.StateOutOfScope, "y", "z", "x"), at(plan.StateSynced, "a")), []string{outOfScope + "3 namespaces (x, y, z)", mirrored + "1 namespace"}},
			{at(plan.StateNone, "x", "y", "z"), []string{mirrored + "1 namespace"}},
		},
		"a source out of scope": {
			{all(malformed, func(d *desk) { d.sources[0].OutOfScope = true }, at(plan.StateOutOfScope, "x")),
				[]string{outOfScope + "namespace x"}},
		},
		"a fight": {
			{at(plan.StateFight, "b", "c", "a", "d"), []string{fight + "4 namespaces (a, b, c, d)", mirrored + "0 namespaces; 4 are blocked (see Fight)"}},
			{at(plan.StateSynced, "a", "b", "c", "d"), []string{mirrored + "4 namespaces"}},
		},
		"problems of all kinds": {
			{all(at(plan.StateForeign, "b"), noted(plan.StateRejected, "no", "d"), at(plan.StateFight, "e"),
				at(plan.StateOutOfScope, "f"), wrote("a")), []string{foreign, failed, fight, outOfScope, mirrored + "1 namespace; 3 are blocked (see Fight, Foreign, WriteFailed)"}},
		},
		"malformed, and fixed": {
			{wrote("a"), []string{mirrored + "1 namespace"}},
			{all(malformed, at(plan.StateFrozen, "a")), []string{frozen + `|namespace-prefix="Team"`}},
			{all(has(plantest.Annotation(plan.PrefixAnnotation, "Team"), plantest.Data("key", "changed")), wrote("a")), nil},
			{all(has(), at(plan.StateSynced, "a")), []string{mirrored + "1 namespace"}},
			{malformed, []string{frozen}},
		},
		"C62 a change in stages": {
			{wrote("a", "b"), []string{mirrored + "2 namespaces"}},
			{all(has(plantest.Data("key", "changed"), plantest.Annotation(plan.RolloutAnnotation, "tier=canary")), wrote("a"), at(plan.StateHeld, "b")),
				[]string{held + `1 of 2 namespaces by the annotation mirror-controller.github.io/rollout="tier=canary": they keep their copies as they are.`,
					mirrored + "1 namespace; 1 is held by rollout"}},
			{all(has(plantest.Data("key", "changed"), plantest.Annotation(plan.RolloutAnnotation, "tier=canary"), plantest.Annotation(plan.PausedAnnotation, "true")), at(plan.StateHeld, "b", "c")),
				[]string{held + `2 of 3 namespaces by the annotation mirror-controller.github.io/paused="true", which wins over mirror-controller.github.io/rollout="tier=canary": they keep their copies as they are. To reach them, remove both annotations.`,
					mirrored + "1 namespace; 2 are held by paused"}},
			{all(has(plantest.Data("key", "changed")), wrote("b", "c")), []string{mirrored + "3 namespaces"}},
		},
		"C62 none is held": {{all(has(plantest.Annotation(plan.RolloutAnnotation, "tier=canary")), wrote("a")), []string{mirrored + "1 namespace"}}},
		"C62 all are held": {{all(has(plantest.Annotation(plan.PausedAnnotation, "true")), at(plan.StateHeld, "a")),
			[]string{held + "1 of 1 namespace by", mirrored + "0 namespaces; 1 is held by paused"}}},
		"C62 a warning is over, and a hold goes on": {
			{all(has(plantest.Annotation(plan.RolloutAnnotation, "tier=canary")), wrote("a"), at(plan.StateHeld, "b"), at(plan.StateOutOfScope, "x")),
				[]string{outOfScope + "namespace x", held, mirrored + "1 namespace; 1 is held by rollout"}},
			{at(plan.StateNone, "x"), []string{mirrored + "1 namespace; 1 is held by rollout"}},
		},
		"malformed twice over": {{has(plantest.Annotation(plan.PrefixAnnotation, "A"), plantest.Annotation(plan.SelectorAnnotation, "a=b=c")),
			[]string{frozen + "|namespace-prefix|; annotation mirror-controller.github.io/namespace-selector"}}},
		"a reserved name":                          {{func(d *desk) { d.sources[0].Reserved = true; d.writes("a") }, []string{reserved + "|settings"}}},
		"a source out of scope of a reserved name": {{func(d *desk) { d.sources[0].Reserved, d.sources[0].OutOfScope = true, true }, nil}},
		"the source goes and comes back": {
			{wrote("a"), []string{mirrored + "1 namespace"}},
			{all(at(plan.StateNone, "a"), func(d *desk) { d.has() }), nil},
			{all(has(), wrote("a")), []string{mirrored + "1 namespace"}},
		},
		"a problem of a source that is gone": {{all(at(plan.StateForeign, "a"), func(d *desk) { d.has() }), nil}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &desk{t: t, status: newStatus()}
				d.has(sourceIn("platform"))
				for i, s := range steps {
					s.do(d)
					got := d.messages()
					if len(got) != len(s.want) {
						t.Fatalf("step %d: got %q, want %q", i, got, s.want)
					}
					for j, want := range s.want {
						parts := strings.Split(want, "|")
						if !strings.HasPrefix(got[j], parts[0]) || strings.Contains(want, mirrored) && got[j] != want {
							t.Errorf("step %d: got %q, want it to begin with %q", i, got[j], parts[0])
						}
						for _, part := range parts[1:] {
							if !strings.Contains(got[j], part) {
								t.Errorf("step %d: got %q, want in it %q", i, got[j], part)
							}
						}
					}
					if again := d.messages(); len(again) > 0 {
						t.Errorf("step %d: got %q a second time", i, again)
					}
				}
			})
		})
	}
}

// TestRejectedDeletionIsReportedOnce although each try waits for a live read.
func TestRejectedDeletionIsReportedOnce(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		s.delay(func(apitest.Call) time.Duration { return 5 * time.Millisecond })
		s.refuse(func(c apitest.Call) error {
			if c.Verb == "delete" {
				return apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("no"))
			}
			return nil
		})
		s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, "none"))
		time.Sleep(time.Hour)
		if n := s.reported(plan.ReasonWriteFailed); n != 1 {
			t.Errorf("got %d events about a deletion that stays rejected, want 1", n)
		}
	})
}

// TestRecreatedSourceGetsItsEvents: the events of its predecessor do not show on it.
func TestRecreatedSourceGetsItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, status: newStatus()}
		for _, uid := range []types.UID{"one", "two"} {
			d.has(sourceIn("platform", func(cm *corev1.ConfigMap) { cm.UID = uid }))
			d.at(plan.StateForeign, "", "team-a")
			if got := d.messages(); len(got) != 2 {
				t.Errorf("%s: got %q, want two events", uid, got)
			}
		}
	})
}

// TestC47SpacingOfATenantsFlips: a tenant changes ten times a second what there is to report. There is a message in ten seconds,
// and the last one tells of the newest state.
func TestC47SpacingOfATenantsFlips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, status: newStatus()}
		d.has(sourceIn("platform"))
		var all []string
		for i := range 301 {
			d.at(plan.StateForeign, "", []string{"a", "b"}[i%2])
			d.at(plan.StateSynced, "", []string{"b", "a"}[i%2])
			time.Sleep(runGap)
			for _, s := range d.reportNow() {
				for _, m := range s.messages {
					all = append(all, m.Note)
				}
			}
		}
		all = append(all, d.messages()...)
		if n := len(all); n < 3 || n > 5 || !strings.Contains(all[n-1], "namespace a:") {
			t.Errorf("got messages %q in 40 seconds, want about four, and the last about a", all)
		}
	})
}

// TestNewestStateIsReported in the end, although nothing else happens.
func TestNewestStateIsReported(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		for _, prefix := range []string{"A", "B", "C"} {
			s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, prefix))
			time.Sleep(time.Second)
		}
		time.Sleep(report.Spacing)
		if got := s.notesOf(plan.ReasonInvalidAnnotation); len(got) != 2 || !strings.Contains(got[1], `="C"`) {
			t.Errorf("got events %q, want one about A and one about C", got)
		}
	})
}

// TestReportWaits: there is no report without news, none while a target is queued, unless that lasts, and none of another view
// than that of the fan-out.
func TestReportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, status: newStatus()}
		d.has(sourceIn("platform"))
		v := plan.NewView(d.sources)
		check := func(what string, want bool) {
			t.Helper()
			n := d.lock("settings")
			defer n.unlock()
			if all, _ := reporterOf(t, d.status).collect(n, v, nil); (all != nil) != want {
				t.Errorf("%s: got %v, want a report: %v", what, all, want)
			}
		}
		check("at first", false)
		d.at(plan.StateForeign, "", "team-a")
		check("a foreign object", true)
		time.Sleep(runGap)
		check("nothing new", false)
		d.set("team-b", record{basics: basics{state: plan.StatePending, countsFor: settings("platform"), queued: true}})
		d.at(plan.StateForeign, "", "team-c")
		check("a target is queued", false)
		time.Sleep(reportAfter)
		n := d.lock("settings")
		n.view = plan.NewView(d.sources)
		n.unlock()
		check("another view", false)
		n = d.lock("settings")
		n.view = v
		n.unlock()
		check("a target is queued for long", true)
	})
}

// TestEventsAreLoggedWithTheirType, so that a filter of the log finds the warnings.
func TestEventsAreLoggedWithTheirType(t *testing.T) {
	d := &desk{t: t, status: newStatus()}
	d.has(sourceIn("platform"))
	d.at(plan.StateForeign, "", "b")
	d.writes("a")
	var out bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	r := reporterOf(t, d.status)
	r.report(ctx, "settings", plan.NewView(d.sources))
	for _, want := range []string{`type="Warning" reason="Foreign"`, `type="Normal" reason="Mirrored"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %s, want in it %s", out.String(), want)
		}
	}
}
