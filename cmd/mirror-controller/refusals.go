package main

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/server/healthz"
)

// watchRights are the rights without which the caches are not filled, or not kept so.
var watchRights = []right{{"list", "configmaps"}, {"watch", "configmaps"}, {"list", "namespaces"}, {"watch", "namespaces"}}

// right is a verb and a resource, as RBAC has them.
type right struct{ verb, resource string }

// refusals notes, from the answers of the API server, which of watchRights it refuses. client-go tells that to nobody
// but the log.
type refusals struct {
	mu      sync.Mutex
	refused map[right]string // by what answer
}

func newRefusals() *refusals { return &refusals{refused: map[right]string{}} }

// checks returns a check for each of watchRights, which is named after it, for ?verbose tells no more than names.
func (r *refusals) checks() []healthz.HealthChecker {
	var out []healthz.HealthChecker
	for _, needed := range watchRights {
		out = append(out, healthz.NamedCheck(needed.verb+"-"+needed.resource, func(*http.Request) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if answer, refused := r.refused[needed]; refused {
				return errors.New("refused by the API server: " + answer)
			}
			return nil
		}))
	}
	return out
}

// note takes note of an answer. One that is neither a refusal nor a success says nothing about rights.
func (r *refusals) note(asked right, response *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		r.refused[asked] = response.Status
	case code < 300:
		delete(r.refused, asked)
		if asked.verb == "watch" { // nothing has to be listed then
			delete(r.refused, right{"list", asked.resource})
		}
	}
}

// askedFor returns which of watchRights a request needs.
func askedFor(r *http.Request) (right, bool) {
	verb := "list"
	if r.URL.Query().Has("watch") {
		verb = "watch"
	}
	for _, needed := range watchRights {
		// Before this can be the path of a gateway. What is in a namespace, or has a name, goes on behind it.
		if needed.verb == verb && strings.HasSuffix(r.URL.Path, "/api/v1/"+needed.resource) {
			return needed, r.Method == http.MethodGet
		}
	}
	return right{}, false
}

// wrap returns a transport that has the answers noted.
func (r *refusals) wrap(rt http.RoundTripper) http.RoundTripper { return refusalNoter{rt, r} }

type refusalNoter struct {
	http.RoundTripper
	refusals *refusals
}

func (n refusalNoter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(request)
	if err == nil {
		if asked, ok := askedFor(request); ok {
			n.refusals.note(asked, response)
		}
	}
	return response, err
}

// WrappedRoundTripper makes the transport beneath accessible to client-go.
func (n refusalNoter) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }
