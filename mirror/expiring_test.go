package mirror

// Nothing is deleted in a hurry, and nothing happens silently.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// graced runs a controller with a deletion grace, the source platform/settings and the targets team-000 to team-002.
func graced(t *testing.T, grace time.Duration, f func(*testing.T, scene)) {
	t.Helper()
	objects := append(teams(3, "team-"), source())
	alone(t, having(objects...), func(o *Options) { o.DeletionGrace = grace }, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		f(t, s)
	})
}

// said returns the last event with this reason.
func (s scene) said(reason string) string {
	s.t.Helper()
	synctest.Wait()
	notes := s.notesOf(reason)
	if len(notes) == 0 {
		return ""
	}
	return notes[len(notes)-1]
}

func (s scene) uids() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, cm := range s.ConfigMaps.All() {
		uids[cm.Namespace] = cm.UID
	}
	return uids
}

// TestC52Expiring: each way by which copies lose their source is said, before the copies are deleted if the grace is long, and
// what to do keeps them.
func TestC52Expiring(t *testing.T) {
	for name, tc := range map[string]struct {
		lose, keep func(scene)
		want       []string // parts of the event
	}{
		"deleted": {
			func(s scene) { s.remove("platform") }, func(s scene) { s.write(source()) },
			[]string{"3 copies in 3 namespaces (team-000, team-001, team-002)", "the source is deleted, or has lost its label mirror=true", "create the source again"},
		},
		"unlabelled": {
			func(s scene) { s.edit("platform", plantest.Without("mirror")) }, func(s scene) { s.edit("platform", plantest.Label("mirror", "true")) },
			[]string{"3 copies", "has lost its label mirror=true", "label it again"},
		},
		"narrowed by a typing error": {
			func(s scene) { s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, "tema-")) },
			func(s scene) { s.edit("platform", plantest.Without(plan.PrefixAnnotation)) },
			[]string{"3 copies", plan.PrefixAnnotation + `="tema-" rules the namespace out`, "correct the annotation"},
		},
		"selector": {
			func(s scene) { s.edit("platform", plantest.Annotation(plan.SelectorAnnotation, "tier=gold")) },
			func(s scene) { s.edit("platform", plantest.Without(plan.SelectorAnnotation)) },
			[]string{"3 copies", plan.SelectorAnnotation + `="tier=gold" does not match the namespace`, "correct the annotation, or the labels"},
		},
		"opted out": {
			func(s scene) { s.setNamespace(plantest.Namespace("team-000", "mirror", "false")) },
			func(s scene) { s.setNamespace(plantest.Namespace("team-000")) },
			[]string{"1 copy in namespace team-000", "has the label mirror=false", "remove that label"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			graced(t, 5*time.Minute, func(t *testing.T, s scene) {
				before := s.uids()
				tc.lose(s)
				time.Sleep(runGap)
				got := s.said(ReasonExpiring)
				for _, want := range append(tc.want, "will be deleted from 2000-01-01 00:06:00 UTC on", "To keep ") {
					if !strings.Contains(got, want) {
						t.Errorf("got event %q, want in it %q", got, want)
					}
				}
				if n := s.value("mirror_copies", "expiring"); n == 0 || s.reported(ReasonExpiring) != 1 {
					t.Errorf("got %v copies expiring and %d events, want some and one", n, s.reported(ReasonExpiring))
				}
				time.Sleep(4 * time.Minute)
				tc.keep(s)
				time.Sleep(time.Hour)
				after := s.uids()
				delete(before, "platform")
				delete(after, "platform")
				if len(after) != 3 || !slices.Equal(slices.Sorted(maps.Values(before)), slices.Sorted(maps.Values(after))) {
					t.Errorf("got copies %v, want those of before, %v", after, before)
				}
				if s.value("mirror_copies", "expiring") != 0 || s.reported(ReasonExpiring) != 1 {
					t.Errorf("got %v copies expiring and %d events, want 0 and 1", s.value("mirror_copies", "expiring"), s.reported(ReasonExpiring))
				}
				tc.lose(s)
				time.Sleep(5*time.Minute - time.Second)
				if got := s.uids(); len(got) < 3 {
					t.Errorf("got %v before the end of the grace", got)
				}
				time.Sleep(10 * time.Second)
				s.wantNone("team-000")
			})
		})
	}
}

