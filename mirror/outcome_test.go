package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestOutcome of a run that makes each change.
func TestOutcome(t *testing.T) {
	cluster(t, oneOfEach(), func(t *testing.T, s scene) {
		const counts = "platform/settings: 5 synced, 1 foreign\n  team-foreign: foreign\n"
		s.wantOutcome(counts+"Changes: create 1, update 2, recreate 1, delete 2.\n", "")
		s.wantCopy("team-drift", "one")
		s.wantNone("team-optout")
		s.edit("platform", plantest.Data("key", "two"))
		synctest.Wait()
		s.wantOutcome(counts+"Changes: create 1, update 7, recreate 1, delete 2.\n", "")
	})
}

// TestOutcomeOfSources: each state of a source, and whether it counts as a failure.
func TestOutcomeOfSources(t *testing.T) {
	team := plantest.Namespace("team-a")
	src := source(plantest.Data("key", "one"))
	finalized := copyOf(src, "team-a", plantest.Finalizer, plantest.Deleting)
	for name, tc := range map[string]struct {
		objects       []runtime.Object
		text, problem string
	}{
		"nothing": {nil, "Changes: none.\n", ""},
		"two sources": {
			[]runtime.Object{team, src, plantest.Namespace("other"), plantest.Source("other", "settings", plantest.CreatedAt(1e9))},
			"other/settings: 1 superseded\n  team-a: superseded by platform/settings\nplatform/settings: 1 synced\nChanges: create 1.\n", "",
		},
		"a frozen source": {
			[]runtime.Object{team, source(plantest.Annotation(plan.PrefixAnnotation, "Team"))},
			"platform/settings: no targets\n  Frozen: ", "not in sync: 1 frozen source",
		},
		"a reserved name": {
			[]runtime.Object{team, plantest.Source("platform", "kube-root-ca.crt")},
			"platform/kube-root-ca.crt: no targets\n  Not mirrored: another controller writes ", "",
		},
		"no targets": {[]runtime.Object{src}, "platform/settings: no targets\nChanges: none.\n", ""},
		"a source out of scope": {
			[]runtime.Object{team, plantest.Source("elsewhere", "extra")}, "Changes: none.\n", "",
		},
		"a copy held by finalizers": {
			[]runtime.Object{team, src, finalized},
			"platform/settings: 1 pending\n  team-a: pending\nChanges: none.\n", "not in sync: 1 pending",
		},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, having(tc.objects...), func(o *Options) {
				if name == "a source out of scope" {
					o.SourceNamespaces = []string{"platform"}
				}
			}, func(t *testing.T, s scene) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if idle := s.controller.WaitIdle(ctx); idle == strings.Contains(tc.problem, "pending") {
					t.Errorf("got idle %v, want it unless something is pending", idle)
				}
				o, got := s.controller.Outcome(), ""
				if err := o.Err(); err != nil {
					got = err.Error()
				}
				if !strings.HasPrefix(o.String(), tc.text) || got != tc.problem {
					t.Errorf("got\n%s%q, want\n%s%q", o, got, tc.text, tc.problem)
				}
			})
		})
	}
}

// TestWaitIdle for what ends by itself, and not for what somebody has to solve.
func TestWaitIdle(t *testing.T) {
	full := apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("exceeded quota"))
	for name, tc := range map[string]struct {
		err           error
		lasts         time.Duration
		text, problem string
	}{
		"the API server is away": {errAway, 5 * time.Second, "platform/settings: 3 synced\nChanges: create 3.\n", ""},
		"for too long": {errAway, time.Hour,
			"platform/settings: 3 pending\n  team-000: pending\n  team-001: pending\n  team-002: pending\nChanges: none.\n", "not in sync: 3 pending"},
		"a quota": {full, time.Hour, "platform/settings: 3 failed\n  team-000: failed: ", "not in sync: 3 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			server := func() *apitest.Server {
				s, began := having(append(teams(3, "team-"), source())...)(), time.Now()
				s.Hook(func(h *apitest.Hooks) {
					h.Refuses = func(c apitest.Call) error {
						if c.Verb == "create" && time.Since(began) < tc.lasts {
							return tc.err
						}
						return nil
					}
				})
				return s
			}
			alone(t, server, func(*Options) {}, func(t *testing.T, s scene) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				idle := s.controller.WaitIdle(ctx)
				if took := time.Since(began); idle != (tc.problem != "not in sync: 3 pending") || took > tc.lasts+time.Minute {
					t.Errorf("got idle %v after %v", idle, took)
				}
				o, got := s.controller.Outcome(), ""
				if err := o.Err(); err != nil {
					got = err.Error()
				}
				if !strings.HasPrefix(o.String(), tc.text) || got != tc.problem {
					t.Errorf("got\n%s%q, want\n%s%q", o, got, tc.text, tc.problem)
				}
			})
		})
	}
}

