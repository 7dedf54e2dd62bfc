package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

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
		"from":                 {r.from("10"), "2 nothing"},
		"from in between":      {r[2:].from("9"), "2 nothing"},
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
	lives := []life{{user: "a", started: at(0), ended: at(30_000), gaveBack: true}, {user: "a", started: at(30_000)}, {user: "b", started: at(0)}, {user: "c", started: at(0), ended: at(30_000)}}
	keys := map[model.Key]eventKey{}
	for name, reason := range map[string]string{"settings.1": "Foreign", "settings.2": "Foreign", "settings.3": "Mirrored"} {
		keys[model.Key{Namespace: "home", Name: name}] = eventKey{"home", reason}
	}
	for name, c := range map[string]struct {
		log      []string // "who verb at event"
		happened []string
		hurried  bool
	}{
		"two objects":             {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, hurried: true},
		"one object":              {log: []string{"a create 10000 settings.1", "a patch 15000 settings.1"}, hurried: true},
		"in time":                 {log: []string{"a create 10000 settings.1", "a patch 19600 settings.1", "a create 29900 settings.2"}},
		"noted the other way":     {log: []string{"a create 25000 settings.2", "a create 10000 settings.1"}},
		"another reason":          {log: []string{"a create 10000 settings.1", "a create 10001 settings.3"}},
		"another process":         {log: []string{"a create 29000 settings.1", "a create 31000 settings.2"}},
		"the last before a stop":  {log: []string{"a create 20000 settings.1", "a create 28000 settings.2"}},
		"long before a stop":      {log: []string{"a create 20000 settings.1", "a create 26000 settings.2"}, hurried: true},
		"the last before a crash": {log: []string{"c create 20000 settings.1", "c create 28000 settings.2"}, hurried: true},
		"another replica":         {log: []string{"a create 10000 settings.1", "b create 11000 settings.2"}},
		"an event that is gone":   {log: []string{"a create 10000 settings.1", "a create 10001 settings.9"}},
		"held up on its way":      {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, happened: []string{"a requests-delay 9000 9500"}},
		"held up afterwards":      {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, happened: []string{"a requests-delay 19000 19500"}, hurried: true},
		"the other held up":       {log: []string{"a create 10000 settings.1", "a create 15000 settings.2"}, happened: []string{"b requests-delay 9000 9500"}, hurried: true},
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

// TestPristine: an object that the controller re-creates has the metadata of the immutable one before.
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
			if err := s.users.note(key, user, time.Now(), nil); err != nil {
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
