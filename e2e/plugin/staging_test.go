package plugin

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// staged is a world in which the commands of the page about stages run: a canary among targets in sync.
type staged struct{ *suite.World }

// commands returns the lines of a block of the page, with the names of the world.
func (w staged) commands(block string) []string {
	return strings.Split(strings.TrimSpace(strings.NewReplacer("kubectl mirror wait settings",
		plugin()+" wait settings "+strings.Join(w.Args(), " "), "-n platform", "-n "+w.Home).Replace(block)), "\n")
}

// run runs a command, and returns what it wrote.
func (w staged) run(command string) string {
	w.Helper()
	out, err := w.Cluster.Shell(w.Context(), command).CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v, %s", command, err, out)
	}
	return anonymous(w.World, string(out))
}

// TestC62AChangeInStages runs the commands of the page: a change reaches the canary, with one write and no read; the
// others keep their copies; and the end of the hold takes it to all.
func TestC62AChangeInStages(t *testing.T) {
	t.Parallel()
	w := staged{suite.New(t, "a", "b", "canary")}
	a, b, canary := w.NS("a"), w.NS("b"), w.NS("canary")
	w.LabelNamespace(canary, "tier", "canary")
	source := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"colour": "blue"}))
	w.Start()
	w.WaitInSync(source, a, b, canary)
	kept, mark := w.Copies("settings", a, b), w.AuditMark()

	commands := w.commands(manual.Find(t, "deploy/docs/staging.md", "rollout=tier=canary").Text)
	w.run(commands[0])
	w.run(commands[1])
	said := w.run(commands[2])
	if !strings.Contains(said, "\nteam-a  held  ") || !strings.Contains(said, "\nteam-b  held  ") {
		t.Errorf("wait said: %s", said)
	}
	if err := w.InSync(w.Live(w.Home, "settings"), canary); err != nil {
		t.Error(err)
	}
	const by = `by the annotation mirror-controller.github.io/rollout="tier=canary"`
	if note := w.WaitEvent(w.Home, "settings", "Held"); !strings.HasPrefix(note, "Held in 2 of 3 namespaces "+by+": ") {
		t.Errorf("the event is %q", note)
	}
	const held = "held  platform/settings holds the target, which stays as it is, " + by
	admin(w.World).prints(1, "status platform/settings", `
platform/settings: OutOfSync, 1 synced, 2 held
held targets stay as they are `+by+`: to reach them, remove the annotation
TARGET  STATE  REASON
team-a  `+held+`
team-b  `+held)
	w.Settle(canary)
	w.AllUntouched(kept)
	for _, e := range w.RequestsSince(mark) {
		isOurs := e.Object.Resource == "configmaps" && e.Object.Name == "settings" && e.Verb != "watch" && e.Verb != "patch"
		if isOurs && (e.Verb != "update" || e.Object.Namespace != canary) {
			t.Errorf("got the request %v", e)
		}
	}
	w.run(commands[3])
	source = w.Live(w.Home, "settings")
	w.WaitInSync(source, a, b, canary)

	// A second stage with a typing error reaches nobody, although the copies of the first stage are in sync.
	w.Edit(w.Home, "settings", suite.WithAnnotation(plan.RolloutAnnotation, "tier=canry"), suite.WithKey("colour", "brown"))
	admin(w.World).says(1, "wait platform/settings", "Every target is held")
	w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.RolloutAnnotation))
	for _, command := range w.commands(manual.Find(t, "deploy/docs/staging.md", "paused=true").Text) {
		w.run(command)
	}
	w.Edit(w.Home, "settings", suite.WithData(map[string]string{"colour": "red"}))
	w.Eventually("all are held", w.Noted("settings", "Held", "3 of 3 namespaces"))
	admin(w.World).says(0, "wait platform/settings --allow-held", "held")
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.PausedAnnotation)), a, b, canary)
}
