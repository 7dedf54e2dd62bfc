package mirror

// A history that fails is played again and again with fewer acts, until it takes
// each that is left to fail.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// How often a history is played again at most, and for how long.
	shrinkPlays = 300
	shrinkTime  = 2 * time.Minute
	// Go chooses among goroutines by chance, so a failure may not come again at once.
	firstPlays = 10
	// With fewer acts a history of broken code may go on for ever.
	playTime = 20 * time.Second
)

// isAgain is set in a process that plays a history again for another process.
const isAgain = "HISTORIES_AGAIN"

// printsLog is whether the log of the controller is printed: if one history is
// played.
var printsLog = os.Getenv("HISTORIES") == "1" && os.Getenv(isAgain) == ""

// shrinker plays a history that has failed with fewer acts.
type shrinker struct {
	*history
	began time.Time
	plays int
	shown []byte // by the last play that failed
}

// shrink returns what a history shows of its first finding when it is played with
// as few acts as it takes.
func (h *history) shrink(t *testing.T) string {
	s := &shrinker{history: h, began: time.Now()}
	all := s.troubleFirst()
	if !s.fails(t, all, firstPlays) {
		return fmt.Sprintf("It did not fail again in %d plays, so no act was left out.", s.plays)
	}
	most := 2 * s.plays
	left := shortest(all, func(only []int) bool { return s.fails(t, only, most) })
	found := "The shortest list that fails"
	if s.isOver() {
		found = "The shortest list that was found in time"
	}
	return fmt.Sprintf("%s has %d of %d acts, by %d plays in %v:\n%s", found, len(left), len(all),
		s.plays, time.Since(s.began).Round(time.Second), s.shown)
}

func (s *shrinker) isOver() bool {
	return s.plays >= shrinkPlays || time.Since(s.began) > shrinkTime
}

// fails reports whether the history with some of its acts has a finding of the
// same kind in one of so many plays.
func (s *shrinker) fails(t *testing.T, only []int, most int) bool {
	for range most {
		if s.isOver() {
			return false
		}
		s.plays++
		output := s.playAgain(t, only)
		if bytes.Contains(output, []byte(s.findings[0].kind+": ")) {
			s.shown = output
			return true
		}
	}
	return false
}

// troubleFirst returns the numbers of all acts, those of a kind together. Delays
// and faults come before what people do: what is left out first is what makes a
// failure hard to understand.
func (s *shrinker) troubleFirst() (numbers []int) {
	kind := func(d done) int {
		isKind := func(a act) bool { return a.name == d.name }
		if i := slices.IndexFunc(acts, isKind); i >= 0 {
			return i
		}
		return len(acts) // delays
	}
	log := slices.Clone(s.log)
	slices.SortStableFunc(log, func(a, b done) int { return cmp.Compare(kind(b), kind(a)) })
	for _, d := range log {
		numbers = append(numbers, d.number)
	}
	return numbers
}

// playAgain plays the history with some of its acts in a process of its own, and
// returns what that prints.
func (s *shrinker) playAgain(t *testing.T, only []int) []byte {
	ctx, cancel := context.WithTimeout(t.Context(), playTime)
	defer cancel()
	process := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestHistories$", "-test.cpu", "1")
	process.Env = append(os.Environ(), isAgain+"=1", "HISTORIES=1",
		fmt.Sprint("HISTORIES_SEED=", s.seed), "HISTORIES_ONLY="+formatOnly(only))
	output, _ := process.Output() // it fails, or not
	return output
}

// formatOnly returns the value of HISTORIES_ONLY for these acts.
func formatOnly(numbers []int) string {
	var texts []string
	for _, n := range slices.Sorted(slices.Values(numbers)) {
		texts = append(texts, strconv.Itoa(n))
	}
	return strings.Join(texts, ",")
}

// parseOnly returns the acts that a value of HISTORIES_ONLY names; nil: all.
func parseOnly(value string) (numbers []int, err error) {
	if value == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(value, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("HISTORIES_ONLY=%s: %w", value, err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// shortest returns some of all that still fail. It leaves out one half or the
// other, then smaller parts, and in the end one at a time, until none can be left
// out: delta debugging without its tries of small parts alone. One stays at least.
func shortest(all []int, fails func([]int) bool) []int {
	for size := len(all) / 2; size > 0; size /= 2 {
		before := len(all)
		for at := 0; at < len(all) && size < len(all); {
			without := slices.Delete(slices.Clone(all), at, min(at+size, len(all)))
			if fails(without) {
				all = without
			} else {
				at += size
			}
		}
		if size == 1 && len(all) < before {
			size = 2 // one that was needed may not be any more
		}
	}
	return all
}

func TestShortest(t *testing.T) {
	hasAll := func(of ...int) func([]int) bool {
		return func(some []int) bool {
			return !slices.ContainsFunc(of, func(n int) bool { return !slices.Contains(some, n) })
		}
	}
	for name, row := range map[string]struct {
		fails func([]int) bool
		want  []int
	}{
		"one":                    {hasAll(5), []int{5}},
		"the first":              {hasAll(1), []int{1}},
		"the last":               {hasAll(9), []int{9}},
		"two that are far apart": {hasAll(2, 8), []int{2, 8}},
		"all":                    {hasAll(1, 2, 3, 4, 5, 6, 7, 8, 9), []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"none":                   {hasAll(), []int{9}},
		"it fails no more":       {func([]int) bool { return false }, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"one that only another one takes": {
			func(some []int) bool {
				return hasAll(8)(some) && (hasAll(3)(some) || !hasAll(7)(some))
			},
			[]int{8},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := shortest([]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, row.fails)
			if !slices.Equal(got, row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}
