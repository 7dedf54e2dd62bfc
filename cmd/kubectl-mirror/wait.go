package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
)

const waitHelp = `Wait until every target of some sources holds what its source holds now, or is held by its source.
SOURCE is a name or NAMESPACE/NAME.
` + statusTable + `
The exit code is the highest of all sources. Copies that expire are no targets: wait does not wait for them. While the
API server restarts or refuses answers, wait goes on until its timeout, and prints each error once. It does not end
with 0 while no controller renews its Lease, if you may see that.`

func newWait(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait SOURCE...",
		Short: "Wait until all copies of some sources are in sync",
		Long:  waitHelp,
		Example: "  kubectl apply -f settings.yaml && " +
			"kubectl mirror wait platform/settings --timeout=2m",
		Args: cobra.MinimumNArgs(1),
	}
	wait := &waiting{}
	cmd.Flags().DurationVar(&wait.timeout, "timeout", 5*time.Minute,
		"Time after which the command ends with exit code 1 or 2.")
	// A pipeline of an owner who cannot remove what blocks a target passes with
	// --ignore-blocked.
	cmd.Flags().BoolVar(&wait.ignoreBlocked, "ignore-blocked", false,
		"Do not fail if targets are rejected or blocked.")
	return c.command(cmd, false, wait.run)
}

// waiting is one run of the command.
type waiting struct {
	*session

	// These are the flags, under their names.
	timeout       time.Duration
	ignoreBlocked bool

	last []*snapshot.Source // as they were read last; nil before the first time
	code exitCode           // that of last
}

// run reads the sources again and again, until the answer stands or the time is
// over.
func (w *waiting) run(ctx context.Context, s *session, keys []types.NamespacedName) error {
	w.session = s
	limited, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	for {
		sources, err := w.sources(limited, keys)
		switch {
		case err == nil && w.isEnd(sources):
			w.print(&statuses{sources, true})
			return w.code
		case err == nil, limited.Err() != nil:
			// It goes on, or the time ended in the middle of a request.
		case w.last == nil && !mayPass(err):
			return err
		case errors.Is(err, errNoSource): // it was there
			w.say(err.Error())
			return exitNo
		default:
			w.sayProblem(brief(err))
		}
		select {
		case <-time.After(time.Second):
		case <-limited.Done():
			return w.timedOut()
		}
	}
}

// sayProblem prints why the sources cannot be read, once: problems that differ in
// numbers alone, such as that of a request or the time, are one.
func (w *waiting) sayProblem(problem string) {
	kind := regexp.MustCompile(`[0-9]+`).ReplaceAllString(problem, "")
	if !w.said[kind] {
		w.said[kind] = true
		w.say("Not read, and tried again until the timeout: " + problem)
	}
}

// isEnd reports whether no source may still change by itself. Otherwise it
// prints which may, and in which status they are.
func (w *waiting) isEnd(sources []*snapshot.Source) bool {
	w.last = sources
	isEnd := true
	for _, source := range sources {
		if !source.GoesOn(w.ignoreBlocked) {
			continue
		}
		isEnd = false
		w.say(fmt.Sprintf("%s: %s", source.Key(), source.Summary()))
	}
	w.code = exitOf(sources, func(source *snapshot.Source) bool {
		return source.Succeeds(w.ignoreBlocked)
	})
	if w.code != exitYes {
		return isEnd
	}
	// All is in sync by the reports. If nobody reports, that may have changed, and
	// so it may if the report is that of a former leader, perhaps with other flags:
	// the new one reports anew.
	isOld := func(s *snapshot.Source) bool {
		return s.Reported.Time.Before(w.led.Truncate(time.Second)) // events have whole seconds
	}
	line := w.stalled
	if line == "" && slices.ContainsFunc(sources, isOld) {
		line = "A controller has just taken over, and has not reported yet"
	}
	if line != "" {
		w.code = exitNo
		w.say(line)
		return false
	}
	return true
}

// timedOut prints the sources as they were read last.
func (w *waiting) timedOut() error {
	if w.last == nil {
		return fmt.Errorf("--timeout=%v: over before the cluster was read", w.timeout)
	}
	w.say(fmt.Sprintf("Timed out after %v", w.timeout))
	w.print(&statuses{w.last, true})
	return w.code
}

// codeOf returns the code of an answer of the API server, or of a balancer
// before it; 0 if there was no answer.
func codeOf(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

// mayPass reports whether an error may pass without anybody's doing: an API
// server restarts, or a balancer finds none. Another way to fail, such as a host
// that is not known or a certificate that is not trusted, stays.
func mayPass(err error) bool {
	code := codeOf(err)
	if code != 0 {
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	var network *net.OpError     // refused or reset, or an alert that ends a TLS handshake
	var stream http2.StreamError // reset
	var lookup *net.DNSError
	isCut := errors.As(err, &network) || errors.As(err, &stream) ||
		errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err)
	return isCut && !errors.As(err, &lookup) || utilnet.IsTimeout(err)
}

// brief returns an error without what differs each time that it comes, such as
// the request, or a page of HTML.
func brief(err error) string {
	code := codeOf(err)
	if code >= http.StatusInternalServerError {
		return fmt.Sprintf("%d %s", code, http.StatusText(code))
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err.Error()
}
