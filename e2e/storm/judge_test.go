package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// TestJudge has histories judged. Each has a source home/settings and its copy in team-a before the round, if the case
// does not say otherwise.
func TestJudge(t *testing.T) {
	source, copied := sourceIn("home", "1"), copyIn("team-a", "1")
	frozen := annotated(source, model.SelectorAnnotation, "a in (")
	foreign := settingsIn("team-a", "mine", model.Label, model.CopyMark)
	elsewhere := copyIn("teamster", "1")
	for name, c := range map[string]struct {
		before   []*corev1.ConfigMap // nil: source and copy
		optedOut bool                // team-a, before the round
		happen   func(s *scene)
		want     string // a part of the problem; empty: there is none
	}{
		"nothing happens": {happen: func(*scene) {}},

		"a copy follows":               {happen: func(s *scene) { s.userWrites(sourceIn("home", "2")); s.write(copyIn("team-a", "2")) }},
		"a copy of what never was":     {happen: func(s *scene) { s.userWrites(sourceIn("home", "2")); s.write(copyIn("team-a", "3")) }, want: "never asked"},
		"a copy where none is allowed": {happen: func(s *scene) { s.write(elsewhere) }, want: "out of scope"},
		"a copy in an opted-out namespace": {
			before: list(source), optedOut: true,
			happen: func(s *scene) { s.write(copied) },
			want:   "never asked",
		},
		"a copy of no source": {
			before: list(settingsIn("home", "1")),
			happen: func(s *scene) { s.write(copied) },
			want:   "never asked",
		},
		"narrowed away": {
			before: list(annotated(source, model.PrefixAnnotation, "dev-")),
			happen: func(s *scene) { s.write(copied) },
			want:   "never asked",
		},

		"deleted for nothing": {happen: func(s *scene) { s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"deleted by a user":   {happen: func(s *scene) { s.userRemoves(copied); s.write(copied) }},
		"deleted by the controller, when a user tried as well": {
			happen: func(s *scene) {
				s.userRemoves(copied)
				s.deletes[model.KeyOf(copied)] = []cluster.Event{{Verb: "delete"}}
			},
			want: "wanted it all the time",
		},
		"deleted with its namespace":   {happen: func(s *scene) { s.closing("team-a"); s.remove(copied) }},
		"deleted before its namespace": {happen: func(s *scene) { s.remove(copied); s.closing("team-a") }, want: "wanted it all the time"},
		"foreign, with its namespace":  {before: list(foreign), happen: func(s *scene) { s.closing("team-a"); s.remove(foreign) }},
		"foreign, in a closing one":    {before: list(foreign), happen: func(s *scene) { s.closing("team-a"); s.controllerRemoves(foreign) }, want: "a foreign object was deleted"},
		"foreign, at an opt-out":       {before: list(foreign), happen: func(s *scene) { s.namespace("team-a", model.Label, model.OptOut); s.controllerRemoves(foreign) }, want: "a foreign object was deleted"},
		"foreign, and changed":         {before: list(foreign), happen: func(s *scene) { s.write(copied) }, want: "a foreign object was changed"},
		"opted out without label": {
			happen: func(s *scene) {
				s.namespace("team-a", model.Label, model.OptOut)
				s.userWrites(stripped(copied))
				s.controllerRemoves(copied)
			},
			want: "counted as released",
		},
		"restored without label": {happen: func(s *scene) { s.userWrites(stripped(copied)); s.write(copied) }},
		"recreated without label": {
			before: list(sourceIn("home", "2"), frozenUp(copied)),
			happen: func(s *scene) {
				s.userWrites(stripped(frozenUp(copied)))
				s.controllerRemoves(copied)
				s.write(copyIn("team-a", "2"))
			},
		},
		"foreign, handed over": {before: list(source, annotated(foreign, model.AdoptAnnotation, "true")), happen: func(s *scene) { s.write(copied) }},
		"foreign, handed over, with a finalizer": {
			before: list(source, finalized(annotated(foreign, model.AdoptAnnotation, "true"))),
			happen: func(s *scene) { s.write(finalized(copied)) },
			want:   "a foreign object was changed",
		},
		"opted out":                     {happen: func(s *scene) { s.namespace("team-a", model.Label, model.OptOut); s.controllerRemoves(copied) }},
		"labelled, and still a target":  {happen: func(s *scene) { s.namespace("team-a", "tier", "gold"); s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"unlabelled source":             {happen: func(s *scene) { s.userWrites(settingsIn("home", "1")); s.controllerRemoves(copied) }},
		"frozen in the round":           {happen: func(s *scene) { s.userWrites(frozen); s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"written while frozen":          {before: list(frozen, copied), happen: func(s *scene) { s.write(copyIn("team-a", "2")) }, want: "is frozen"},
		"a source is gone, and another": {before: list(source, sourceIn("other", "2"), copied), happen: func(s *scene) { s.userRemoves(source); s.controllerRemoves(copied) }, want: "other/settings wanted it"},
		"its source was replaced": {
			happen: func(s *scene) { s.userReplaces(source); s.controllerRemoves(copied) },
			want:   "home/settings wanted it",
		},
		"its source is gone, and another was replaced": {
			before: list(source, sourceIn("other", "2"), copied),
			happen: func(s *scene) {
				s.userRemoves(source)
				s.userReplaces(sourceIn("other", "2"))
				s.controllerRemoves(copied)
			},
		},
		"its source is away, for less than the grace": {
			happen: func(s *scene) { s.userAway(source); s.controllerRemoves(copied); s.userWrites(source) },
			want:   "home/settings wanted it",
		},
		"sooner than the grace": {
			happen: func(s *scene) { s.wait(); s.userRemoves(source); s.controllerRemoves(copied) },
			want:   "after a source claimed it, and the grace is 1m0s",
		},
		"sooner than the grace, unlabelled source": {
			happen: func(s *scene) { s.wait(); s.userWrites(settingsIn("home", "1")); s.controllerRemoves(copied) },
			want:   "after a source claimed it",
		},
		"sooner than the grace, opted out": {
			happen: func(s *scene) {
				s.wait()
				s.age(time.Hour)
				s.namespace("team-a", model.Label, model.OptOut)
				s.controllerRemoves(copied)
			},
			want: "after a source claimed it",
		},
		"sooner than the grace after a takeover": {
			happen: func(s *scene) {
				s.wait()
				s.lead("a")
				s.userRemoves(source)
				s.age(time.Hour)
				s.lead("b")
				s.controllerRemoves(copied)
			},
			want: "after its process took over",
		},
		"later than the grace": {happen: func(s *scene) {
			s.wait()
			s.lead("b")
			s.lead("a")
			s.userRemoves(source)
			s.age(time.Hour)
			s.controllerRemoves(copied)
		}},
		"later than the grace, claimed once more meanwhile": { // which a controller may have missed
			happen: func(s *scene) {
				s.wait()
				s.userRemoves(source)
				s.age(time.Hour)
				s.userWrites(source)
				s.userRemoves(source)
				s.controllerRemoves(copied)
			},
		},
		"sooner than the grace, an immutable copy of another content": {
			before: list(source, frozenUp(copyIn("team-a", "0"))),
			happen: func(s *scene) { s.wait(); s.lead("a"); s.controllerRemoves(copied); s.write(copied) },
		},
		"sooner than the grace, and somebody may have been before": {
			happen: func(s *scene) {
				s.wait()
				s.users.unsure[model.KeyOf(source)] = true
				s.userRemoves(source)
				s.controllerRemoves(copied)
			},
		},
		"sooner than the grace of old": {happen: func(s *scene) {
			s.wait()
			s.change(0)
			s.userRemoves(source)
			s.controllerRemoves(copied)
		}},
		"its source is gone, and another was replaced long before": {
			before: list(source, sourceIn("other", "2"), copied),
			happen: func(s *scene) {
				s.userReplaces(sourceIn("other", "2"))
				s.age(time.Hour)
				s.userRemoves(source)
				s.controllerRemoves(copied)
			},
			want: "other/settings wanted it",
		},
		"the same, by one whose watch was silent": {
			before: list(source, sourceIn("other", "2"), copied),
			happen: func(s *scene) {
				s.fleet.incidents.list = []*incident{{step: newStep("hold-configmaps", "0"), began: time.Now(), ended: time.Now()}}
				s.userReplaces(sourceIn("other", "2"))
				s.age(time.Hour)
				s.userRemoves(source)
				s.controllerRemoves(copied)
			},
		},

		"an immutable copy, for nothing": {
			before: list(frozenUp(source), frozenUp(copied)),
			happen: func(s *scene) {
				s.namespace("team-a", "tier", "gold")
				s.controllerRemoves(frozenUp(copied))
				s.write(frozenUp(copied))
			},
			want: "wanted it all the time",
		},
		"an immutable copy, of another content": {
			before: list(source, frozenUp(copyIn("team-a", "0"))),
			happen: func(s *scene) { s.controllerRemoves(copied); s.write(copied) },
		},
		"an immutable copy, of another source": {
			before: list(source, sourceIn("other", "2"), copied),
			happen: func(s *scene) {
				s.userWrites(frozenUp(copyIn("team-a", "2")))
				s.controllerRemoves(copied)
				s.write(copied)
			},
		},
		"an immutable copy, that was mutable": {
			before: list(source, frozenUp(copied)),
			happen: func(s *scene) { s.controllerRemoves(copied); s.write(copied) },
		},
		"an immutable copy, of a content of old": {
			happen: func(s *scene) {
				s.userWrites(frozenUp(copied))
				s.userWrites(sourceIn("home", "2"))
				s.userWrites(source)
				s.controllerRemoves(copied)
				s.write(copied)
			},
		},

		"deleted, wanted by all flags":   {happen: func(s *scene) { s.change(1); s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"deleted, unwanted by the last":  {happen: func(s *scene) { s.change(6); s.controllerRemoves(copied) }},
		"deleted, selected by all flags": {happen: func(s *scene) { s.change(10); s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"deleted, not selected":          {happen: func(s *scene) { s.change(9); s.controllerRemoves(copied) }},
		"deleted, no longer selected":    {happen: func(s *scene) { s.change(10); s.namespace("team-a", "tier", "bronze"); s.controllerRemoves(copied) }},
		"deleted, and the limit blocks": {
			happen: func(s *scene) { s.change(9); s.blocked = true; s.controllerRemoves(copied) },
			want:   "the prune limit blocks",
		},
		"deleted, unwanted for a moment": {happen: func(s *scene) { s.change(6); s.change(0); s.controllerRemoves(copied) }},
		"deleted, no source for a moment": {
			before: list(sourceIn("other", "1"), annotated(copied, model.SourceAnnotation, "other/settings")),
			happen: func(s *scene) { s.change(4); s.change(0); s.controllerRemoves(copied) },
		},
		"written while frozen, by all flags": {
			before: list(frozen, copied),
			happen: func(s *scene) { s.change(1); s.write(copyIn("team-a", "2")) },
			want:   "is frozen",
		},
		"deleted while frozen, and no source by the last": {
			before: list(annotated(sourceIn("other", "1"), model.SelectorAnnotation, "a in ("), annotated(copied, model.SourceAnnotation, "other/settings")),
			happen: func(s *scene) { s.change(4); s.controllerRemoves(copied) },
		},
		"written without need":               {before: list(source, inSync("team-a", "1")), happen: func(s *scene) { s.settle(); s.write(annotated(inSync("team-a", "1"), "a", "b")) }, want: "without need"},
		"written without need, by all flags": {before: list(source, inSync("team-a", "1")), happen: func(s *scene) { s.settle(); s.change(1); s.write(inSync("team-a", "1")) }, want: "without need"},
		"written for other labels": {
			before: list(labelled(source, "team", "a"), annotated(labelled(inSync("team-a", "1"), "team", "a"), model.CopiedAnnotation, "label:team")),
			happen: func(s *scene) {
				s.settle()
				s.change(3)
				s.write(inSync("team-a", "1"))
			},
		},
		"taken from a source that keeps its precedence": {
			before: list(sourceIn("home", "1"), sourceIn("other", "1"), inSync("team-a", "1")),
			happen: func(s *scene) {
				s.settle()
				s.change(1)
				s.write(annotated(inSync("team-a", "1"), model.SourceAnnotation, "other/settings"))
			},
			want: "taken from home/settings",
		},
		"taken from a source without precedence": {
			before: list(sourceIn("home", "1"), sourceIn("dev-x", "1"), inSync("team-a", "1")),
			happen: func(s *scene) {
				s.settle()
				s.change(6)
				s.change(1) // by which dev-x is no target, and before home
				s.write(annotated(inSync("team-a", "1"), model.SourceAnnotation, "dev-x/settings"))
			},
		},

		"a copy out of scope that turned up": {
			before: list(source),
			happen: func(s *scene) { s.userWrites(elsewhere); s.controllerRemoves(elsewhere) },
			want:   "turned up out of scope",
		},
		"a copy out of scope that was there before": {before: list(source, elsewhere), happen: func(s *scene) { s.controllerRemoves(elsewhere) }},
		"a copy out of scope, and a process that only starts": {
			before: list(source),
			happen: func(s *scene) {
				s.userWrites(elsewhere)
				s.fleet.lives = append(s.fleet.lives, &life{})
				s.controllerRemoves(elsewhere)
			},
			want: "turned up out of scope",
		},
		"a copy out of scope, and a process that takes over": {
			before: list(source),
			happen: func(s *scene) { s.userWrites(elsewhere); s.takeOver(); s.controllerRemoves(elsewhere) },
		},
		"a takeover, and then a copy out of scope": {
			before: list(source),
			happen: func(s *scene) {
				s.takeOver()
				late := elsewhere.DeepCopy()
				late.CreationTimestamp = metav1.Now()
				s.userWrites(late)
				s.controllerRemoves(late)
			},
			want: "turned up out of scope",
		},
		"a copy out of scope whose source goes": {
			before: list(source),
			happen: func(s *scene) { s.userWrites(elsewhere); s.userRemoves(source); s.controllerRemoves(elsewhere) },
		},
		"a copy that is replaced, and then flags that do not allow it": {happen: func(s *scene) {
			other := copyIn("team-a", "2")
			other.UID = "another"
			s.userReplaces(frozenUp(other))
			s.controllerRemoves(frozenUp(other))
			s.write(copied)
			s.change(6)
		}},

		"somebody's label is kept": {happen: func(s *scene) {
			s.userWrites(labelled(copyIn("team-a", "x"), "cost", "1"))
			s.write(labelled(copied, "cost", "1"))
		}},
		"somebody's label is dropped": {happen: func(s *scene) {
			s.userWrites(labelled(copyIn("team-a", "x"), "cost", "1"))
			s.write(copied)
		}, want: "labels of others"},
		"somebody's annotation is dropped": {happen: func(s *scene) {
			s.userWrites(annotated(copyIn("team-a", "x"), "note", "1"))
			s.write(copied)
		}, want: "annotations of others"},
		"an annotation is invented": {happen: func(s *scene) {
			s.userWrites(copyIn("team-a", "x"))
			s.write(annotated(copied, "note", "1"))
		}, want: "annotations of others"},
		"what was copied goes": {happen: func(s *scene) {
			s.userWrites(annotated(labelled(copied, "team", "a"), model.CopiedAnnotation, "label:team"))
			s.write(copied)
		}},
		"a finalizer is dropped": {happen: func(s *scene) {
			s.userWrites(finalized(copyIn("team-a", "x")))
			s.write(copied)
		}, want: "finalizers of others"},
		"one checksum for two contents": {happen: func(s *scene) {
			s.userWrites(sourceIn("home", "2"))
			s.write(copyIn("team-a", "2"))
			s.userWrites(sourceIn("home", "3"))
			s.write(annotated(copyIn("team-a", "3"), model.ChecksumAnnotation, "sha256:2"))
		}, want: "the checksum of another content"},
		"two checksums for one content": {happen: func(s *scene) {
			s.userWrites(sourceIn("home", "2"))
			s.write(copyIn("team-a", "2"))
			s.write(annotated(copyIn("team-a", "2"), model.ChecksumAnnotation, "sha256:3"))
		}, want: "the same content had"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			if c.optedOut {
				s.namespace("team-a", model.Label, model.OptOut)
			}
			before := c.before
			if before == nil {
				before = list(source, copied)
			}
			for _, cm := range before {
				s.userWrites(cm)
			}
			s.begin(t)
			c.happen(s)
			got := s.problems()
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}

// TestDoubtIsCounted: where users may have been at work, nothing is judged, and the summary says so.
func TestDoubtIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		happen           func(*scene)
		states, doubtful int
	}{
		"the controller's": {func(s *scene) { s.write(copyIn("team-a", "2")) }, 1, 0},
		"a user's":         {func(s *scene) { s.userWrites(copyIn("team-a", "2")) }, 0, 0},
		"perhaps a user's": {func(s *scene) {
			s.write(copyIn("team-a", "2"))
			s.users.unsure[model.Key{Namespace: "team-a", Name: "settings"}] = true
		}, 1, 1},
		"a user's, beside one in doubt": {func(s *scene) {
			s.userWrites(copyIn("team-a", "2"))
			s.users.unsure[model.Key{Namespace: "team-a", Name: "settings"}] = true
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.userWrites(copyIn("team-a", "1"))
			s.begin(t)
			c.happen(s)
			s.problems()
			if s.counts.states != c.states || s.counts.doubtful != c.doubtful {
				t.Errorf("got %d, %d of them in doubt, want %d and %d", s.counts.states, s.counts.doubtful, c.states, c.doubtful)
			}
		})
	}
}

// TestBorder has a copy deleted when a round has been judged and the next has not begun.
func TestBorder(t *testing.T) {
	s := newScene()
	s.userWrites(sourceIn("home", "1"))
	s.userWrites(copyIn("team-a", "1"))
	s.begin(t)
	if got := s.problems(); got != "" {
		t.Fatal(got)
	}
	s.controllerRemoves(copyIn("team-a", "1"))
	s.begin(t)
	if got := s.problems(); !strings.Contains(got, "wanted it all the time") {
		t.Errorf("problems %q", got)
	}
}

// at is a time that is so many milliseconds after some other.
func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }
