package mirror

// A scene that is green with a controller that does nothing proves nothing.

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/apitest/mutants"
)

// lacking is what the controllers of this process lack: a key of nullControllers. Empty: nothing.
var lacking = os.Getenv(lackingVariable)

const lackingVariable = "NULL_CONTROLLER"

// nullControllers make a controller a null controller, by what it lacks.
var nullControllers = map[string]func(*Controller){
	// It decides, and writes nothing.
	"writes": func(c *Controller) {
		c.queues.copies.TypedDelayingInterface = deaf[key]{c.queues.copies.TypedDelayingInterface}
	},
	// It sends no event. Scenes of copies want none, so the check at their end has to notice.
	"reports": func(c *Controller) { c.reporter.events = unsent{} },
	// Its handlers do nothing. It knows what there was when it began to lead, and what a retry meets.
	"hears": func(c *Controller) {
		copies := *c.queues.copies
		copies.TypedDelayingInterface = deaf[key]{copies.TypedDelayingInterface}
		unheard := *c.decider
		unheard.records = &records{reports: deaf[string]{c.queues.reports}, byName: map[string]*nameRecords{}}
		unheard.queues = &queues{
			sources: deaf[string]{c.queues.sources},
			copies:  &copies,
			slow:    c.queues.slow,
		}
		c.handlers.decider = &unheard
	},
}

// printColor prints the color of a scene at its end.
func printColor(t *testing.T) {
	t.Cleanup(func() { fmt.Printf("\nscene %s red=%v\n", t.Name(), t.Failed()) })
}

// deaf is a queue that takes no key.
type deaf[T comparable] struct {
	workqueue.TypedDelayingInterface[T]
}

func (deaf[T]) Add(T)                     {}
func (deaf[T]) AddAfter(T, time.Duration) {}

// unsent drops each event.
type unsent struct{}

func (unsent) Send(context.Context, Event) error { return nil }

// greenScenes are the tests whose scenes are green with a null controller, and why they stay.
var greenScenes = map[string]map[string]string{
	"writes": {
		"TestC35StopBeforeTheCachesAreFilled": "nothing can be written before",
		"TestC55NoTargetsIsNotRepeated":       "there is nothing to write",
		"TestC67ResultInAFormerNamespace":     "it ends a call by hand",
		"TestReportOfARunningFanOut":          "it reports by hand",
	},
	"reports": {
		"TestC65UnclaimedCopyComesIntoScope": "an event needs a source",
		"TestReportOfARunningFanOut":         "it reports by hand",
	},
	"hears": {
		"TestC17NarrowedFlags":                "it is about what a start finds",
		"TestC35StopBeforeTheCachesAreFilled": "nothing can happen before",
		"TestC55NoTargetsIsNotRepeated":       "it is about what a start finds",
		"TestC65SourcesGoneBeforeATakeover":   "it is about what a takeover finds",
		"TestC67ResultInAFormerNamespace":     "it ends a call by hand",
		"TestReportOfARunningFanOut":          "it reports by hand",
		"TestReportWaitsForTheFirstFanOut":    "it is about what a takeover finds",
	},
}

// heavy are the tests whose load takes minutes. Each fails unless its copies come within a time.
const heavy = "TestC63|TestC80|TestC81|TestC87"

// TestNullControllers plays the scenes with each null controller, in a process of its own. Of each test at least one
// scene turns red.
func TestNullControllers(t *testing.T) {
	t.Parallel()
	isMutated := os.Getenv(mutants.ActiveVariable)+os.Getenv(mutants.ReachedVariable) != ""
	if lacking != "" || isMutated { // what is mutated has scenes turn red, too
		return
	}
	for lacks := range nullControllers {
		t.Run(lacks, func(t *testing.T) {
			t.Parallel()
			process := exec.CommandContext(t.Context(), os.Args[0], "-test.skip", "TestHistories|"+heavy)
			process.Env = append(os.Environ(), lackingVariable+"="+lacks,
				"KUBE_CACHE_MUTATION_DETECTOR=false") // which takes two thirds of the time
			output, _ := process.Output() // it is to fail
			isRed := map[string]bool{}
			scenes := regexp.MustCompile(`(?m)^scene (\S+) red=(true|false)$`)
			for _, scene := range scenes.FindAllStringSubmatch(string(output), -1) {
				test, _, _ := strings.Cut(scene[1], "/")
				isRed[test] = isRed[test] || scene[2] == "true"
			}
			if len(isRed) < 50 {
				t.Fatalf("got scenes of %d tests, want many more: %.2000s", len(isRed), output)
			}
			maps.DeleteFunc(isRed, func(_ string, isRed bool) bool { return isRed })
			got, want := slices.Sorted(maps.Keys(isRed)), slices.Sorted(maps.Keys(greenScenes[lacks]))
			if !slices.Equal(got, want) {
				t.Errorf("got as green %q, want %q", got, want)
			}
		})
	}
}
