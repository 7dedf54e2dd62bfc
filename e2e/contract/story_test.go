package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestStory walks through what a user gets: create, edit, restore, a new namespace, a foreign object, deletion.
func TestStory(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	w.Start()
	src := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"colour": "blue"}))
	w.WaitInSync(src, w.NS("a"), w.NS("b"))
	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"colour": "green"}))
	w.WaitInSync(src, w.NS("a"), w.NS("b"))
	w.Edit(w.NS("a"), "settings", suite.WithData(map[string]string{"colour": "red"}))
	w.WaitInSync(src, w.NS("a"))
	w.Delete(w.NS("a"), "settings")
	w.WaitInSync(src, w.NS("a"))
	w.CreateNamespace(w.NS("c"), nil)
	w.WaitInSync(src, w.NS("c"))
	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.WaitGone("settings", w.NS("a"), w.NS("b"), w.NS("c"))
	w.Edit(w.Home, "settings", suite.WithLabel(w.Label, "true"))
	w.WaitInSync(src, w.NS("a"), w.NS("b"), w.NS("c"))
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", w.NS("a"), w.NS("b"), w.NS("c"))
}
