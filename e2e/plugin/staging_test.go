package plugin

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC62AChangeInStages runs the commands of the page: a change reaches the canary and no others, status shows which
// wait, and the end of the hold takes it to all.
func TestC62AChangeInStages(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "canary")
	a, b, canary := w.NS("a"), w.NS("b"), w.NS("canary")
	w.LabelNamespace(canary, "tier", "canary")
	source := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"colour": "blue"}))
	w.Start()
	w.WaitInSync(source, a, b, canary)
	kept := w.Copies("settings", a, b)

	names := strings.NewReplacer("kubectl mirror wait settings",
		plugin()+" wait settings "+strings.Join(w.Args(), " "), "-n platform", "-n "+w.Home)
	lines := func(commands string) []string {
		return strings.Split(strings.TrimSpace(names.Replace(commands)), "\n")
	}
	stages := lines(manual.Commands(t, "deploy/docs/staging.md", "rollout=tier=canary"))
	policies.Sh(w, stages[0])
	policies.Sh(w, stages[1])
	said := anonymous(w, policies.Sh(w, stages[2]))
	if !strings.Contains(said, "platform/settings: InSync, 1 synced, 2 held") {
		t.Errorf("wait said: %s", said)
	}
	if err := w.InSync(w.Live(w.Home, "settings"), canary); err != nil {
		t.Error(err)
	}
	const by = `by the annotation mirror-controller.github.io/rollout="tier=canary"`
	admin(w).prints(0, "status platform/settings", `platform/settings: InSync, 1 synced, 2 held
held targets stay as they are `+by+`: to reach them, remove the annotation`)
	w.Untouched(kept...)
	policies.Sh(w, stages[3])
	w.WaitInSync(w.Live(w.Home, "settings"), a, b, canary)

	// A second stage with a typing error reaches nobody.
	w.Edit(w.Home, "settings", suite.WithAnnotation(plan.RolloutAnnotation, "tier=canry"), suite.WithKey("key", "new"))
	admin(w).says(0, "wait platform/settings", "platform/settings: InSync, 3 held")
	w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.RolloutAnnotation))
	for _, command := range lines(manual.Commands(t, "deploy/docs/staging.md", "paused=true")) {
		policies.Sh(w, command)
	}
	w.Edit(w.Home, "settings", suite.WithData(map[string]string{"colour": "red"}))
	w.WaitEvent(w.Home, "settings", "Held", "3 of 3 namespaces")
	admin(w).says(0, "wait platform/settings", "InSync, 3 held")
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.PausedAnnotation)), a, b, canary)
}
