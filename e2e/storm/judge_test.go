package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

const leader, standby = "leader", "standby"

// scene is a cluster and an audit log made up by a test. Each write takes effect 100 seconds behind the one before.
type scene struct {
	t *testing.T
	*history
	part
	now time.Time
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, history: newHistory(), now: time.Unix(1e9, 0)}
	s.flags, s.grace, s.ours = newFlags(false, "tier!=bronze", "team-", "dev-"), time.Second, []string{leader, standby}
	s.disturbed = func(string, time.Time, time.Time) time.Duration { return 0 }
	for _, name := range slices.Concat(homes, targets) {
		s.namespace(name, nil)
	}
	s.since = s.revision
	s.lease(leader, leader)
	return s
}

func (s *scene) namespace(name string, labels map[string]string) {
	s.revision++
	s.addNamespace(name, s.revision, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// log adds a request to the log, after a time.
func (s *scene) log(after time.Duration, user, verb, resource string, at key, code int, sent, answer any) *request {
	s.t.Helper()
	s.now = s.now.Add(after)
	e := cluster.Event{Verb: verb, Received: s.now, Done: s.now, Sent: asJSON(sent), Answer: asJSON(answer)}
	e.User.Username, e.Object.Resource, e.Object.Namespace, e.Object.Name = user, resource, at.Namespace, at.Name
	e.Response.Code = code
	r, err := parse(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.requests = append(s.requests, r)
	return r
}

func asJSON(object any) json.RawMessage {
	if object == nil {
		return nil
	}
	text, _ := json.Marshal(object) // of types that can be
	return text
}

const usual = 100 * time.Second

// put writes a ConfigMap: a create or an update.
func (s *scene) put(user string, cm *corev1.ConfigMap) *corev1.ConfigMap {
	s.t.Helper()
	verb, sent := "create", cm.DeepCopy()
	if cm.ResourceVersion != "" {
		verb = "update"
	}
	s.revision++
	cm = cm.DeepCopy()
	cm.ResourceVersion = strconv.FormatInt(s.revision, 10)
	cm.UID = types.UID("uid-" + cm.Namespace + cm.Name)
	s.addConfigMap(keyOf(cm), s.revision, cm)
	s.log(usual, user, verb, "configmaps", keyOf(cm), 200, sent, cm)
	return cm
}

// remove deletes a ConfigMap, some time after the last request.
func (s *scene) remove(after time.Duration, user string, cm *corev1.ConfigMap) {
	s.t.Helper()
	s.revision++
	s.addConfigMap(keyOf(cm), s.revision, nil)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}}
	s.log(after, user, "delete", "configmaps", keyOf(cm), 200, options, nil)
}

func (s *scene) lease(user, holder string) {
	s.t.Helper()
	lease := coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	s.log(usual, user, "update", "leases", key{Namespace: "mirror-system", Name: "lease"}, 200, lease, lease)
}

// get has the leader read a ConfigMap live, some time after the last request.
func (s *scene) get(after time.Duration, cm *corev1.ConfigMap) {
	s.t.Helper()
	if live := s.configMaps[keyOf(cm)].at(s.revision); live != nil {
		s.log(after, leader, "get", "configmaps", keyOf(cm), 200, nil, live)
		return
	}
	s.log(after, leader, "get", "configmaps", keyOf(cm), 404, nil, nil)
}

// getNamespace has the leader read a namespace live.
func (s *scene) getNamespace(name string) {
	s.t.Helper()
	s.log(0, leader, "get", "namespaces", key{Namespace: name, Name: name}, 200, nil, s.namespaces[name].at(s.revision))
}

// configMap makes one.
func configMap(namespace string, edits ...edit) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}}
	for _, e := range edits {
		e(cm)
	}
	return cm
}

func newSource(edits ...edit) *corev1.ConfigMap {
	return configMap("home", append([]edit{label(mirrorLabel, "true"), content(1)}, edits...)...)
}

// newCopy makes a copy of it.
func newCopy(namespace string, edits ...edit) *corev1.ConfigMap {
	return configMap(namespace, append([]edit{
		label(mirrorLabel, "copy"), annotation(domain+"instance", "default"), content(1),
		annotation(domain+"source", "home/settings"), annotation(domain+"copy", namespace+"/settings"),
	}, edits...)...)
}