// TestNotIdleBeforeItLeads: the wait does not end, and nothing is known.
func TestNotIdleBeforeItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, having()(), func(*Options) {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- s.controller.Run(ctx, Leadership{Begun: make(chan context.Context)}) }()
		if s.controller.WaitIdle(ctx) || s.controller.Outcome().Err() == nil || s.controller.Outcome().String() != "" {
			t.Errorf("got an outcome before the controller leads: %v", s.controller.Outcome())
		}
		s.noted(<-ended)
	})
}

// TestWaitIdleComparesEverything: many names, few workers, and targets that answer slowly.
func TestWaitIdleComparesEverything(t *testing.T) {
	objects := teams(20, "team-")
	for _, name := range numbered("name-", 50) {
		objects = append(objects, plantest.Source("platform", name))
	}
	server := func() *apitest.Server {
		s := having(objects...)()
		s.Hook(func(h *apitest.Hooks) { h.Takes = func(apitest.Call) time.Duration { return 30 * time.Millisecond } })
		return s
	}
	alone(t, server, func(o *Options) { o.ConcurrentSources, o.ConcurrentWrites = 1, 2 }, func(t *testing.T, s scene) {
		if o := s.outcome(5 * time.Minute); o.Err() != nil || o.Changes != (tally{plan.OpCreate: 1000}) || len(o.Sources) != 50 {
			t.Errorf("got %v and %v changes for %d sources, want 1000 creates for 50", o.Err(), o.Changes, len(o.Sources))
		}
	})
}

// TestWaitIdleForEvents: a copy counts as in sync until its event has been reconciled.
func TestWaitIdleForEvents(t *testing.T) {
	cluster(t, append(teams(3, "team-"), source()), func(t *testing.T, s scene) {
		s.outcome(time.Minute)
		s.delay(func(apitest.Call) time.Duration { return time.Second })
		s.remove("team-000")
		synctest.Wait()
		if o := s.outcome(time.Minute); o.Changes != (tally{plan.OpCreate: 4}) {
			t.Errorf("got the changes %v, want that the fourth create is waited for", o.Changes)
		}
	})
}

// TestNotIdleBeforeFanouts: a name whose fan-out has not begun may have anything to do.
func TestNotIdleBeforeFanouts(t *testing.T) {
	c, _ := stillController(t, func(*Options) {}, source())
	c.takeOver(t.Context())
	ended, end := context.WithCancel(t.Context())
	end()
	if c.WaitIdle(ended) {
		t.Error("got idle before any fan-out")
	}
}

// TestOutcomeErr counts what is no success.
func TestOutcomeErr(t *testing.T) {
	src := SourceOutcome{Frozen: true, Counts: [plan.States]int{
		plan.StateSynced: 1, plan.StatePending: 2, plan.StateForeign: 3, plan.StateSuperseded: 4, plan.StateFailed: 5, plan.StateFrozen: 6,
		plan.StateOutOfScope: 7, plan.StateFight: 8}}
	o := Outcome{Led: true, PruneBlocked: 9, Sources: []SourceOutcome{src, src}}
	const want = "not in sync: 10 failed, 16 kept out of sync by another client, 4 pending, 2 frozen sources, 9 kept by the prune limit"
	if err := o.Err(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestOutcomePrintsNoEscapes of an error that a tenant's webhook wrote.
func TestOutcomePrintsNoEscapes(t *testing.T) {
	o := Outcome{Led: true, Sources: []SourceOutcome{{Targets: []TargetOutcome{{Namespace: "team-a", State: plan.StateFailed, Note: "a\n\x1b[2Jb"}}}}}
	if text := o.String(); !strings.Contains(text, "  team-a: failed: a  [2Jb\n") {
		t.Errorf("got %q", text)
	}
}
