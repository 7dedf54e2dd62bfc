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

// Get returns what the controller answers there, and an error that holds it unless the code is 200. It leaves no
// connection behind.
func (p *Process) Get(ctx context.Context, what, path string) (string, error) {
	address, err := p.Address(what)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // as a kubelet does
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return string(text), err
}
