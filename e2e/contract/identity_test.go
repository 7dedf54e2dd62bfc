package contract

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What is a source and what is a copy: cases C09 and C10.

// TestC09Names has a name of 253 characters with dots, a prefix that is the whole name of a namespace, and a
// namespace whose name goes on behind another's.
func TestC09Names(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "tea", "team", "teamster", "team-a")
	tea, team, teamster, teamA := w.NS("tea"), w.NS("team"), w.NS("teamster"), w.NS("team-a")
	longest := strings.Repeat("a.", 126) + "b"
	w.StartExactly("--namespace-prefix=" + team)
	source := w.CreateSource(w.Home, longest)
	w.WaitInSync(source, team, teamster, teamA)
	w.WaitEvent(w.Home, longest, "Mirrored")
	source = w.Edit(w.Home, longest, suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, team, teamster, teamA)
	w.Delete(teamA, longest)
	w.WaitInSync(source, teamA)
	w.Absent(longest, tea)

	w.Edit(w.Home, longest, suite.WithAnnotation(plan.PrefixAnnotation, " "+teamA+" ,tea"))
	w.WaitGone(longest, team, teamster)
	w.WaitInSync(source, teamA)
	w.Delete(w.Home, longest)
	w.WaitGone(longest, teamA)
}

// TestC10TwoInstances runs two controllers with different instances and prefixes: each has its own copies and
// leaves those of the other alone, also when it would want their place, and when the other is away.
func TestC10TwoInstances(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "one-a", "two-a", "two-b")
	oneA, twoA, twoB := w.NS("one-a"), w.NS("two-a"), w.NS("two-b")
	other := *w
	other.Instance += "-other"
	other.TakeAccount()
	one := w.StartExactly("--namespace-prefix=" + w.NS("one-"))
	two := other.StartExactly("--namespace-prefix=" + w.NS("two-"))
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, oneA)
	other.WaitInSync(source, twoA, twoB)

	// The first is given the place of the second as well.
	w.Stop(one)
	theirs := w.Copies("settings", twoA, twoB)
	one = w.StartExactly("--namespace-prefix="+w.NS("one-"), "--namespace-prefix="+w.NS("two-"))
	if note := w.WaitEvent(w.Home, "settings", "Foreign"); !strings.Contains(note, twoA) || !strings.Contains(note, twoB) {
		t.Errorf("the event does not name what is in the way: %s", note)
	}
	w.AllUntouched(theirs)
	other.Stop(two)
	theirs = append(theirs[:1], w.Edit(twoB, "settings", suite.WithAnnotation(plan.AdoptAnnotation, "true"))) // not for others
	w.Settle(oneA, twoA, twoB)
	w.AllUntouched(theirs)
	w.Stop(one)

	// Each sees a copy of the other become a would-be source, and the source go, while the other is away.
	one = w.StartExactly("--namespace-prefix=" + w.NS("one-"))
	w.Edit(twoA, "settings", suite.WithLabel(w.Label, "true"))
	theirs = w.Copies("settings", twoA, twoB)
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", oneA)
	w.Settle(oneA)
	w.Absent("settings", oneA)
	w.AllUntouched(theirs)
	w.Stop(one)
	other.StartExactly("--namespace-prefix=" + w.NS("two-"))
	w.WaitGone("settings", twoA, twoB)
	w.ExpectWrites("settings", "create "+oneA, "delete "+oneA)
	other.ExpectWrites("settings", "create "+twoA, "create "+twoB, "delete "+twoA, "delete "+twoB)
}
