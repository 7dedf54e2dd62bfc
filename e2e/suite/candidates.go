package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// LeaseName is the default name of the lease, and the only one that the shipped roles allow.
const LeaseName = "mirror-controller"

// Leading is in the log of a controller that writes.
const Leading = "\"Mirroring\""

// Probe asks a controller about its health, as a kubelet would: an error holds its answer.
func (w *World) Probe(p *shipped.Process, path string) error {
	code, text, err := w.Ask(p, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", path, code, text)
	}
	return err
}

// Ask returns what a controller answers about its health.
func (w *World) Ask(p *shipped.Process, path string) (code int, text string, err error) {
	return w.askFor("health", p, path)
}

// askFor returns the answer of a controller at the address that it logged for this endpoint.
func (w *World) askFor(what string, p *shipped.Process, path string) (code int, text string, err error) {
	address, err := AddressOf(what, p)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(w.Context(), Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	request.Close = true // as a kubelet does
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// AddressOf returns the address that a controller logged for this endpoint.
func AddressOf(what string, p *shipped.Process) (string, error) {
	address := regexp.MustCompile(`"Serving ` + what + `" address="([^"]+)"`).FindStringSubmatch(p.Log())
	if address == nil {
		return "", fmt.Errorf("it has not logged that it serves %s", what)
	}
	return address[1], nil
}
