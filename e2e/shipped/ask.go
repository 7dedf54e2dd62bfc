package shipped

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"
)

// metricsLine says where the controller serves its metrics, and with --profiling its profiles.
var metricsLine = regexp.MustCompile(`"Serving metrics" address="([^"]+)"`)

// Ask returns what the controller answers at a path beside its metrics. It leaves no connection behind.
func (p *Process) Ask(ctx context.Context, path string) (string, error) {
	address := metricsLine.FindStringSubmatch(p.Log())
	if address == nil {
		return "", errors.New("the controller serves no metrics")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address[1]+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(body), err
}
