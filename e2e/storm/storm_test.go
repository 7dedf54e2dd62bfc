package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

var (
	binary    = flag.String("controller", "../../bin/mirror-controller", "the controller's binary")
	plugin    = flag.String("plugin", "../../bin/kubectl-mirror", "the binary of kubectl-mirror")
	manifests = flag.String("deploy", "../../deploy/base", "the kustomization that installs the controller")
)

// seeds are those of the short storms, chosen for what they draw between them: a round for each of the stale watches, and
// most of the faults.
var seeds = []uint64{37143, 55231}

// short returns the settings of a short storm. The time of quiet is shorter than in `make storm`: an unnecessary write
// usually comes within a second, and the long runs find the others.
func short(seed uint64, out io.Writer) settings {
	return settings{
		controller: *binary, plugin: *plugin, manifests: *manifests, verbosity: "2", seed: seed, rounds: 1, operations: 100,
		quiet: 3 * time.Second, patience: 5 * time.Minute, eventGap: 10 * time.Second, out: out,
	}
}

// TestStorm is a short storm for each of the seeds.
func TestStorm(t *testing.T) {
	for _, seed := range seeds {
		o := short(seed, t.Output())
		rounds, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		if err := rage(t.Context(), o, rounds); err != nil {
			t.Fatalf("%v\nmake storm STORM_SEED=%d STORM_ROUNDS=%d STORM_ARGS='-operations %d -quiet %s' looks for the shortest list of steps",
				err, seed, o.rounds, o.operations, o.quiet)
		}
	}
}

// TestSeeds shows that the short storms have most of the faults: the seeds are to be chosen anew when others are drawn.
func TestSeeds(t *testing.T) {
	drawn := map[string]bool{}
	for _, seed := range seeds {
		o := short(seed, io.Discard)
		rounds, err := o.plan()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rounds {
			for _, st := range r.steps {
				drawn[st.kind] = true
			}
		}
	}
	var missing []string
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		if !drawn[kind] {
			missing = append(missing, kind)
		}
	}
	t.Logf("not drawn: %s", strings.Join(missing, " "))
	if len(missing) > len(faults)/4 {
		t.Errorf("%d of %d faults are not drawn", len(missing), len(faults))
	}
}

// TestLive shows on a real cluster that some faults are what they are meant to be.
func TestLive(t *testing.T) {
	s, err := newStorm(t.Context(), short(1, t.Output()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	create := newStep("create-source", homes[0]+"/"+names[0]).with(labelArg+model.Label, model.Source).with(contentArg, "small:1")
	s.weatherCalm(t, newStep("create-namespace", homes[0]), newStep("create-namespace", targets[0]), create)
	edit := newStep("edit-source", create.on).with(contentArg, "small:2")
	t.Run("outdated watches", func(t *testing.T) { s.outdatedWatches(t, edit) })
	t.Run("rolled flags", s.rolledFlags)
	t.Run("leader ends last", s.leaderEndsLast)
	t.Run("stuck process", s.stuckProcess)
	t.Run("wrong plug-in", func(t *testing.T) { s.wrongPlugin(t, newStep("edit-source", create.on).with(contentArg, "small:3")) })
}

func (s *storm) weatherCalm(t *testing.T, steps ...step) {
	t.Helper()
	if _, err := s.weatherAll(t.Context(), []round{calm(steps)}); err != nil {
		t.Fatal(err)
	}
}

// outdatedWatches shows that watches of controllers are told by the API server that they are too old, and that the copies
// follow all the same.
func (s *storm) outdatedWatches(t *testing.T, change step) {
	ctx, cancel := context.WithTimeout(t.Context(), s.patience)
	defer cancel()
	for _, r := range s.fleet.replicas {
		if err := r.proxy.Await(ctx, func() bool { return r.proxy.Watches(watched...) == len(watched) }); err != nil {
			t.Fatalf("replica %d watches nothing: %v", r.id, err)
		}
	}
	before := len(s.fleet.allLives())
	s.weatherCalm(t, newStep("outdate-watches", "*"), change)
	survivors := 0
	for _, r := range s.fleet.replicas {
		if slices.ContainsFunc(s.fleet.allLives()[before:], func(l life) bool { return l.user == r.installed.User }) {
			continue // a leader that lost its lease: the next process begins with a list
		}
		survivors++
		told := func() int { return r.proxy.Counts()[faultproxy.Outdated] }
		if err := r.proxy.Await(ctx, func() bool { return told() >= len(watched) }); err != nil {
			t.Errorf("replica %d: %d of %d watches were told that they are too old: %v", r.id, told(), len(watched), err)
		}
	}
	if survivors == 0 {
		t.Error("no process has lived through it")
	}
}

// rolledFlags shows that a replica with other flags runs beside one with the old ones, and that in the end all have them.
func (s *storm) rolledFlags(t *testing.T) {
	const profile = 2
	before := s.fleet.allLives()
	s.weatherCalm(t, newStep("roll-flags", "-").with(profileArg, strconv.Itoa(profile)).with(firstArg, onLeader).with(forArg, "1s"))
	if n := len(s.fleet.allInForce()); n != 2 {
		t.Errorf("%d flags were in force, want the old and the new", n)
	}
	for _, r := range s.fleet.replicas {
		want := flagsOf(profile, 100)
		want.Grace = graces[0] // it keeps that
		if !reflect.DeepEqual(r.flags, want) {
			t.Errorf("replica %d has the flags %+v", r.id, r.flags)
		}
	}
	lives := s.fleet.allLives()
	next := lives[len(before)]
	both := slices.ContainsFunc(lives[:len(before)], func(l life) bool { return l.user != next.user && l.has(next.started.Add(time.Second)) })
	if !both {
		t.Error("no process with the old flags was left when the first with the new ones had started")
	}
}

// leaderEndsLast shows that nobody takes over with the old flags when those come that have a prune limit.
func (s *storm) leaderEndsLast(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), s.patience)
	defer cancel()
	leader, err := s.leader(ctx)
	if err != nil || leader == nil {
		t.Fatalf("no leader: %v", err)
	}
	if leader != s.fleet.replicas[0] {
		slices.Reverse(s.fleet.replicas) // it is to be the first in turn, otherwise
	}
	before := s.fleet.allLives()
	s.weatherCalm(t, newStep("flags", "-").with(profileArg, "0").with(limitArg, "50"))
	var led, stood time.Time
	for _, l := range s.fleet.allLives()[:len(before)] {
		if l.user == leader.installed.User {
			led = l.ended
		} else {
			stood = l.ended
		}
	}
	if !stood.Before(led) {
		t.Errorf("the leader ended at %s, the other at %s", led, stood)
	}
}

