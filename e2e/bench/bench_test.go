package main

import (
	"errors"
	"slices"
	"testing"
)

// TestRunChooses shows that -run chooses benchmarks by their names, and that each has its own.
func TestRunChooses(t *testing.T) {
	o, err := parse([]string{"-hanging", "1000", "-run", "^Hanging/n=2000"})
	if err != nil {
		t.Fatal(err)
	}
	var all, asked []string
	for _, stage := range o.stages() {
		for _, m := range stage {
			all = append(all, m.name)
		}
		for _, m := range o.asked(stage) {
			asked = append(asked, m.name)
		}
	}
	slices.Sort(all)
	if distinct := slices.Compact(slices.Clone(all)); len(distinct) < len(all) {
		t.Errorf("a name is there twice: %v", all)
	}
	if want := []string{"Hanging/n=2000/policy=Fail", "Hanging/n=2000/policy=Ignore"}; !slices.Equal(asked, want) {
		t.Errorf("got %v, want %v", asked, want)
	}
}

// TestFailuresComeBackAsErrors shows that this holds in other goroutines as well, and for nothing but failures.
func TestFailuresComeBackAsErrors(t *testing.T) {
	problem := errors.New("a problem")
	err := attempt(func() { parallel([]int{1, 2, 3}, func(int) { check(problem) }) })
	if !errors.Is(err, problem) {
		t.Errorf("got %v", err)
	}
	defer func() { _ = recover() }()
	_ = attempt(func() { panic("a bug") })
	t.Error("a panic that is no failure was taken for an error")
}
