package main

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

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

// TestTalk has an event about home/settings judged.
func TestTalk(t *testing.T) {
	other := copyIn("team-a", "1")
	other.Annotations[model.SourceAnnotation] = "other/settings"
	for name, c := range map[string]struct {
		there *corev1.ConfigMap
		want  int
	}{
		"a source":            {sourceIn("home", "1"), 0},
		"no source":           {settingsIn("home", "1"), 1},
		"of a copy's source":  {copyIn("team-a", "1"), 0}, // which never was, perhaps
		"of another's source": {other, 1},
		"another source":      {sourceIn("other", "1"), 1},
	} {
		s := newScene()
		s.userWrites(c.there)
		s.begin(t)
		j, e := s.newJudgement(), cluster.Event{}
		e.Object.Namespace, e.Object.Name = "home", "settings.1a"
		j.events = []cluster.Event{e}
		if j.talk(); len(j.problems) != c.want {
			t.Errorf("%s: problems %q, want %d", name, j.problems, c.want)
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
