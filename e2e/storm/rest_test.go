package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestPlanned: what is due by a plan from scratch is found, and copies are counted by their states.
func TestPlanned(t *testing.T) {
	f := newFlags(100, "", "team-", "dev-")
	w := newWorld()
	for _, name := range []string{"home", "shared", "team-a", "team-b", "team-c"} {
		w.Namespaces[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	rules := plan.NewRules(&f.Options)
	source := newSource()
	loser := edited(source, in("shared"))
	for _, namespace := range []string{"team-a", "team-b"} {
		made := rules.Desired(rules.ParseSource(source), namespace, nil).DeepCopy() // it shares its data with the source
		made.Namespace = namespace
		w.ConfigMaps[keyOf(made)] = made
	}
	for _, cm := range []*corev1.ConfigMap{source, loser, configMap("team-c")} {
		w.ConfigMaps[keyOf(cm)] = cm
	}
	counts, due := planned(w, f, plan.Pruning{})
	if want := "map[foreign:1 superseded:3 synced:2]"; due != nil || fmt.Sprint(counts) != want {
		t.Errorf("got %v, %v, want %s", due, counts, want)
	}
	text := "mirror_copies{state=\"foreign\"} 1\nmirror_copies{state=\"superseded\"} 3\nmirror_copies{state=\"synced\"} 2\n" +
		"mirror_copies{state=\"pending\"} 0\n"
	if err := compareMetrics(text, counts); err != nil {
		t.Error(err)
	}
	if err := compareMetrics(strings.Replace(text, "2", "1", 1), counts); err == nil {
		t.Error("other metrics are not found")
	}
	w.ConfigMaps[key{Namespace: "team-a", Name: "settings"}].Data["key"] = "other"
	w.Namespaces["team-d"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-d", DeletionTimestamp: &metav1.Time{}}}
	_, due = planned(w, f, plan.Pruning{})
	if want := "team-a/settings: update is due\nteam-d is still there"; fmt.Sprint(due) != want {
		t.Errorf("got %v, want %s", due, want)
	}
}

// TestPrediction: what the controllers do otherwise than kubectl mirror plan says is found.
func TestPrediction(t *testing.T) {
	s := newScene(t)
	_, made := s.mirrored()
	s.put(leader, edited(made, content(2)))
	s.put(usersName, configMap("dev-x"))
	at := keyOf(made)
	for operation, found := range map[string]bool{"create update": false, "create": true, "": true} {
		p := &prediction{operations: map[key]string{at: operation}}
		if err := p.compare(&s.part); (err != nil) != found {
			t.Errorf("%q: got %v, want a finding: %v", operation, err, found)
		}
	}
}

// TestQuiet: a write in the time of quiet is found, and nothing else is.
func TestQuiet(t *testing.T) {
	s := storm{replicas: []*replica{{installed: &shipped.Installation{User: leader}}}}
	since := time.Unix(1e9, 0)
	write := func(user, verb string, code int, at time.Time) cluster.Event {
		e := cluster.Event{Verb: verb, Received: at, Sent: json.RawMessage(`{"metadata":{"name":"settings"}}`)}
		e.Object.Resource, e.User.Username, e.Response.Code = "configmaps", user, code
		return e
	}
	for name, c := range map[string]struct {
		event cluster.Event
		found bool
	}{
		"a write":              {write(leader, "update", 200, since.Add(1)), true},
		"a refused one":        {write(leader, "create", 409, since.Add(1)), false},
		"a read":               {write(leader, "get", 200, since.Add(1)), false},
		"a user's":             {write(usersName, "update", 200, since.Add(1)), false},
		"one from before that": {write(leader, "update", 200, since.Add(-1)), false},
	} {
		if err := s.judgeQuiet([]cluster.Event{c.event}, since); (err != nil) != c.found {
			t.Errorf("%s: got %v, want a finding: %v", name, err, c.found)
		}
	}
}