func edited(cm *corev1.ConfigMap, edits ...edit) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	for _, e := range edits {
		e(cm)
	}
	return cm
}

func version(rv string) edit { return func(cm *corev1.ConfigMap) { cm.ResourceVersion = rv } }

func in(namespace string) edit { return func(cm *corev1.ConfigMap) { cm.Namespace = namespace } }

// mirrored makes a source and its copy.
func (s *scene) mirrored(edits ...edit) (source, made *corev1.ConfigMap) {
	s.t.Helper()
	return s.put(usersName, newSource(edits...)), s.put(leader, newCopy("team-a", edits...))
}

// removesHeld has the leader delete a copy whose source is narrowed and holds it, by what the leader reads before.
func (s *scene) removesHeld(hold edit) {
	source, made := s.mirrored()
	s.put(usersName, edited(source, prefixes("dev-"), hold))
	s.get(0, source)
	s.getNamespace("team-a")
	s.remove(0, leader, made)
}

// prunes has the leader of other flags delete a copy whose source is gone, from a namespace with these labels.
func (s *scene) prunes(prune bool, labels map[string]string, prefixes ...string) {
	s.t.Helper()
	source, made := s.mirrored()
	s.namespace("team-a", labels)
	s.Prune, s.NamespacePrefixes, s.since, s.requests = prune, prefixes, s.revision, s.requests[:1]
	s.remove(usual, usersName, source)
	s.get(usual, source)
	s.getNamespace("team-a")
	s.remove(time.Second, leader, made)
}

