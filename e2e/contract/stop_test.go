package contract

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestStopInTheMiddle stops the controller in the middle of a fan-out, with writes in flight that an admission webhook
// holds up: they end, then it exits with 0, and the next one goes on.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "held")
	held := w.NS("held")
	targets := append(w.CreateMany(10), held) // fewer than there are places for slow calls, so that none is cut
	reached, proceed := w.StartWebhook(held, nil).HoldNext(admissionv1.Create)
	p := w.Start("--concurrent-writes=4")
	src := w.CreateSource(w.Home, "settings")
	w.Wait("a write in flight", reached)
	w.Signal(p, syscall.SIGTERM)
	w.Until("it stops", func() error {
		if !strings.Contains(p.Log(), `"Stopping`) {
			return errors.New("it has not said so")
		}
		return nil
	})
	if strings.Contains(p.Log(), "no write in flight") {
		t.Error("it says that no write is in flight")
	}
	proceed()
	w.Wait("its end", p.Done())
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, suite.LastLines(p.Log(), 20))
	}
	w.WaitInSync(src, held)
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Response.Code >= 400 {
			t.Errorf("a write in flight was cut off or refused: %v", e)
		}
	}
	w.Start()
	w.WaitInSync(src, targets...)
	w.Settle(held) // the first may have made all copies: this shows that the next one works
}
