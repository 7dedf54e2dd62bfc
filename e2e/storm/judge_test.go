package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/stalls"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// scene is a history that a test makes up. What it does without saying that a user does it, the controller does.
type scene struct {
	*storm
	rv      int
	deletes map[model.Key][]cluster.Event
}

// newScene returns one with the namespaces home, team-a and teamster, which the flags do not allow.
func newScene() *scene {
	flags := flagsOf(0, 100)
	s := &scene{storm: &storm{
		history: newHistory(), users: newUsers(nil), stalls: &stalls.Log{}, sums: newSums(), counts: newCounts(),
		fleet: &fleet{flags: flags, inForce: []model.Flags{flags}}, settled: map[model.Key]bool{},
	}, deletes: map[model.Key][]cluster.Event{}}
	s.round = &course{}
	for _, name := range []string{"home", "other", "team-a", "teamster"} {
		s.namespace(name)
	}
	return s
}

// begin begins the round that is judged.
func (s *scene) begin(t *testing.T) {
	if s.judged == nil {
		s.newJudgement() // on what there was before
	}
	from, err := s.begins()
	if err != nil {
		t.Fatal(err)
	}
	s.users.forget()
	s.round = &course{border: from, before: from.began, settled: s.settled} // what ended before is forgotten
}

// problems judges the round.
func (s *scene) problems() string {
	j := s.newJudgement()
	maps.Copy(j.writes, s.deletes)
	j.judgeTransitions()
	j.unseen()
	return strings.Join(j.problems, "\n")
}

// settle has the copy in team-a have been in sync before the round.
func (s *scene) settle() {
	s.round.settled = map[model.Key]bool{{Namespace: "team-a", Name: "settings"}: true}
}

// change changes the flags to those of a profile.
func (s *scene) change(profile int) { s.fleet.setFlags(flagsOf(profile, 100), false) }

// takeOver has a controller say that it takes over.
func (s *scene) takeOver() {
	log := &takeOverWatcher{fleet: s.fleet}
	for _, part := range []string{"I1122 controller.go:189] \"Mirr", "oring\" instance", "=default"} {
		_, _ = io.WriteString(log, part)
	}
}

func (s *scene) next() string {
	s.rv++
	return fmt.Sprint(s.rv)
}

// namespace has a namespace be there with labels, a key and a value in turn.
func (s *scene) namespace(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: s.next(), Labels: pairs(labels)}}
	s.history.takeNamespace(model.Key{Name: name}, ns, ns.ResourceVersion, false)
	return ns
}

func (s *scene) closing(name string) {
	ns := s.namespace(name).DeepCopy()
	ns.ResourceVersion, ns.DeletionTimestamp = s.next(), &metav1.Time{Time: time.Now()}
	s.history.takeNamespace(model.Key{Name: name}, ns, ns.ResourceVersion, false)
}

// write has a ConfigMap be there, and returns it as it was written.
func (s *scene) write(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	cm.ResourceVersion = s.next()
	s.history.takeConfigMap(model.KeyOf(cm), cm, cm.ResourceVersion, false)
	return cm
}

func (s *scene) userWrites(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm = s.write(cm)
	s.users.wrote[cm.ResourceVersion] = true
	return cm
}

// remove has a ConfigMap be gone.
func (s *scene) remove(cm *corev1.ConfigMap) {
	s.history.takeConfigMap(model.KeyOf(cm), nil, s.next(), false)
}

func (s *scene) userRemoves(cm *corev1.ConfigMap) {
	s.users.deleted[stateOf(s.history.present()[model.KeyOf(cm)])] = true
	s.remove(cm)
}

// userReplaces has a ConfigMap be gone, and within the second there again.
func (s *scene) userReplaces(cm *corev1.ConfigMap) {
	s.userAway(cm)
	s.userWrites(cm)
}

// age has all that happened have happened so much earlier.
func (s *scene) age(by time.Duration) {
	for _, r := range s.history.configMaps {
		earlier(r, by)
	}
	for _, r := range s.history.namespaces {
		earlier(r, by)
	}
	for i := range s.history.round {
		s.history.round[i].seen = s.history.round[i].seen.Add(-by)
	}
	s.round.began, s.round.before = s.round.began.Add(-by), s.round.before.Add(-by)
}