// TestC52DeletedIsSaid: with a grace in which nobody can act, what was deleted is said afterwards.
func TestC52DeletedIsSaid(t *testing.T) {
	graced(t, time.Second, func(t *testing.T, s scene) {
		s.remove("platform")
		time.Sleep(10 * time.Second)
		s.wantNone("team-000")
		got := s.notesOf(ReasonExpiring)
		want := "Deleted 3 copies in 3 namespaces (team-000, team-001, team-002): the source is deleted, or has lost its label mirror=true. " +
			"To get them back, create the source again, or label it again."
		if len(got) != 1 || got[0] != want {
			t.Errorf("got events %q, want %q", got, want)
		}
		s.write(source())
		time.Sleep(time.Minute)
		s.wantCopy("team-000", "value")
		if n := s.reported(ReasonExpiring); n != 1 {
			t.Errorf("got %d events, want no more", n)
		}
	})
}

// TestC52ClockThatIsSet does not shorten a grace: its begin keeps the reading of the monotonic clock.
func TestC52ClockThatIsSet(t *testing.T) {
	var r record
	cm := copyOf(source(), "team-000")
	step, _ := r.next(plan.Target{Have: cm}, plan.Change{Op: plan.OpDelete, Have: cm}, "", time.Minute, time.Now())
	if since := r.unclaimed.since; step != stepExpire || since == since.Round(0) {
		t.Errorf("got step %v, and the grace began at %v, want a monotonic reading", step, since)
	}
}

// TestC52EditsAreNoClaim: a source that is edited all the time, and does not select the namespaces, keeps no copy there.
func TestC52EditsAreNoClaim(t *testing.T) {
	alone(t, having(append(teams(100, "team-"), source())...), func(o *Options) { o.DeletionGrace, o.ConcurrentWrites = time.Minute, 1 }, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.delay(func(c apitest.Call) time.Duration {
			if c.Verb == "delete" {
				return 25 * time.Millisecond
			}
			return 0
		})
		s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, "tema-"))
		for i := range 5 * 70 {
			s.edit("platform", plantest.Data("edit", fmt.Sprint(i)))
			time.Sleep(200 * time.Millisecond)
		}
		if left := len(s.uids()) - 1; left != 0 {
			t.Errorf("got %d copies ten seconds after the grace, want none", left)
		}
	})
}

// TestC52HangingDeletionIsNotWaitedFor before the others are said to be deleted.
func TestC52HangingDeletionIsNotWaitedFor(t *testing.T) {
	graced(t, time.Second, func(t *testing.T, s scene) {
		s.hang(func(c apitest.Call) bool { return c.Verb == "delete" && c.Namespace == "team-001" })
		for range 2 { // also if they are lost twice before anything is said
			s.remove("platform")
			time.Sleep(5 * time.Second)
			s.write(source())
			time.Sleep(time.Second)
		}
		s.remove("platform")
		time.Sleep(time.Minute)
		if got := s.said(ReasonExpiring); !strings.HasPrefix(got, "Deleted 2 copies in 2 namespaces (team-000, team-002): ") {
			t.Errorf("got event %q, want both copies that are deleted", got)
		}
	})
}

// TestC52LossesAreSaidTogether: no loss is left out, and there is one line of the log for those within ten seconds.
func TestC52LossesAreSaidTogether(t *testing.T) {
	graced(t, time.Second, func(t *testing.T, s scene) {
		for _, namespace := range []string{"team-000", "team-001", "team-002"} {
			s.setNamespace(plantest.Namespace(namespace, "mirror", "false"))
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Minute)
		got := s.notesOf(ReasonExpiring)
		if len(got) != 2 || !strings.HasPrefix(got[0], "Deleted 1 copy in namespace team-000: ") ||
			!strings.HasPrefix(got[1], "Deleted 2 copies in 2 namespaces (team-001, team-002): ") {
			t.Errorf("got events %q, want one about the first copy, and one about the other two", got)
		}
	})
}

// TestC55NoTargets: a source that reaches no namespace says so, and why.
func TestC55NoTargets(t *testing.T) {
	graced(t, time.Second, func(t *testing.T, s scene) {
		s.addNamespace("other")
		s.setNamespace(plantest.Namespace("team-000", "mirror", "false"))
		time.Sleep(time.Minute)
		if got := s.said(ReasonNoTargets); got != "" {
			t.Errorf("got event %q about a source with targets", got)
		}
		s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, "team-000, tema-"))
		time.Sleep(time.Minute)
		want := "Not mirrored: of 3 namespaces that the flags of the controller allow, none is a target: " +
			`in 2 the source's annotation mirror-controller.github.io/namespace-prefix="team-000, tema-" rules the namespace out, ` +
			"in 1 the namespace has the label mirror=false. To mirror the source, correct the annotation; remove that label."
		if got := s.said(ReasonNoTargets); got != want {
			t.Errorf("got event %q, want %q", got, want)
		}
		s.addNamespace("team-003")
		time.Sleep(time.Second)
		if got := s.said(ReasonNoTargets); !strings.HasPrefix(got, "Not mirrored: of 4 namespaces") {
			t.Errorf("got event %q, want the new namespace in it", got)
		}
		s.setNamespace(plantest.Namespace("team-000"))
		time.Sleep(time.Minute)
		s.wantCopy("team-000", "value")
		if got := s.said(ReasonMirrored); s.reported(ReasonNoTargets) != 2 || got != "Synced to 1 namespace" {
			t.Errorf("got events %q and at last %q, want two NoTargets, and that it is over", s.all(), got)
		}
	})
}

