package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// TestSoakVerdict shows that more in the last third than in the middle third counts as growth.
func TestSoakVerdict(t *testing.T) {
	steady := []float64{100, 100, 100, 100, 100, 100, 100, 100, 100}
	rising := []float64{40, 60, 90, 100, 99, 98, 104, 103, 104}
	leaking := []float64{100, 101, 102, 103, 104, 105, 106, 107, 111}
	for name, c := range map[string]struct {
		live, goroutines, connections []float64
		wantLive, wantG, wantC        string
	}{
		"all the same":                  {steady, steady, steady, met, met, met},
		"at first, and 4% more":         {rising, steady, steady, met, met, met},
		"much at first, then 6% more":   {[]float64{200, 200, 200, 100, 100, 100, 106, 106, 106}, steady, steady, missed, met, met},
		"6% more in the last third":     {leaking, steady, steady, missed, met, met},
		"one goroutine for a moment":    {steady, []float64{9, 9, 9, 9, 9, 9, 9, 10, 9}, steady, met, met, met},
		"one goroutine more, and more":  {steady, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, steady, met, missed, met},
		"one goroutine more since then": {steady, []float64{9, 9, 9, 9, 9, 9, 10, 10, 10}, steady, met, missed, met},
		"a connection more since then":  {steady, steady, []float64{3, 3, 3, 3, 3, 3, 3, 4, 4}, met, met, missed},
		"too few times of rest":         {steady[:5], steady[:5], steady[:5], unmeasured, unmeasured, unmeasured},
	} {
		s := newSoak(soakSizes{})
		for i := range c.live {
			s.rests = append(s.rests, sample{live: c.live[i], goroutines: c.goroutines[i], connections: c.connections[i]})
		}
		s.judge()
		if l, g, n := s.live.verdict(), s.goroutines.verdict(), s.connections.verdict(); l != c.wantLive || g != c.wantG || n != c.wantC {
			t.Errorf("%s: live heap %s, goroutines %s, connections %s: want %s, %s, %s", name, l, g, n, c.wantLive, c.wantG, c.wantC)
		}
	}
}

// TestSoakFlags refuses a run that is too short for two times of rest in each third.
func TestSoakFlags(t *testing.T) {
	if _, _, err := parseSoak([]string{"-duration", "5m", "-churn", "1m"}); err == nil {
		t.Error("a run with one time of rest in a third was allowed")
	}
	if _, s, err := parseSoak(nil); err != nil || s.duration != 30*time.Minute {
		t.Errorf("without flags: got %v, %v", s.duration, err)
	}
}

// The rate goes up while cores are free and down while they are not, in steps.
func TestNextRate(t *testing.T) {
	for _, c := range []struct{ want, have, rate float64 }{{1, 1, 10}, {1, 0, 13}, {1, 2, 7}, {1, 0.8, 12.5}} {
		if got := nextRate(10, c.want, c.have); got != c.rate {
			t.Errorf("%g of %g cores: got %g a second, want %g", c.have, c.want, got, c.rate)
		}
	}
}

// TestSoakCompare shows that these are not at rest: a missing or old copy, an object in the way of one, a namespace to delete.
func TestSoakCompare(t *testing.T) {
	source := newSource("a", "1", 10, true)
	exact := order{Payload: 10, Version: "1"}.copyAt(objectName("bench-a-0", "a"))
	exact.Namespace = "bench-a-0"
	exact.Labels[model.Label] = model.CopyMark
	exact.Annotations[model.InstanceAnnotation] = "default"
	old := exact.DeepCopy()
	old.Data = payload("0", 10)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bench-a-0", Name: "a"}}
	for name, c := range map[string]struct {
		there   *corev1.ConfigMap
		another string
		wrong   int
	}{
		"in sync":           {exact, "other", 0},
		"old":               {old, "other", 1},
		"foreign":           {foreign, "other", 1},
		"missing":           {nil, "other", 1},
		"namespace to go":   {exact, soakPrefix + "1", 2}, // it has no copy, besides
		"namespace of more": {exact, "bench-a-1", 1},
	} {
		now := model.State{
			Namespaces: map[string]*corev1.Namespace{},
			ConfigMaps: map[model.Key]*corev1.ConfigMap{model.KeyOf(source): source},
		}
		for _, n := range []string{home, "bench-a-0", c.another} {
			now.Namespaces[n] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}
		}
		if c.there != nil {
			now.ConfigMaps[model.KeyOf(c.there)] = c.there
		}
		flags := model.Flags{Prefixes: []string{"bench-a-", soakPrefix}, Instance: "default", PruneLimit: 50}
		if got := compare(flags, now); len(got) != c.wrong {
			t.Errorf("%s: got %d problems, want %d: %v", name, len(got), c.wrong, got)
		}
	}
}
