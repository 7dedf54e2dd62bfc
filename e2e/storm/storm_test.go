package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	controller = flag.String("controller", "../../bin/mirror-controller", "the controller's binary")
	deploy     = flag.String("deploy", "../../deploy/base", "the kustomization that installs the controller")
)

// TestStorm is one round on a real cluster. Then somebody writes as the controller does, and that is found.
func TestStorm(t *testing.T) {
	s, err := newStorm(t.Context(), settings{
		controller: *controller, deploy: *deploy, seed: 401, rounds: 1, artefacts: t.TempDir(), out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.playAll(t.Context()); err != nil {
		steps, _ := os.ReadFile(s.file("steps.log"))
		t.Fatalf("%v\n%s", err, steps)
	}
	s.forge(t)
}

// forge writes to a foreign object as a replica, without a precondition.
func (s *storm) forge(t *testing.T) {
	foreign := configMap(metav1.NamespaceDefault, content(1))
	made, err := s.users.CoreV1().ConfigMaps(foreign.Namespace).Create(t.Context(), foreign, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context(), s.part.flags, s.part.grace); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.replicas[0].installed.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	replica := kubernetes.NewForConfigOrDie(config)
	for _, rv := range []string{made.ResourceVersion, ""} {
		made.ResourceVersion, made.Data["key"] = rv, "changed"+rv
		if _, err := replica.CoreV1().ConfigMaps(made.Namespace).Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	err = s.finish(t.Context())
	for _, want := range []string{"it touches a foreign object", "it depends on no state"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestDraw: a round follows from the seed and its number, and a few rounds have all kinds of acts.
func TestDraw(t *testing.T) {
	text := func(seed uint64, number int) string {
		r := draw(seed, number)
		return fmt.Sprint(r.storm, r.calm, r.grace, r.begin, r.resume)
	}
	first, again := text(1, 2), text(1, 2)
	if first != again || text(1, 2) == text(1, 3) || text(1, 2) == text(2, 2) {
		t.Error("rounds do not follow from seed and number")
	}
	var all string
	for number := range 20 {
		all += text(401, number)
	}
	for _, kind := range []string{
		"put source", "put immutable", "delete", "unlabel", "narrow", "freeze", "widen", "edit",
		"strip label", "release", "put foreign", "mirror=false", "tier=bronze",
		"recreate namespace", "kill the API server", ": kill", ": stop", ": pause", ": silence", "hold watches",
		"end watches", "cut watches", "expire watches", "break connections", "lose connections", "[leases]",
		"reset after",
	} {
		if !strings.Contains(all, kind) {
			t.Errorf("no round has %q", kind)
		}
	}
}

// TestStates: a state lasts until the next one.
func TestStates(t *testing.T) {
	s := newScene(t)
	source, _ := s.mirrored()
	s.remove(usual, usersName, source)
	list := s.configMaps[keyOf(source)]
	first, last := list[0].revision, list[1].revision
	was := func(revision int64) *corev1.ConfigMap { return list.at(revision) }
	if was(first-1) != nil || was(first) == nil || was(last-1) == nil || was(last) != nil {
		t.Errorf("got other states: %v", list)
	}
	got := s.revisionsOf(key{Namespace: "team-b", Name: "settings"}, s.since, s.revision)
	if want := []int64{s.since, s.since + 1, s.since + 2, s.since + 3}; !slices.Equal(got, want) {
		t.Errorf("got revisions %v, want %v", got, want)
	}
}
