package main

import (
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

// scene is a history that a test makes up. Steps that are not marked as a user's are the controller's.
type scene struct {
	*storm
	rv      int
	deletes map[model.Key][]cluster.Event
}

// newScene returns one with the namespaces home, team-a and teamster, which the flags do not allow.
func newScene() *scene {
	flags := flagsOf(0, 100)
	s := &scene{storm: &storm{
		history: newHistory(), users: newUsers(nil), stalls: &stalls.Log{}, writers: &writers{}, sums: newSums(), counts: newCounts(),
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

// change changes the flags to those of a profile. There is no grace.
func (s *scene) change(profile int) { s.fleet.setFlags(flagsOf(profile, 100), false) }

// wait has a minute be the deletion grace all the time.
func (s *scene) wait() { s.fleet.inForce[0].Grace = time.Minute }

// lead has the process of a user start, and renew the lease for the first time.
func (s *scene) lead(user string) {
	now := time.Now()
	s.fleet.lives = append(s.fleet.lives, &life{user: user, started: now})
	e := cluster.Event{Received: now}
	e.User.Username = user
	s.writers.renewed = append(s.writers.renewed, e)
}

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
	s.users.wrote[ns.ResourceVersion] = time.Now()
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
	s.users.wrote[cm.ResourceVersion] = time.Now()
	return cm
}

// remove has a ConfigMap be gone.
func (s *scene) remove(cm *corev1.ConfigMap) {
	s.history.takeConfigMap(model.KeyOf(cm), nil, s.next(), false)
}

func (s *scene) userRemoves(cm *corev1.ConfigMap) {
	s.users.deleted[stateOf(s.history.present()[model.KeyOf(cm)])] = time.Now()
	s.remove(cm)
}

// userReplaces has a ConfigMap be gone, and within the grace there again.
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
	for rv, at := range s.users.wrote {
		s.users.wrote[rv] = at.Add(-by)
	}
	for state, at := range s.users.deleted {
		s.users.deleted[state] = at.Add(-by)
	}
	for i := range s.fleet.lives {
		s.fleet.lives[i].started = s.fleet.lives[i].started.Add(-by)
	}
	for i := range s.writers.renewed {
		s.writers.renewed[i].Received = s.writers.renewed[i].Received.Add(-by)
	}
	s.round.began, s.round.before = s.round.began.Add(-by), s.round.before.Add(-by)
}

func earlier[T any](r record[T], by time.Duration) {
	for i := range r {
		r[i].seen = r[i].seen.Add(-by)
	}
}

// userAway has a ConfigMap be gone, to come back within the grace.
func (s *scene) userAway(cm *corev1.ConfigMap) {
	s.users.replaced[stateOf(s.history.present()[model.KeyOf(cm)])] = true
	s.userRemoves(cm)
}

// controllerRemoves is remove with a line in the audit log.
func (s *scene) controllerRemoves(cm *corev1.ConfigMap) {
	key := model.KeyOf(cm)
	e := cluster.Event{Verb: "delete", Received: time.Now()}
	for _, l := range s.fleet.lives {
		e.User.Username = l.user // the last
	}
	s.deletes[key] = append(s.deletes[key], e)
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

func list(cms ...*corev1.ConfigMap) []*corev1.ConfigMap { return cms }