// TestJudge: what the controller may do is no finding, and each wrong is found.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(s *scene)
		want    string // a part of a problem; empty: there is none
	}{
		"a copy follows its source": {func(s *scene) {
			source, made := s.mirrored()
			s.put(usersName, edited(source, content(2)))
			s.put(leader, edited(made, content(2)))
		}, ""},
		"other content": {func(s *scene) {
			_, made := s.mirrored()
			s.put(leader, edited(made, content(2)))
		}, "never asked for that"},
		"content that comes later": {func(s *scene) {
			source, made := s.mirrored()
			s.put(leader, edited(made, content(2)))
			s.put(usersName, edited(source, content(2)))
		}, "never asked for that"},
		"out of scope": {func(s *scene) {
			s.mirrored()
			s.put(leader, newCopy("shared"))
		}, "never asked for that"},
		"in a namespace that opted out": {func(s *scene) {
			s.namespace("team-b", map[string]string{mirrorLabel: "false"})
			s.since = s.revision
			s.mirrored()
			s.put(leader, newCopy("team-b"))
		}, "never asked for that"},
		"an old source in a new namespace": {func(s *scene) {
			s.namespace("team-b", map[string]string{mirrorLabel: "false"})
			s.since = s.revision
			source, _ := s.mirrored()
			s.remove(usual, usersName, source)
			s.namespace("team-b", nil)
			s.put(leader, newCopy("team-b"))
		}, ""},
		"no copy": {func(s *scene) {
			s.mirrored()
			s.put(leader, configMap("team-b", content(1)))
		}, "it writes no copy"},
		"an update that nothing follows from": {func(s *scene) {
			_, made := s.mirrored()
			s.log(usual, leader, "update", "configmaps", keyOf(made), 200, made, made)
		}, "it changed nothing"},
		"a write when all is quiet": {func(s *scene) {
			source, made := s.mirrored()
			s.put(usersName, edited(source, content(2)))
			s.quiet = s.now
			s.put(leader, edited(made, content(2)))
		}, "it came when all was quiet"},
		"a refused write when all is quiet": {func(s *scene) {
			_, made := s.mirrored()
			s.quiet = s.now
			s.log(usual, leader, "create", "configmaps", keyOf(made), 409, made, nil)
		}, ""},
		"an update without a precondition": {func(s *scene) {
			_, made := s.mirrored()
			s.log(usual, leader, "update", "configmaps", keyOf(made), 200, edited(made, version("")), nil)
		}, "it depends on no state"},
		"a refused delete without a UID": {func(s *scene) {
			_, made := s.mirrored()
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &made.ResourceVersion}}
			s.log(usual, leader, "delete", "configmaps", keyOf(made), 409, options, nil)
		}, "it depends on no state"},
		"a delete that was cut before it was read": {func(s *scene) {
			_, made := s.mirrored()
			s.log(usual, leader, "delete", "configmaps", keyOf(made), 500, nil, nil)
		}, ""},
		"a state that never was": {func(s *scene) {
			_, made := s.mirrored()
			made.ResourceVersion = "3"
			s.log(usual, leader, "update", "configmaps", keyOf(made), 409, made, nil)
		}, "there never was a state 3"},
		"a foreign object": {func(s *scene) {
			s.put(usersName, newSource())
			foreign := s.put(usersName, configMap("team-a", content(3)))
			s.put(leader, edited(newCopy("team-a"), version(foreign.ResourceVersion)))
		}, "it touches a foreign object"},
		"a clone of a copy": {func(s *scene) {
			_, made := s.mirrored()
			clone := s.put(usersName, edited(made, in("dev-x"), version("")))
			s.remove(usual, leader, clone)
		}, "it touches a foreign object"},
		"a refused update of a foreign object": {func(s *scene) {
			s.put(usersName, newSource())
			foreign := s.put(usersName, configMap("team-a", content(3)))
			sent := edited(newCopy("team-a"), version(foreign.ResourceVersion))
			s.log(usual, leader, "update", "configmaps", keyOf(foreign), 409, sent, nil)
		}, "it touches a foreign object"},
		"a source": {func(s *scene) { s.remove(usual, leader, s.put(usersName, newSource())) }, "it touches a source"},
		"a patch": {func(s *scene) {
			_, made := s.mirrored()
			s.log(usual, leader, "patch", "configmaps", keyOf(made), 200, nil, nil)
		}, "created, updated or deleted"},
		"a Secret": {func(s *scene) {
			s.log(usual, leader, "create", "secrets", key{Namespace: "home", Name: "a"}, 201, nil, nil)
		}, "none of the controller's business"},

		"the source is gone": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.get(usual, source)
			s.getNamespace("team-a")
			s.remove(time.Second, leader, made)
		}, ""},
		"the source is unlabelled twice": {func(s *scene) {
			source, made := s.mirrored()
			source = s.put(usersName, edited(source, label(mirrorLabel, "")))
			s.get(usual, source)
			s.getNamespace("team-a")
			s.remove(time.Second, leader, made)
			s.log(usual, usersName, "update", "configmaps", keyOf(source), 200, source, source)
		}, ""},
		"the source was not read": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.remove(usual, leader, made)
		}, "was not read live before"},
		"the source was read long ago": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.get(usual, source)
			s.remove(usual, leader, made)
		}, "was not read live before"},
		"the source asks": {func(s *scene) {
			source, made := s.mirrored()
			s.namespace("team-a", map[string]string{mirrorLabel: "false"})
			s.get(usual, source)
			s.namespace("team-a", nil)
			s.getNamespace("team-a")
			s.remove(time.Second, leader, made)
		}, "asks for the copy, by what was read live"},
		"the namespace opted out": {func(s *scene) {
			source, made := s.mirrored()
			s.namespace("team-a", map[string]string{mirrorLabel: "false"})
			s.get(usual, source)
			s.getNamespace("team-a")
			s.remove(time.Second, leader, made)
		}, ""},
		"the namespace was not read": {func(s *scene) {
			s.NamespaceSelector = ""
			source, made := s.mirrored()
			s.namespace("team-a", map[string]string{mirrorLabel: "false"})
			s.get(usual, source)
			s.remove(time.Second, leader, made)
		}, "and that was not read live before"},
		"another source asks": {func(s *scene) {
			source, made := s.mirrored()
			s.put(usersName, edited(newSource(), in("shared")))
			s.remove(usual, usersName, source)
			s.get(usual, source)
			s.remove(time.Second, leader, made)
		}, "had been claimed for"},
		"another source asks for too short a time": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.get(usual, source)
			s.getNamespace("team-a")
			s.now = s.now.Add(-usual)
			other := s.put(usersName, edited(newSource(), in("shared")))
			s.remove(time.Second, usersName, other)
			s.remove(0, leader, made)
		}, ""},
		"another source asks, and the log lacks that": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.get(time.Second, source)
			s.getNamespace("team-a")
			s.now = s.now.Add(-usual)
			s.put(usersName, edited(newSource(), in("shared")))
			s.requests = s.requests[:len(s.requests)-1]
			s.remove(time.Second, leader, made)
		}, ""},
		"the source is frozen": {func(s *scene) {
			source, made := s.mirrored()
			s.put(usersName, edited(source, prefixes("*")))
			s.get(0, source)
			s.remove(0, leader, made)
		}, "is frozen"},
		"the source is paused":     {func(s *scene) { s.removesHeld(annotation(domain+"paused", "true")) }, "holds the copy, by what was read live"},
		"the source is in a stage": {func(s *scene) { s.removesHeld(annotation(domain+"rollout", "tier=bronze")) }, "holds the copy, by what was read live"},
		"a held target is written": {func(s *scene) {
			s.put(usersName, newSource(annotation(domain+"rollout", "tier=bronze")))
			s.put(leader, newCopy("team-b"))
		}, "never asked for that there"},
		"too soon": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.get(0, source)
			s.remove(time.Second/2, leader, made)
		}, "was unclaimed for 500ms"},
		"too soon after the takeover": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.lease(standby, standby)
			s.lease(leader, leader)
			s.get(0, source)
			s.remove(time.Second/2, leader, made)
		}, "was unclaimed for 500ms"},
		"after a renewal": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.lease(leader, leader)
			s.get(0, source)
			s.getNamespace("team-a")
			s.remove(0, leader, made)
		}, ""},
		"released by its label": {func(s *scene) {
			source, made := s.mirrored()
			made = s.put(usersName, edited(made, label(mirrorLabel, "")))
			s.remove(usual, usersName, source)
			s.get(usual, source)
			s.remove(time.Second, leader, made)
		}, "had lost its label"},
		"out of scope by name":   {func(s *scene) { s.prunes(false, nil, "dev-") }, "it is out of scope"},
		"out of scope by labels": {func(s *scene) { s.prunes(false, map[string]string{"tier": "bronze"}, "team-") }, "it is out of scope"},
		"in scope":               {func(s *scene) { s.prunes(false, nil, "team-") }, ""},
		"labels that were not read": {func(s *scene) {
			source, made := s.mirrored()
			s.remove(usual, usersName, source)
			s.get(usual, source)
			s.remove(time.Second, leader, made)
		}, "its labels decide about the scope"},
		"pruned by name":   {func(s *scene) { s.prunes(true, nil, "dev-") }, ""},
		"pruned by labels": {func(s *scene) { s.prunes(true, map[string]string{"tier": "bronze"}, "team-") }, ""},
		"an immutable copy is made again": {func(s *scene) {
			source, made := s.mirrored(makeImmutable)
			s.remove(usual, usersName, source)
			s.put(usersName, newSource(content(2), makeImmutable))
			s.remove(usual, leader, made)
			s.put(leader, newCopy("team-a", content(2), makeImmutable))
		}, ""},

		"another process leads": {func(s *scene) {
			s.mirrored()
			s.lease(standby, standby)
			s.put(standby, newCopy("team-b"))
		}, ""},
		"two writers": {func(s *scene) {
			s.mirrored()
			s.lease(standby, standby)
			s.put(leader, newCopy("team-b"))
		}, "had lost the lease"},
		"a writer that gave the lease back": {func(s *scene) {
			s.mirrored()
			s.lease(leader, "")
			s.put(leader, newCopy("team-b"))
		}, "had lost the lease"},
		"a standby": {func(s *scene) {
			s.mirrored()
			s.put(standby, newCopy("team-b"))
		}, "never had the lease"},
		"a writer that stood still": {func(s *scene) {
			s.mirrored()
			s.lease(standby, standby)
			s.put(leader, newCopy("team-b"))
			s.disturbed = func(string, time.Time, time.Time) time.Duration { return usual }
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			c.happens(s)
			got := s.judge(s.history)
			if c.want == "" && len(got) > 0 || c.want != "" && !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestAPIServerGivesUp: a deletion that the log calls failed counts if it was carried out.
func TestAPIServerGivesUp(t *testing.T) {
	for code, want := range map[int]bool{504: true, 409: false} {
		s := newScene(t)
		source, made := s.mirrored()
		s.remove(usual, usersName, source)
		s.remove(usual, leader, made)
		s.requests[len(s.requests)-1].Response.Code, s.requests[len(s.requests)-1].accepted = code, false
		if got := s.judge(s.history); (len(got) > 0) != want {
			t.Errorf("%d: got %q, want problems: %v", code, got, want)
		}
	}
}
