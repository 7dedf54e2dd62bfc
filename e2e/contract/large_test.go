package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC25LargeSources has a source with as much data as fits, which is copied, and one that leaves no room for the
// marks of a copy: refused, reported with the reason, tried again without haste, and others go on.
func TestC25LargeSources(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	const mebibyte, allAnnotations = 1 << 20, 256 << 10
	w.Start("--copy-annotation=example.com/*", "--resync-period=0")
	large := w.CreateSource(w.Home, "large", suite.WithData(map[string]string{"key": strings.Repeat("x", mebibyte)}))
	w.WaitInSync(large, a, b)
	large = w.Edit(w.Home, "large", suite.WithData(nil), suite.WithBinaryData(map[string][]byte{"key": make([]byte, mebibyte)}))
	w.WaitInSync(large, a, b)

	const key = "example.com/long"
	w.WaitInSync(w.CreateSource(w.Home, "long", suite.WithAnnotation(key, "not yet")), a, b)
	copies := w.Copies("long", a, b)
	w.Edit(w.Home, "long", suite.WithAnnotation(key, strings.Repeat("x", allAnnotations-len(key))))
	note := w.WaitEvent(w.Home, "long", "WriteFailed")
	if !strings.Contains(note, "annotations") || !strings.Contains(note, a) {
		t.Errorf("the event does not say what is wrong, and where: %s", note)
	}
	w.WaitRequests("it is tried again", 2*2, func(e cluster.Event) bool {
		return e.Object.Name == "long" && e.Response.Code == http.StatusUnprocessableEntity
	})
	w.WaitInSync(w.Edit(w.Home, "large", suite.WithBinaryData(nil)), a, b)
	w.AllUntouched(copies)
	w.WaitInSync(w.Edit(w.Home, "long", suite.WithAnnotation(key, "short"), suite.WithData(map[string]string{"key": "two"})), a, b)
}
