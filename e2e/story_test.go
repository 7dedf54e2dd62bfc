package e2e

import (
	"testing"
)

// TestStory walks through what a user gets: create, edit, restore, a new namespace, a foreign object, deletion.
func TestStory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.start()
	src := w.createSource(w.home, "settings", withData(map[string]string{"colour": "blue"}))
	w.waitInSync(src, w.ns("a"), w.ns("b"))
	src = w.edit(w.home, "settings", withData(map[string]string{"colour": "green"}))
	w.waitInSync(src, w.ns("a"), w.ns("b"))
	w.edit(w.ns("a"), "settings", withData(map[string]string{"colour": "red"}))
	w.waitInSync(src, w.ns("a"))
	w.delete(w.ns("a"), "settings")
	w.waitInSync(src, w.ns("a"))
	w.createNamespace(w.ns("c"), nil)
	w.waitInSync(src, w.ns("c"))
	w.edit(w.home, "settings", withoutLabel(w.label))
	w.waitGone("settings", w.ns("a"), w.ns("b"), w.ns("c"))
	w.edit(w.home, "settings", withLabel(w.label, "true"))
	w.waitInSync(src, w.ns("a"), w.ns("b"), w.ns("c"))
	w.delete(w.home, "settings")
	w.waitGone("settings", w.ns("a"), w.ns("b"), w.ns("c"))
}