func earlier[T any](r record[T], by time.Duration) {
	for i := range r {
		r[i].seen = r[i].seen.Add(-by)
	}
}

// userAway has a ConfigMap be gone, to come back within the second.
func (s *scene) userAway(cm *corev1.ConfigMap) {
	s.users.replaced[stateOf(s.history.present()[model.KeyOf(cm)])] = true
	s.userRemoves(cm)
}

// controllerRemoves is remove with a line in the audit log.
func (s *scene) controllerRemoves(cm *corev1.ConfigMap) {
	key := model.KeyOf(cm)
	s.deletes[key] = append(s.deletes[key], cluster.Event{Verb: "delete"})
	s.remove(cm)
}

func pairs(list []string) map[string]string {
	out := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// settingsIn returns a ConfigMap named settings.
func settingsIn(namespace, data string, labels ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings", UID: types.UID(namespace), Labels: pairs(labels), Annotations: map[string]string{}},
		Data:       map[string]string{"key": data},
	}
}

func sourceIn(namespace, data string) *corev1.ConfigMap {
	return settingsIn(namespace, data, model.Label, model.Source)
}

// copyIn returns a copy of home/settings.
func copyIn(namespace, data string) *corev1.ConfigMap {
	cm := settingsIn(namespace, data, model.Label, model.CopyMark, model.ManagedBy, model.Controller)
	cm.Annotations = map[string]string{
		model.SourceAnnotation: "home/settings", model.CopyAnnotation: namespace + "/settings",
		model.InstanceAnnotation: instance.Instance, model.ChecksumAnnotation: "sha256:" + data,
	}
	return cm
}

func annotated(cm *corev1.ConfigMap, k, v string) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	metav1.SetMetaDataAnnotation(&cm.ObjectMeta, k, v)
	return cm
}

func labelled(cm *corev1.ConfigMap, k, v string) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	metav1.SetMetaDataLabel(&cm.ObjectMeta, k, v)
	return cm
}

// inSync returns a copy as the controller makes it, and as the model wants it.
func inSync(namespace, data string) *corev1.ConfigMap {
	return annotated(copyIn(namespace, data), model.ChecksumAnnotation, "sha256:"+strings.Repeat(data, 64))
}

func stripped(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	delete(cm.Labels, model.Label)
	return cm
}

func finalized(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	cm.Finalizers = []string{finalizer}
	return cm
}

func frozenUp(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm, yes := cm.DeepCopy(), true
	cm.Immutable = &yes
	return cm
}

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
		"its source is away, for less than the second": {
			happen: func(s *scene) { s.userAway(source); s.controllerRemoves(copied); s.userWrites(source) },
			want:   "home/settings wanted it",
		},
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

func list(cms ...*corev1.ConfigMap) []*corev1.ConfigMap { return cms }

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

// TestPristine: what the controller makes in the place of an immutable object has the metadata of that.
func TestPristine(t *testing.T) {
	made := func(cm *corev1.ConfigMap) *corev1.ConfigMap {
		cm = cm.DeepCopy()
		cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: model.Controller}}
		return cm
	}
	copied := made(copyIn("team-a", "1"))
	adoptable := annotated(settingsIn("team-a", "mine"), model.AdoptAnnotation, "true")
	for name, c := range map[string]struct {
		before *corev1.ConfigMap
		want   bool
	}{
		"anew":                              {nil, true},
		"of a copy":                         {copied, true},
		"of an immutable copy":              {frozenUp(copied), true},
		"of what was foreign":               {adoptable, true},
		"of what was foreign and immutable": {frozenUp(adoptable), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			if c.before != nil {
				s.write(c.before)
				s.remove(c.before)
			}
			for range 2 { // the second in the place of the first
				s.write(frozenUp(copied))
				if got := s.history.pristine[copied.UID]; got != c.want {
					t.Errorf("got %v, want %v", got, c.want)
				}
				s.remove(copied)
			}
		})
	}
}

