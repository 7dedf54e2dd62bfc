package contract

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

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
