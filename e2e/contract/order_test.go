package contract

import (
	"net/http"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// In which order copies are written, and how often: cases C32, C38 and C40.

// TestC40Idle shows that without a change there is no request but the watches, and that a foreign object in
// the way costs no more than its retries: creates that are refused, and reads at the first of them.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "taken")
	targets, taken := w.CreateMany(10), w.NS("taken")
	w.Create(taken, "quiet")
	src := w.CreateSource(w.Home, "quiet")
	first := w.Start()
	w.WaitInSync(src, targets...)
	w.Settle(targets...)
	w.Stop(first)

	// A restart with everything in sync writes nothing. When it has dealt with a new source, it has done everything.
	began, mark := time.Now(), w.AuditMark()
	w.Start("--resync-period=200ms")
	w.Settle(targets...)
	w.Settle(targets...)
	var retries []cluster.Event
	for _, e := range w.RequestsSince(mark) {
		ofTheBarrier := e.Object.Resource == "configmaps" && e.Object.Name != "" && e.Object.Name != "quiet"
		switch {
		case e.Verb == "watch", e.Verb == "list", e.Object.Resource == "events", ofTheBarrier: // a list begins a watch
		case e.Object.Namespace == taken && (e.Verb == "get" || e.Verb == "create" && e.Response.Code == http.StatusConflict):
			retries = append(retries, e)
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	w.ExpectPaced(began, 1, 2, retries)
}
