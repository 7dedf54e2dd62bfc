package suite

import (
	"errors"
	"strings"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// WaitLog waits until the controller has logged the text.
func (w *World) WaitLog(p *shipped.Process, text string) {
	w.Helper()
	w.Until("the log says so", func() error {
		if !strings.Contains(p.Log(), text) {
			return errors.New("it does not say " + text)
		}
		return nil
	})
}