// TestC55NoTargetsIsNotSaid about a source that loses to another one, and where the flags allow no namespace.
func TestC55NoTargetsIsNotSaid(t *testing.T) {
	for name, objects := range map[string][]*corev1.ConfigMap{"no namespace": {source()}, "superseded": {sourceIn("base"), source()}} {
		t.Run(name, func(t *testing.T) {
			server := having(plantest.Namespace("base"))
			if len(objects) > 1 {
				server = having(append(teams(2, "team-"), plantest.Namespace("base"))...)
			}
			alone(t, server, func(*Options) {}, func(t *testing.T, s scene) {
				for _, cm := range objects {
					s.write(cm)
				}
				time.Sleep(time.Minute)
				if n := s.reported(ReasonNoTargets); n != 0 {
					t.Errorf("got %d events NoTargets, want none", n)
				}
			})
		})
	}
}

// TestC52ReasonOfADeletion is what was judged, whatever becomes of the namespace during the call.
func TestC52ReasonOfADeletion(t *testing.T) {
	graced(t, time.Second, func(t *testing.T, s scene) {
		s.delay(func(c apitest.Call) time.Duration {
			if c.Verb == "delete" {
				return time.Second
			}
			return 0
		})
		s.setNamespace(plantest.Namespace("team-000", "mirror", "false"))
		time.Sleep(1500 * time.Millisecond)
		s.setNamespace(plantest.Terminating("team-000"))
		time.Sleep(time.Minute)
		if got := s.said(ReasonExpiring); !strings.HasPrefix(got, "Deleted 1 copy in namespace team-000: the namespace has the label mirror=false.") {
			t.Errorf("got event %q, want the label as the reason", got)
		}
	})
}

// TestC52DryRunAnnouncesNothing, because it deletes nothing.
func TestC52DryRunAnnouncesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := append(teams(1, "team-"), copyOf(source(), "team-000"))
		s := newScene(t, apitest.NewServer(objects...), func(o *Options) { o.DryRun, o.DeletionGrace = true, 5*time.Minute })
		var out logBuffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))
		ctx, stop := context.WithTimeout(klog.NewContext(t.Context(), logger), 10*time.Minute)
		defer stop()
		go func() {
			time.Sleep(8 * time.Minute)
			s.remove("team-000")
		}()
		s.noted(s.controller.Run(ctx, Alone(ctx)))
		if log := out.String(); strings.Contains(log, "eleted ") || !strings.Contains(log, "Would delete 1") {
			t.Errorf("got log %s, want that it would delete one copy, and nothing about the deletion by somebody else", log)
		}
	})
}