// TestUnseen has a gap in the history of a foreign object, which users touched before it.
func TestUnseen(t *testing.T) {
	foreign := settingsIn("team-a", "mine", model.Label, model.CopyMark)
	adoptable := annotated(foreign, model.AdoptAnnotation, "true")
	taken := copyIn("team-a", "1")
	key := model.KeyOf(foreign)
	for name, c := range map[string]struct {
		before *corev1.ConfigMap
		user   *corev1.ConfigMap // what users wrote before the gap, that nobody saw
		moved  bool              // the namespace, in the round
		write  string            // of the controller, in the gap
		after  bool              // it was behind the gap
		want   string
	}{
		"changed":                    {before: foreign, user: foreign, write: "update", want: "a foreign object was written to"},
		"deleted":                    {before: foreign, user: foreign, write: "delete", want: "a foreign object was written to"},
		"handed over, and changed":   {before: foreign, user: adoptable, write: "update"},
		"made a copy, and changed":   {before: foreign, user: taken, write: "update"},
		"handed over before":         {before: adoptable, user: adoptable, write: "update"},
		"a copy before":              {before: copyIn("team-a", "0"), user: foreign, write: "update"},
		"created":                    {before: foreign, user: foreign, write: "create"},
		"no write":                   {before: foreign, user: foreign},
		"in another namespace":       {before: foreign, user: foreign, write: "update", moved: true},
		"behind the gap":             {before: foreign, user: foreign, write: "update", after: true},
		"nothing that users touched": {before: foreign, write: "update", want: "a foreign object was"},
	} {
		s := newScene()
		s.userWrites(sourceIn("home", "1"))
		s.userWrites(c.before)
		s.begin(t)
		if c.moved {
			s.closing("team-a")
			s.namespace("team-a")
		}
		if c.user != nil {
			user := c.user.DeepCopy()
			user.ResourceVersion = s.next()
			if err := s.users.note(key, user, nil); err != nil {
				t.Fatal(err)
			}
		}
		e := cluster.Event{Verb: c.write, Received: time.Now()}
		if c.after {
			e.Received = e.Received.Add(time.Minute)
		}
		s.deletes[key] = []cluster.Event{e}
		seen := taken.DeepCopy()
		seen.ResourceVersion = s.next()
		s.history.takeConfigMap(key, seen, seen.ResourceVersion, true)
		if got := s.problems(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", name, got, c.want)
		}
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

// stormWith returns one with incidents: "who what from to", in milliseconds.
func stormWith(t *testing.T, lines ...string) *storm {
	s := &storm{fleet: &fleet{}, stalls: &stalls.Log{}, counts: newCounts()}
	for _, line := range lines {
		var who, what string
		var from, to int
		if _, err := fmt.Sscan(line, &who, &what, &from, &to); err != nil {
			t.Fatal(err)
		}
		if what == "stall" {
			s.stalls.Add(at(to), at(to).Sub(at(from)))
			continue
		}
		kind, resource, _ := strings.Cut(what, "/")
		st := newStep(kind, "*")
		if resource != "" {
			st = st.with(resourceArg, resource)
		}
		s.fleet.incidents.list = append(s.fleet.incidents.list, &incident{step: st, user: who, began: at(from), ended: at(to)})
	}
	return s
}

// requests reads an audit log. A request is "who what at to until", in milliseconds.
func requests(t *testing.T, lines []string) (renewed, writes []cluster.Event) {
	for _, line := range lines {
		var who, what string
		var from, to int
		if _, err := fmt.Sscan(line, &who, &what, &from, &to); err != nil {
			t.Fatal(err)
		}
		e := cluster.Event{Verb: what, Received: at(from), Done: at(to)}
		e.User.Username = who
		if what == "renew" {
			renewed = append(renewed, e)
		} else {
			writes = append(writes, e)
		}
	}
	return renewed, writes
}

// TestWriters has audit logs judged.
func TestWriters(t *testing.T) {
	dead := []life{{user: "a", started: at(0), ended: at(20)}, {user: "a", started: at(21)}}
	gave := []life{{user: "a", started: at(0), ended: at(20), gaveBack: true}, {user: "a", started: at(21)}, {user: "b", started: at(0)}}
	late := []life{{user: "a", started: at(0), ended: at(40), gaveBack: true}, gave[1]} // whose end was seen late
	kept := slices.Clone(gave)
	kept[0].gaveBack = false
	many := func(n int, line string) []string { return slices.Repeat([]string{line}, n) }
	overtaken := []string{"a renew 9000 9001", "b renew 12100 12101", "a create 12150 12151"}
	for name, c := range map[string]struct {
		log             []string
		lives           []life
		happened        []string
		want            string
		strict, excused int
	}{
		"one writer":          {log: []string{"a renew 1 2", "a create 3 4"}},
		"before the lease":    {log: []string{"a create 3 4", "a renew 5 6"}, want: "never had the lease"},
		"one after the other": {log: []string{"a renew 1 2", "a create 3 4", "b renew 5 6", "b create 7 8"}, strict: 1},
		"one that came late":  {log: []string{"a renew 1 2", "b renew 5 6", "a create 7 8"}, want: "two writers", strict: 1},
		"one that lasted":     {log: []string{"a renew 1 2", "a create 3 7", "b renew 5 6"}, want: "two writers", strict: 1},
		"had it, has it again": {
			log: []string{"a renew 1 2", "b renew 5 6", "a renew 9 10", "a create 11 12"}, strict: 2,
		},

		"late, paused":             {log: overtaken, happened: []string{"a pause 9100 12140"}, excused: 1},
		"late, delayed":            {log: overtaken, happened: []string{"a requests-delay 8500 8900"}, excused: 1},
		"late, by a mute server":   {log: overtaken, happened: []string{"b pause-apiserver 9100 12140", "a pause-apiserver 9100 12140"}, excused: 1},
		"late, the other paused":   {log: overtaken, happened: []string{"b pause 9100 12140"}, want: "two writers", strict: 1},
		"late, paused long before": {log: overtaken, happened: []string{"a pause 1000 6000"}, want: "two writers", strict: 1},
		"late, paused afterwards":  {log: overtaken, happened: []string{"a pause 12160 13000"}, want: "two writers", strict: 1},
		"late, killed":             {log: overtaken, happened: []string{"a kill 9100 9200"}, want: "two writers", strict: 1},
		"late, without watches":    {log: overtaken, happened: []string{"a cut-watches 9100 9200"}, want: "two writers", strict: 1},
		"late, on a busy machine":  {log: overtaken, happened: []string{"a stall 9100 9700"}, excused: 1},
		"late, hardly busy":        {log: overtaken, happened: []string{"a stall 9100 9480"}, want: "two writers", strict: 1},
		"late, busy long before":   {log: overtaken, happened: []string{"a stall 5000 6900"}, want: "two writers", strict: 1},
		"more than may be in flight, paused": {
			log:      append(many(concurrentWrites, overtaken[2]), overtaken...),
			happened: []string{"a pause 9100 12140"}, want: "at most 8 may", excused: 1,
		},
		"as many as may be in flight, delayed": {
			log:      append(many(concurrentWrites+slowCalls-1, overtaken[2]), overtaken...),
			happened: []string{"a requests-delay 8500 8900"}, excused: 1,
		},
		"more than may be in flight, delayed": {
			log:      append(many(concurrentWrites+slowCalls, overtaken[2]), overtaken...),
			happened: []string{"a pause 9100 12140", "a requests-delay 8500 8900"}, want: "at most 24 may", excused: 1,
		},

		"the next process":       {log: append([]string{"a renew 1 2", "a renew 30 31"}, many(2*concurrentWrites, "a create 32 33")...), lives: dead},
		"the next, without":      {log: append([]string{"a renew 1 2"}, many(concurrentWrites+1, "a create 30 31")...), lives: dead, want: "does not have the lease"},
		"the last of the killed": {log: append([]string{"a renew 1 2"}, many(concurrentWrites, "a create 30 31")...), lives: dead},

		"given back":                 {log: []string{"a renew 1 2", "a create 3 4", "a renew 5 6", "b renew 30 31"}, lives: gave, strict: 1},
		"given back before the end":  {log: []string{"a renew 1 2", "a create 3 7", "a renew 5 6"}, lives: gave, want: "gave the lease back"},
		"given back, then written":   {log: []string{"a renew 1 2", "a renew 5 6", "a create 7 8"}, lives: gave, want: "gave the lease back"},
		"written behind the process": {log: []string{"a renew 1 2", "a renew 5 6", "a create 27 28"}, lives: gave, want: "gave the lease back"},
		"given back, and cut off":    {log: []string{"a renew 1 2", "a renew 5 6", "a create 7 8"}, lives: gave, happened: []string{"a break-connections 3 3"}},
		"given back, then again had": {log: []string{"a renew 1 2", "a renew 5 6", "a renew 30 31", "a create 32 33"}, lives: gave},
		"the next has it already":    {log: []string{"a renew 1 2", "a renew 5 6", "a renew 30 31", "a create 32 33"}, lives: late},
		"given back, and seen late":  {log: []string{"a renew 1 2", "a create 3 7", "a renew 5 6", "a renew 30 31"}, lives: late, want: "gave the lease back at 1970-01-01 00:00:00.005"},
		"not given back":             {log: []string{"a renew 1 2", "a create 3 4"}, lives: kept},
		"taken, not given back":      {log: []string{"a renew 1 2", "a create 3 4", "b renew 10 11"}, lives: gave, strict: 1},
	} {
		s := stormWith(t, c.happened...)
		renewed, writes := requests(t, c.log)
		w := &writers{renewed: renewed}
		slices.SortFunc(w.renewed, byReceipt)
		got := strings.Join(slices.Concat(w.compare(writes, c.lives, s.lateRequests), w.released(writes, c.lives, s.lateRequests)), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", name, got, c.want)
		}
		w.count(s.lateRequests)
		w.forget()
		w.count(s.lateRequests) // in the round that follows, where there is nothing new
		if w.strict != c.strict || w.excused != c.excused {
			t.Errorf("%s: %d terms judged strictly, %d excused, want %d and %d", name, w.strict, w.excused, c.strict, c.excused)
		}
	}
}

// TestLostForNothing has processes of a, at 30 seconds, and of b end before: a's has lost its lease.
func TestLostForNothing(t *testing.T) {
	lives := []life{
		{user: "b", ended: at(9_000), lost: true}, // in the round before
		{user: "a", ended: at(30_000), lost: true}, {user: "b", ended: at(12_000)}, {user: "b"},
	}
	for happened, nothing := range map[string]bool{
		"a pause 21000 29000":                   false,
		"a silence 21000 22000":                 false,
		"a lease-delay 29000 30100":             false,
		"a kill-apiserver 29000 30100":          false,
		"a lose-connections/leases 28000 28000": false,
		"a stall 28000 28300":                   false,
		"b pause 21000 29000":                   true,
		"a pause 11000 19000":                   true,
		"a pause 30100 31000":                   true,
		"a requests-delay 29000 30100":          true,
		"a lose-connections 28000 28000":        true,
		"a cut-watches 28000 28000":             true,
		"a stop 28000 28000":                    true,
		"a stall 11000 19900":                   true,
	} {
		j := &judgement{storm: stormWith(t, happened)}
		j.round = &course{border: border{began: at(10_000)}}
		j.lostForNothing(lives)
		if got := len(j.problems) > 0; got != nothing {
			t.Errorf("%s: problems %q, want some: %t", happened, j.problems, nothing)
		}
	}
}

// TestReadAt has a copy deleted by a, at 60 seconds, in a round that began at 0.
func TestReadAt(t *testing.T) {
	key := model.Key{Namespace: "team-a", Name: "settings"}
	e := cluster.Event{Verb: "delete"}
	e.User.Username = "a"
	for name, c := range map[string]struct {
		happened []string
		want     int // seconds
	}{
		"usually":              {nil, 48},
		"stalls":               {[]string{"a stall 50000 52000", "a stall 55000 56000"}, 45},
		"stalls, and one more": {[]string{"a stall 50000 52000", "a stall 46500 47500"}, 45},
		"stalls of long ago":   {[]string{"a stall 10000 20000"}, 48},
		"held up":              {[]string{"a silence 50000 51000"}, 38},
		"held up, and before":  {[]string{"a silence 50000 51000", "a pause 30000 39000"}, 18},
		"told to try again":    {[]string{"a requests-429 50000 51000"}, 38},
		"the other":            {[]string{"b silence 50000 51000"}, 48},
		"watches":              {[]string{"a hold-namespaces 50000 51000"}, 48},
		"the whole round":      {[]string{"a silence 10000 59000"}, 0},
	} {
		j := &judgement{storm: stormWith(t, c.happened...), writes: map[model.Key][]cluster.Event{key: {e}}}
		j.round = &course{border: border{began: at(0)}}
		from, excused := j.readAt(transition{key: key, seen: at(60_000)})
		if !from.Equal(at(1000*c.want)) || excused != (c.want != 48) {
			t.Errorf("%s: read at %s, want %s; excused %t", name, from, at(1000*c.want), excused)
		}
	}
}

// TestQuietness has the requests of a time of quiet judged, so many of each.
func TestQuietness(t *testing.T) {
	request := func(verb, resource, name string, code int) cluster.Event {
		e := cluster.Event{Verb: verb}
		e.Object.Resource, e.Object.Namespace, e.Object.Name, e.Response.Code = resource, "team-a", name, code
		return e
	}
	dry := func(e cluster.Event) cluster.Event {
		e.RequestURI = "/api/v1/namespaces/team-a/configmaps?dryRun=All"
		return e
	}
	open := map[model.Key]int{{Namespace: "team-a", Name: "open"}: 1, {Namespace: "team-a", Name: "way"}: 0}
	for name, c := range map[string]struct {
		of   cluster.Event
		most int
	}{
		"writes":                      {request("update", "configmaps", "settings", 200), 0},
		"writes where one may be":     {request("delete", "configmaps", "open", 200), 1},
		"writes where something is":   {request("create", "configmaps", "way", 201), 0},
		"refused writes":              {request("create", "configmaps", "settings", 409), retried},
		"tries where something is":    {request("create", "configmaps", "way", 409), 4},
		"reads where something is":    {request("get", "configmaps", "way", 200), 4},
		"reads of a namespace":        {request("get", "namespaces", "team-a", 200), retried},
		"events about a source":       {request("create", "events", "settings.1a", 201), reasons},
		"watches":                     {request("watch", "configmaps", "", 200), watchesAnew},
		"lists":                       {request("list", "namespaces", "", 200), watchesAnew},
		"reads of the lease":          {request("get", "leases", "mirror-controller", 200), 6 * leaseRequests},
		"what nobody has thought of":  {request("get", "secrets", "x", 403), retried},
		"dry runs":                    {dry(request("create", "configmaps", "settings", 201)), retried},
		"changes of something unseen": {request("create", "secrets", "x", 201), retried},
	} {
		q := &quietness{window: 5 * time.Second, open: open, asked: map[string]int{}}
		c.of.Received = q.began.Add(settling)
		for range c.most {
			q.count(c.of)
		}
		if len(q.errs) > 0 {
			t.Errorf("%s: %d are too many: %v", name, c.most, q.errs)
		}
		if q.count(c.of); len(q.errs) != 1 {
			t.Errorf("%s: %d are not too many", name, c.most+1)
		}
	}
	if got := rampOf(10 * time.Minute); got > 18 {
		t.Errorf("%d tries in ten minutes, want one a minute behind the first", got)
	}
}

// TestQuietnessSettles: tries without effect may come one after the other at first, and nothing else may.
func TestQuietnessSettles(t *testing.T) {
	began := time.Unix(100, 0)
	for name, c := range map[string]struct {
		code  int
		after time.Duration
		want  int
	}{
		"refused at first":  {409, settling - time.Millisecond, 0},
		"refused later":     {409, settling, 1},
		"accepted at first": {201, settling - time.Millisecond, 1},
	} {
		e := cluster.Event{Verb: "create", Received: began.Add(c.after)}
		e.Object.Resource, e.Object.Namespace, e.Object.Name, e.Response.Code = "configmaps", "team-a", "settings", c.code
		q := &quietness{began: began, window: 30 * time.Second, asked: map[string]int{}}
		for range 10 {
			q.count(e)
		}
		if len(q.errs) != c.want || c.code == 409 && q.idle != 10 {
			t.Errorf("%s: %d without effect, errors %v", name, q.idle, q.errs)
		}
	}
}

// TestQuietnessBegins has a write judged whose line in the audit log comes behind the mark.
func TestQuietnessBegins(t *testing.T) {
	began := time.Unix(100, 0)
	for name, c := range map[string]struct {
		received          time.Time
		healed            time.Duration // before that
		early, disturbing bool
	}{
		"asked for before":            {received: began.Add(-time.Millisecond), healed: time.Minute, early: true},
		"asked for within":            {received: began, healed: time.Minute, disturbing: true},
		"held up by the last fault":   {received: began.Add(time.Second - time.Millisecond), healed: late - time.Second, early: true},
		"not held up as long as that": {received: began.Add(time.Second), healed: late - time.Second, disturbing: true},
	} {
		e := cluster.Event{Verb: "create", Received: c.received}
		e.Object.Resource, e.Object.Namespace, e.Object.Name, e.Response.Code = "configmaps", "team-a", "settings", 201
		q := &quietness{began: quietFrom(began, began.Add(-c.healed)), window: time.Second, asked: map[string]int{}}
		q.count(e)
		if again, err := q.verdict(); again != c.early || errors.Is(err, errDisturbed) != c.disturbing {
			t.Errorf("%s: again %t, error %v", name, again, err)
		}
	}
}

// TestMostEvents has things happen that a source's outcome depends on, and others.
func TestMostEvents(t *testing.T) {
	src := sourceIn("home", "a")
	other := sourceIn("home", "a")
	other.Name = "other"
	key := model.KeyOf(src)
	for name, c := range map[string]struct {
		happens func(s *scene)
		most    int
	}{
		"nothing":                     {func(*scene) {}, reasons},
		"a user edits a copy":         {func(s *scene) { s.userWrites(copyIn("team-a", "a")) }, reasons + 2},
		"we write a copy":             {func(s *scene) { s.write(copyIn("team-a", "a")) }, reasons},
		"a user edits something else": {func(s *scene) { s.userWrites(other) }, reasons},
		"a namespace gets a label":    {func(s *scene) { s.namespace("team-a", "tier", "gold") }, reasons + 2},
		"another process takes over":  {func(s *scene) { s.takeOver() }, 2 * reasons},
	} {
		s := newScene()
		s.userWrites(src)
		s.begin(t)
		c.happens(s)
		j := s.newJudgement()
		if got := j.mostEvents(key); got != c.most {
			t.Errorf("%s: got %d events, want %d", name, got, c.most)
		}
	}
	s := newScene()
	s.begin(t)
	s.namespace("team-a", "tier", "gold") // before there is a source
	s.userWrites(src)
	if got := s.newJudgement().mostEvents(key); got != reasons+2 {
		t.Errorf("got %d events for a source that came later, want %d: its own appearance", got, reasons+2)
	}
}

// TestNoticed has an object without label adopted, some time after it was handed over.
func TestNoticed(t *testing.T) {
	foreign := annotated(settingsIn("team-a", "mine"), model.AdoptAnnotation, "true")
	const tooLong = longestRetry + noticeSlack + time.Second
	for name, c := range map[string]struct {
		object *corev1.ConfigMap
		healed time.Duration // before the adoption
		waited time.Duration // likewise: the object was handed over
		later  func(*scene)  // behind that
		want   string
	}{
		"at once":                     {object: foreign, healed: time.Hour},
		"within a minute":             {object: foreign, healed: time.Hour, waited: longestRetry},
		"late":                        {object: foreign, healed: time.Hour, waited: tooLong, want: "after the last change"},
		"late, with a label":          {object: labelled(foreign, model.Label, model.CopyMark), healed: time.Hour, waited: tooLong},
		"after the last fault":        {object: foreign, healed: time.Minute, waited: time.Hour},
		"late after the last fault":   {object: foreign, healed: tooLong + late, waited: time.Hour, want: "after the last change"},
		"late, and a source changed":  {object: foreign, healed: time.Hour, waited: tooLong, later: func(s *scene) { s.userWrites(labelled(sourceIn("home", "1"), "a", "b")) }},
		"late, and a namespace":       {object: foreign, healed: time.Hour, waited: tooLong, later: func(s *scene) { s.namespace("team-a", "tier", "gold") }},
		"late, and another namespace": {object: foreign, healed: time.Hour, waited: tooLong, later: func(s *scene) { s.namespace("teamster", "tier", "gold") }, want: "after the last change"},
		"late, and another process":   {object: foreign, healed: time.Hour, waited: tooLong, later: (*scene).takeOver},
	} {
		s := newScene()
		s.userWrites(sourceIn("home", "1"))
		s.begin(t)
		s.userWrites(c.object)
		s.age(c.waited)
		if c.later != nil {
			c.later(s)
		}
		s.round.healed = time.Now().Add(-c.healed)
		s.write(copyIn("team-a", "1"))
		if got := s.problems(); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", name, got, c.want)
		}
	}
}

func TestRecord(t *testing.T) {
	var r record[int]
	one, two := 1, 2
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	r = r.add(spell[int]{state: &one, from: "9", seen: at(1)})
	r = r.add(spell[int]{state: &two, from: "10", seen: at(2)})
	r = r.add(spell[int]{from: "11", seen: at(3)})
	for name, c := range map[string]struct {
		got  record[int]
		want string
	}{
		"all":                  {r, "nothing 1 2 nothing"},
		"since":                {r.since(at(2)), "1 2 nothing"},
		"since the end":        {r.since(at(9)), "nothing"},
		"before":               {r.before("10"), "nothing 1 2"},
		"before, as a number":  {r.before("9"), "nothing 1"},
		"before all":           {r.before("1"), "nothing"},
		"what there never was": {nil, "nothing"},
	} {
		var got []string
		for _, s := range c.got.states() {
			if s == nil {
				got = append(got, "nothing")
			} else {
				got = append(got, fmt.Sprint(*s))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
	if r.torn() || !r.add(spell[int]{gap: true}).torn() {
		t.Error("torn by something else than a gap")
	}
}

// TestHurried has two events written by a, which has a second process from 30 seconds on.
func TestHurried(t *testing.T) {
	lives := []life{{user: "a", started: at(0), ended: at(30_000)}, {user: "a", started: at(30_000)}, {user: "b", started: at(0)}}
	keys := map[model.Key]eventKey{}
	for name, reason := range map[string]string{"settings.1": "Foreign", "settings.2": "Foreign", "settings.3": "Mirrored"} {
		keys[model.Key{Namespace: "home", Name: name}] = eventKey{"home", reason}
	}
	for name, c := range map[string]struct {
		log      []string // "who verb at event"
		happened []string
		hurried  bool
	}{
		"two objects":           {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, hurried: true},
		"one object":            {log: []string{"a create 10000 settings.1", "a patch 15000 settings.1"}, hurried: true},
		"in time":               {log: []string{"a create 10000 settings.1", "a patch 19600 settings.1", "a create 29900 settings.2"}},
		"noted the other way":   {log: []string{"a create 25000 settings.2", "a create 10000 settings.1"}},
		"another reason":        {log: []string{"a create 10000 settings.1", "a create 10001 settings.3"}},
		"another process":       {log: []string{"a create 29000 settings.1", "a create 31000 settings.2"}},
		"another replica":       {log: []string{"a create 10000 settings.1", "b create 11000 settings.2"}},
		"an event that is gone": {log: []string{"a create 10000 settings.1", "a create 10001 settings.9"}},
		"held up on its way":    {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, happened: []string{"a requests-delay 9000 9500"}},
		"held up afterwards":    {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, happened: []string{"a requests-delay 19000 19500"}, hurried: true},
		"the other held up":     {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, happened: []string{"b requests-delay 9000 9500"}, hurried: true},
	} {
		j := &judgement{storm: stormWith(t, c.happened...)}
		j.eventGap = 10 * time.Second
		for _, line := range c.log {
			var who, verb, event string
			var received int
			if _, err := fmt.Sscan(line, &who, &verb, &received, &event); err != nil {
				t.Fatal(err)
			}
			e := cluster.Event{Verb: verb, Received: at(received)}
			e.User.Username, e.Object.Namespace, e.Object.Name = who, "home", event
			j.events = append(j.events, e)
		}
		j.hurried(keys, lives)
		if got := len(j.problems) > 0; got != c.hurried {
			t.Errorf("%s: problems %q, want some: %t", name, j.problems, c.hurried)
		}
	}
}
