package main

import (
	"bytes"
	"flag"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var (
	binary    = flag.String("controller", "../../bin/mirror-controller", "the controller's binary")
	manifests = flag.String("deploy", "../../deploy/base", "the kustomization that installs the controller")
)

// TestStorm is a short storm for each of some seeds. The time of quiet is shorter than in `make storm`: what is
// written without need is written within a second as a rule, and the long runs are for the rest.
func TestStorm(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		o := settings{
			controller: *binary, manifests: *manifests, verbosity: "2", seed: seed, rounds: 2, operations: 40,
			quiet: 3 * time.Second, patience: 150 * time.Second, out: t.Output(),
		}
		rounds, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		if err := rage(t.Context(), o, rounds); err != nil {
			t.Fatalf("%v\nmake storm STORM_SEED=%d STORM_ROUNDS=%d looks for the shortest list of steps", err, seed, o.rounds)
		}
	}
}

// TestStepsAreText shows that what is drawn can be written, read again, and is then the same.
func TestStepsAreText(t *testing.T) {
	kinds := map[string]bool{}
	var drawn []round
	for n := range 200 {
		drawn = append(drawn, drawRound(7, n, 50)...)
	}
	var text bytes.Buffer
	if err := writeRounds(&text, drawn); err != nil {
		t.Fatal(err)
	}
	read, err := readRounds(&text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(drawn, read) {
		t.Error("what was read is not what was drawn")
	}
	for _, r := range read {
		for _, s := range r.steps {
			kinds[s.kind] = true
		}
	}
	for kind := range operations {
		if !kinds[kind] {
			t.Errorf("operation %s was never drawn", kind)
		}
	}
	for kind := range faults {
		if !kinds[kind] {
			t.Errorf("fault %s was never drawn", kind)
		}
	}
}

func TestRoundsFollowFromTheSeed(t *testing.T) {
	if !reflect.DeepEqual(drawRound(3, 5, 50), drawRound(3, 5, 50)) {
		t.Error("one seed, two rounds")
	}
	if reflect.DeepEqual(drawRound(3, 5, 50), drawRound(4, 5, 50)) || reflect.DeepEqual(drawRound(3, 5, 50), drawRound(3, 6, 50)) {
		t.Error("another seed or number, the same round")
	}
}

func TestWrongSteps(t *testing.T) {
	for _, text := range []string{
		"+0s edit-copy team-a/x", "storm:\nedit-copy team-a/x", "storm:\n+0s nothing team-a/x", "storm:\n+soon edit-copy team-a/x",
		"storm:\n+0s edit-copy", "storm:\n+0s edit-copy team-a/x a=%zz",
	} {
		if _, err := readRounds(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// TestReduce looks for the two of a hundred that it takes.
func TestReduce(t *testing.T) {
	var list []int
	for i := range 100 {
		list = append(list, i)
	}
	tries := 0
	got := reduce(list, func(part []int) bool {
		tries++
		return slices.Contains(part, 17) && slices.Contains(part, 71)
	})
	if !slices.Equal(got, []int{17, 71}) || tries > 100 {
		t.Errorf("got %v after %d tries", got, tries)
	}
	if got := reduce(list[:1], func([]int) bool { return true }); len(got) != 0 {
		t.Errorf("what fails without anything: got %v", got)
	}
}

// TestContents shows that contents follow from their tokens, differ from each other, and fit into a ConfigMap.
func TestContents(t *testing.T) {
	for shape := range shapes {
		var a, again, b corev1.ConfigMap
		fill(&a, shape+":1")
		fill(&again, shape+":1")
		fill(&b, shape+":2")
		if !equal(&a, &again) {
			t.Errorf("%s: one token, two contents", shape)
		}
		if shape != "empty" && equal(&a, &b) {
			t.Errorf("%s: two tokens, one content", shape)
		}
		size := 0
		for k, v := range a.Data {
			size += len(k) + len(v)
		}
		for k, v := range a.BinaryData {
			size += len(k) + len(v)
		}
		if size > 1<<20 {
			t.Errorf("%s: %d bytes", shape, size)
		}
	}
}
