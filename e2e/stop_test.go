package e2e

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// TestStopInTheMiddle stops the controller in the middle of a fan-out, with writes in flight that an admission webhook
// holds up: they end, then it exits with 0, and the next one goes on.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "held")
	held := w.ns("held")
	targets := append(w.createMany(10), held) // fewer than there are places for slow calls, so that none is cut
	reached, proceed := w.startWebhook(held, nil).holdNext(admissionv1.Create)
	p := w.start("--concurrent-writes=4")
	src := w.createSource(w.home, "settings")
	w.wait("a write in flight", reached)
	w.signal(p, syscall.SIGTERM)
	w.until("it stops", func() error {
		if !strings.Contains(p.Log(), `"Stopping`) {
			return errors.New("it has not said so")
		}
		return nil
	})
	if strings.Contains(p.Log(), "no write in flight") {
		t.Error("it says that no write is in flight")
	}
	proceed()
	w.wait("its end", p.Done())
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, lastLines(p.Log(), 20))
	}
	w.waitInSync(src, held)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Response.Code >= 400 {
			t.Errorf("a write in flight was cut off or refused: %v", e)
		}
	}
	w.start()
	w.waitInSync(src, targets...)
	w.settle(held) // the first may have made all copies: this shows that the next one works
}
