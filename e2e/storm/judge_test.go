package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
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
		history: newHistory(), users: newUsers(nil), stalls: &stalls{}, sums: newSums(), counts: newCounts(),
		fleet: &fleet{flags: flags, inForce: []model.Flags{flags}}, settled: map[model.Key]bool{},
	}, deletes: map[model.Key][]cluster.Event{}}
	s.round = &course{}
	for _, name := range []string{"home", "other", "team-a", "teamster"} {
		s.namespace(name)
	}
	return s
}

// begin begins the round that is judged.
func (s *scene) begin() {
	s.history.takeRound()
	s.users.forget()
	s.round = &course{start: s.history.present(), settled: s.settled, began: time.Now(), starts: s.fleet.starts()}
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

// TestJudge has histories judged. Each has a source home/settings and its copy in team-a before the round, if the case
// does not say otherwise.
func TestJudge(t *testing.T) {
	source, copied := sourceIn("home", "1"), copyIn("team-a", "1")
	frozen := annotated(source, model.SelectorAnnotation, "a in (")
	foreign := settingsIn("team-a", "mine", model.Label, model.CopyMark)
	stranger := copyIn("teamster", "1")
	for name, c := range map[string]struct {
		before   []*corev1.ConfigMap // nil: source and copy
		optedOut bool                // team-a, before the round
		happen   func(s *scene)
		want     string // a part of the problem; empty: there is none
	}{
		"nothing happens": {happen: func(*scene) {}},

		"a copy follows":               {happen: func(s *scene) { s.userWrites(sourceIn("home", "2")); s.write(copyIn("team-a", "2")) }},
		"a copy of what never was":     {happen: func(s *scene) { s.userWrites(sourceIn("home", "2")); s.write(copyIn("team-a", "3")) }, want: "never asked"},
		"a copy where none is allowed": {happen: func(s *scene) { s.write(stranger) }, want: "outside the flags"},
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
		"deleted with its namespace":    {happen: func(s *scene) { s.closing("team-a"); s.remove(copied) }},
		"deleted before its namespace":  {happen: func(s *scene) { s.remove(copied); s.closing("team-a") }, want: "wanted it all the time"},
		"foreign, with its namespace":   {before: list(foreign), happen: func(s *scene) { s.closing("team-a"); s.remove(foreign) }},
		"foreign, in a closing one":     {before: list(foreign), happen: func(s *scene) { s.closing("team-a"); s.controllerRemoves(foreign) }, want: "a foreign object was deleted"},
		"foreign, at an opt-out":        {before: list(foreign), happen: func(s *scene) { s.namespace("team-a", model.Label, model.OptOut); s.controllerRemoves(foreign) }, want: "a foreign object was deleted"},
		"foreign, and changed":          {before: list(foreign), happen: func(s *scene) { s.write(copied) }, want: "a foreign object was changed"},
		"opted out":                     {happen: func(s *scene) { s.namespace("team-a", model.Label, model.OptOut); s.controllerRemoves(copied) }},
		"labelled, and still a target":  {happen: func(s *scene) { s.namespace("team-a", "tier", "gold"); s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"unlabelled source":             {happen: func(s *scene) { s.userWrites(settingsIn("home", "1")); s.controllerRemoves(copied) }},
		"frozen in the round":           {happen: func(s *scene) { s.userWrites(frozen); s.controllerRemoves(copied) }, want: "wanted it all the time"},
		"written while frozen":          {before: list(frozen, copied), happen: func(s *scene) { s.write(copyIn("team-a", "2")) }, want: "is frozen"},
		"a source is gone, and another": {before: list(source, sourceIn("other", "2"), copied), happen: func(s *scene) { s.userRemoves(source); s.controllerRemoves(copied) }, want: "other/settings wanted it"},

		"a stranger that turned up": {
			before: list(source),
			happen: func(s *scene) { s.userWrites(stranger); s.controllerRemoves(stranger) },
			want:   "turned up outside the flags",
		},
		"a stranger that was there before": {before: list(source, stranger), happen: func(s *scene) { s.controllerRemoves(stranger) }},
		"a stranger, and a start": {
			before: list(source),
			happen: func(s *scene) {
				s.userWrites(stranger)
				s.fleet.lives = append(s.fleet.lives, &life{})
				s.controllerRemoves(stranger)
			},
		},
		"a stranger whose source goes": {
			before: list(source),
			happen: func(s *scene) { s.userWrites(stranger); s.userRemoves(source); s.controllerRemoves(stranger) },
		},

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
			held := copyIn("team-a", "x")
			held.Finalizers = []string{finalizer}
			s.userWrites(held)
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
			s.begin()
			s.round.before = s.round.began // what ended before is forgotten
			c.happen(s)
			j := s.newJudgement()
			maps.Copy(j.writes, s.deletes)
			j.judgeTransitions()
			got := strings.Join(j.problems, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}

func list(cms ...*corev1.ConfigMap) []*corev1.ConfigMap { return cms }

// TestWriters has audit logs judged. A request is "who what at to until", in milliseconds.
func TestWriters(t *testing.T) {
	read := func(lines []string) (renewed, writes []cluster.Event) {
		for _, line := range lines {
			var who, what string
			var from, to int
			if _, err := fmt.Sscan(line, &who, &what, &from, &to); err != nil {
				t.Fatal(err)
			}
			e := cluster.Event{Verb: what, Received: time.UnixMilli(int64(from)), Done: time.UnixMilli(int64(to))}
			e.User.Username = who
			if what == "renew" {
				renewed = append(renewed, e)
			} else {
				writes = append(writes, e)
			}
		}
		return renewed, writes
	}
	dead := []life{{user: "a", started: time.UnixMilli(0), ended: time.UnixMilli(20)}, {user: "a", started: time.UnixMilli(21)}}
	for name, c := range map[string]struct {
		log   []string
		lives []life
		late  int
		want  string
	}{
		"one writer":             {log: []string{"a renew 1 2", "a create 3 4"}},
		"before the lease":       {log: []string{"a create 3 4", "a renew 5 6"}, want: "never had the lease"},
		"one after the other":    {log: []string{"a renew 1 2", "a create 3 4", "b renew 5 6", "b create 7 8"}},
		"one that came late":     {log: []string{"a renew 1 2", "b renew 5 6", "a create 7 8"}, want: "two writers"},
		"one that lasted":        {log: []string{"a renew 1 2", "a create 3 7", "b renew 5 6"}, want: "two writers"},
		"as late as may be":      {log: []string{"a renew 1 2", "b renew 5 6", "a create 7 8"}, late: 1},
		"later than may be":      {log: []string{"a renew 1 2", "b renew 5 6", "a create 7 8", "a update 7 9"}, late: 1, want: "two writers"},
		"had it, has it again":   {log: []string{"a renew 1 2", "b renew 5 6", "a renew 9 10", "a create 11 12"}},
		"the next process":       {log: append([]string{"a renew 1 2", "a renew 30 31"}, slices.Repeat([]string{"a create 32 33"}, 2*concurrentWrites)...), lives: dead},
		"the next, without":      {log: append([]string{"a renew 1 2"}, slices.Repeat([]string{"a create 30 31"}, concurrentWrites+1)...), lives: dead, want: "does not have the lease"},
		"the last of the killed": {log: append([]string{"a renew 1 2"}, slices.Repeat([]string{"a create 30 31"}, concurrentWrites)...), lives: dead},
	} {
		renewed, writes := read(c.log)
		w := &writers{renewed: renewed}
		got := strings.Join(w.compare(writes, c.lives, c.late), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", name, got, c.want)
		}
	}
}

// TestLostForNothing has three processes end: one before, one that lost its lease, and one that was stopped.
func TestLostForNothing(t *testing.T) {
	lives := []life{
		{ended: time.UnixMilli(1), lost: true}, {ended: time.UnixMilli(11), lost: true}, {ended: time.UnixMilli(12)}, {},
	}
	if problem := lostForNothing(lives, time.UnixMilli(10), 1); problem != "" {
		t.Errorf("one lease lost, one thing went wrong: %s", problem)
	}
	if lostForNothing(lives, time.UnixMilli(10), 0) == "" {
		t.Error("one lease lost, nothing went wrong: no problem")
	}
	if problem := lostForNothing(lives, time.UnixMilli(11), 0); problem != "" {
		t.Errorf("no lease lost: %s", problem)
	}
}

// TestQuietness has the requests of a time of quiet judged, so many of each.
func TestQuietness(t *testing.T) {
	request := func(verb, resource, name string, code int) cluster.Event {
		e := cluster.Event{Verb: verb}
		e.Object.Resource, e.Object.Namespace, e.Object.Name, e.Response.Code = resource, "team-a", name, code
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
		"looks where something is":    {request("get", "configmaps", "way", 200), 4},
		"looks at a namespace":        {request("get", "namespaces", "team-a", 200), retried},
		"events about a source":       {request("create", "events", "settings.1a", 201), reasons},
		"watches":                     {request("watch", "configmaps", "", 200), watchesAnew},
		"lists":                       {request("list", "namespaces", "", 200), watchesAnew},
		"looks at the lease":          {request("get", "leases", "mirror-controller", 200), 6 * leaseRequests},
		"what nobody has thought of":  {request("get", "secrets", "x", 403), retried},
		"changes of something unseen": {request("create", "secrets", "x", 201), retried},
	} {
		q := &quietness{window: 5 * time.Second, open: open, asked: map[string]int{}}
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
