package shipped

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"
)

// Address returns where the controller serves its "health" or its "metrics", and with --profiling its profiles.
func (p *Process) Address(what string) (string, error) {
	address := regexp.MustCompile(`"Serving ` + what + `" address="([^"]+)"`).FindStringSubmatch(p.Log())
	if address == nil {
		return "", fmt.Errorf("the controller has not logged that it serves %s", what)
	}
	return address[1], nil
}

// Get returns what the controller answers there. It leaves no connection behind.
func (p *Process) Get(ctx context.Context, what, path string) (code int, text string, err error) {
	address, err := p.Address(what)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
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

// Ask returns what the controller answers at a path beside its metrics.
func (p *Process) Ask(ctx context.Context, path string) (string, error) {
	code, text, err := p.Get(ctx, "metrics", path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", path, code, text)
	}
	return text, err
}