// TestC52HangingTargetHidesNothing: while one target of a source hangs, copies of the source that expire are announced in time.
func TestC52HangingTargetHidesNothing(t *testing.T) {
	for name, lose := range map[string]func(scene){
		"an edit that hangs": func(s scene) {
			s.edit("platform", plantest.Data("key", "new"), plantest.Annotation(plan.PrefixAnnotation, "team-002"))
		},
		"a repair that hangs": func(s scene) {
			s.edit("team-002", plantest.Data("key", "edited"))
			time.Sleep(time.Second)
			s.setNamespace(plantest.Namespace("team-000", "mirror", "false"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			graced(t, 12*time.Second, func(t *testing.T, s scene) {
				s.hang(func(c apitest.Call) bool { return c.Verb == "update" && c.Namespace == "team-002" })
				lose(s)
				time.Sleep(reportAfter + runGap)
				if got := s.said(ReasonExpiring); !strings.Contains(got, "team-000") || !strings.Contains(got, "will be deleted") {
					t.Errorf("got event %q", got)
				}
			})
		})
	}
}

// TestC52UnannouncedDeletion: a copy whose announcement had to wait until it was deleted is reported as deleted.
func TestC52UnannouncedDeletion(t *testing.T) {
	graced(t, shortestAnnounced, func(t *testing.T, s scene) {
		for i, after := range []time.Duration{9 * time.Second, 2 * time.Second, time.Minute} {
			s.setNamespace(plantest.Namespace(fmt.Sprintf("team-%03d", i), "mirror", "false"))
			time.Sleep(after)
		}
		all := strings.Join(s.notesOf(ReasonExpiring), "\n")
		for _, want := range []string{"team-000 will be deleted", "team-001 will be deleted", "Deleted 1 copy in namespace team-002"} {
			if strings.Count(all, want) != 1 {
				t.Errorf("got events %q, want in them once %q", all, want)
			}
		}
	})
}

// TestC52LostAnswer: a deletion that was carried out is reported also if its answer was lost, and no other one is.
func TestC52LostAnswer(t *testing.T) {
	optOut := func(s scene, label string) { s.setNamespace(plantest.Namespace("team-000", "mirror", label)) }
	deletions := func(answer func() error) func(apitest.Call) error {
		return func(c apitest.Call) error {
			if c.Verb == "delete" {
				return answer()
			}
			return nil
		}
	}
	late := func() error {
		time.Sleep(time.Second)
		return errAway
	}
	for name, tc := range map[string]struct {
		hook func(*apitest.Hooks)
		lose func(scene)
		want string // a part of the event; empty: there is none
	}{
		"a finalizer holds one of the copies": {
			func(h *apitest.Hooks) { h.Loses = deletions(late) },
			func(s scene) {
				s.edit("team-001", plantest.Finalizer)
				s.remove("platform")
			}, "Deleted 3 copies",
		},
		"the namespace is a target again before the answer": {
			func(h *apitest.Hooks) { h.Loses = deletions(late) },
			func(s scene) {
				optOut(s, "false")
				time.Sleep(1500 * time.Millisecond)
				optOut(s, "")
			}, "Deleted 1 copy in namespace team-000: the namespace has the label mirror=false",
		},
		"and before the cache shows the deletion": {
			func(h *apitest.Hooks) {
				h.Loses = deletions(func() error { return errAway })
				h.Lags = func(resource string) time.Duration {
					return map[string]time.Duration{"configmaps": 300 * time.Millisecond}[resource]
				}
			},
			func(s scene) {
				optOut(s, "false")
				time.Sleep(1100 * time.Millisecond)
				optOut(s, "")
			}, "Deleted 1 copy in namespace team-000",
		},
		"somebody creates another object before the answer": {
			func(h *apitest.Hooks) { h.Loses = deletions(late) },
			func(s scene) {
				optOut(s, "false")
				time.Sleep(1500 * time.Millisecond)
				s.write(plantest.ConfigMap("team-000", "settings", plantest.Label("mirror", "copy")))
			}, "Deleted 1 copy in namespace team-000",
		},
		"it was not carried out, and somebody deletes the copy later": {
			func(h *apitest.Hooks) { h.Refuses = deletions(func() error { return errAway }) },
			func(s scene) {
				optOut(s, "false")
				time.Sleep(1100 * time.Millisecond)
				optOut(s, "")
				time.Sleep(2 * maxOwn)
				s.edit("team-000", plantest.Annotation("touched", "yes"))
				time.Sleep(time.Second)
				s.refuse(func(apitest.Call) error { return nil })
				s.remove("team-000")
			}, "",
		},
		"it was rejected when tried again, and the copy is released": {
			func(h *apitest.Hooks) {
				tries := 0
				h.Refuses = deletions(func() error {
					if tries++; tries == 1 {
						return errAway
					}
					return quota()
				})
			},
			func(s scene) {
				optOut(s, "false")
				time.Sleep(20 * time.Second)
				s.edit("team-000", plantest.Without("mirror"))
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			graced(t, time.Second, func(t *testing.T, s scene) {
				s.Hook(tc.hook)
				tc.lose(s)
				time.Sleep(time.Minute)
				if got := s.said(ReasonExpiring); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
					t.Errorf("got event %q, want in it %q", got, tc.want)
				}
			})
		})
	}
}

// TestC52LossIsSaidAtTheEnd: a stop reports deletions that were to be reported a little later.
func TestC52LossIsSaidAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, having(append(teams(3, "team-"), source())...)(), func(o *Options) { o.DeletionGrace = time.Second })
		end := runs(t, s.controller)
		time.Sleep(time.Minute)
		for _, name := range []string{"team-000", "team-001"} {
			s.setNamespace(plantest.Namespace(name, "mirror", "false"))
			time.Sleep(3 * time.Second)
		}
		end()
		if got := s.said(ReasonExpiring); !strings.Contains(got, "Deleted 1 copy in namespace team-001") {
			t.Errorf("got event %q", got)
		}
	})
}