// stuckProcess shows that a process that does not stop is told of, unless it waits for answers.
func (s *storm) stuckProcess(t *testing.T) {
	s.fleet.patience, s.fleet.incidents.list = time.Second, nil
	for _, tc := range []struct {
		during   string
		problems int
	}{{"zombie", 1}, {"silence", 0}} {
		over := s.fleet.incidents.begin(newStep(tc.during, "0"), s.fleet.replicas[:1])
		if err := s.fleet.replicas[0].process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		counted := s.fleet.endings[didNotStop]
		if err := s.fleet.replicas[0].restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		over()
		if n := len(s.fleet.takeProblems()); n != tc.problems || s.fleet.endings[didNotStop] != counted+1 {
			t.Errorf("during %s: %d problems, %d counted", tc.during, n, s.fleet.endings[didNotStop]-counted)
		}
	}
}

// TestLostRace shows that of a deletion for which a user came too late it is not said who ended the object.
func TestLostRace(t *testing.T) {
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x", UID: "1", ResourceVersion: "1"}}
	client := fake.NewClientset(there)
	u := newUsers(client)
	deletes := 0
	client.PrependReactor("delete", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		deletes++
		return deletes == 1, nil, apierrors.NewNotFound(corev1.Resource("configmaps"), "x")
	})
	key := model.KeyOf(there)
	if _, err := u.delete(t.Context(), key, anything); !errors.Is(err, errMiss) || !u.unsure[key] {
		t.Errorf("too late: got %v, unsure %v", err, u.unsure)
	}
	u.forget()
	if _, err := u.delete(t.Context(), key, anything); err != nil || u.unsure[key] || u.deleted[stateOf(there)].IsZero() {
		t.Errorf("in time: got %v, unsure %v, deleted %v", err, u.unsure, u.deleted)
	}
}

// TestStepsAreText shows that what is drawn can be written, read again, and is then the same.
func TestStepsAreText(t *testing.T) {
	kinds := map[string]bool{}
	var drawn []round
	for n := range 200 {
		drawn = append(drawn, drawRound(1, n, 50)...)
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

// TestShrink shows that of a round that fails the list is found that is needed for it, and that it can be read again.
func TestShrink(t *testing.T) {
	drawn := round{steps: drawer{rand.New(rand.NewPCG(1, 1))}.storm(60)}
	given := drawBeginning(1)
	needed := []step{given.steps[3], drawn.steps[20], drawn.steps[40]}
	fails := func(rounds []round) bool {
		has := func(list []step, want step) bool {
			return slices.ContainsFunc(list, func(s step) bool { return s.String() == want.String() })
		}
		return len(rounds) == 2 && rounds[0].calm && !rounds[1].calm && has(rounds[0].steps, needed[0]) && has(rounds[1].steps, needed[1]) && has(rounds[1].steps, needed[2])
	}
	for name, tc := range map[string]struct {
		replay replayer
		found  bool
	}{
		"fails": {func(_ context.Context, _ settings, rounds []round) error {
			if fails(rounds) {
				return errors.New("it failed")
			}
			return nil
		}, true},
		"does not fail again": {func(context.Context, settings, []round) error { return nil }, false},
		"takes too long":      {func(ctx context.Context, _ settings, _ []round) error { <-ctx.Done(); return ctx.Err() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				shrink(t.Context(), settings{out: &out, quiet: time.Minute, shrink: time.Minute}, given, drawn, errors.New("why"), tc.replay)
				_, list, found := strings.Cut(out.String(), "-replay FILE:\n")
				if found != tc.found {
					t.Fatalf("printed:\n%s", out.String())
				}
				if !found {
					return
				}
				rounds, err := readRounds(strings.NewReader(list))
				if err != nil || !fails(rounds) || len(rounds[0].steps) != 1 || len(rounds[1].steps) != 2 {
					t.Errorf("%v: printed, and not the shortest list:\n%s", err, list)
				}
			})
		})
	}
}

// TestAgain shows that what is printed of a round that fails draws it again, behind the same rounds.
func TestAgain(t *testing.T) {
	o := settings{seed: 3, first: 67, rounds: 20, operations: 10, quiet: time.Second}
	all, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	const failed = 71
	if want, got := "-seed 3 -first 67 -rounds 5 -operations 10 -quiet 1s", o.again(failed); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.rounds = 5
	again, err := o.plan()
	if err != nil || !reflect.DeepEqual(again, all[:len(again)]) || again[len(again)-1].number != failed || all[len(again)].number != failed+1 {
		t.Errorf("%d rounds (%v) that are not the first of all", len(again), err)
	}
	if want, got := "-replay steps", (&settings{replay: "steps"}).again(0); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
