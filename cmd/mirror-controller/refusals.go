package main

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/server/healthz"
)

// neededPermissions are those that the controller needs to fill its caches, to keep them full, and to lead.
var neededPermissions = []permission{
	{"list", "configmaps"}, {"watch", "configmaps"}, {"list", "namespaces"}, {"watch", "namespaces"},
	readLease, {"create", "leases"}, updateLease,
}

// permission is a verb and a resource, as RBAC has them.
type permission struct{ verb, resource string }

// refusals keeps, from the answers of the API server, which of neededPermissions it refuses. client-go reports that only in
// the log.
type refusals struct {
	mu      sync.Mutex
	refused map[permission]string // the answer that refused it
	last    permission            // of the last request for the lease, except failed reads
}

func newRefusals() *refusals { return &refusals{refused: map[permission]string{}} }

// checks returns a check for each of neededPermissions, which is named after it, because ?verbose shows only names.
func (r *refusals) checks() []healthz.HealthChecker {
	var out []healthz.HealthChecker
	for _, needed := range neededPermissions {
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

// note records whether an answer grants or refuses a permission. Other answers, such as that the API server is busy, change
// nothing.
func (r *refusals) note(asked permission, response *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	readAgain := asked == readLease && r.last == readLease
	if asked.resource == readLease.resource && (asked != readLease || response.StatusCode < 300) {
		r.last = asked
	}
	switch code := response.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		r.refused[asked] = response.Status
	case code == http.StatusNotFound, code == http.StatusConflict: // an answer that takes the permission
		delete(r.refused, asked)
	case code < 300:
		delete(r.refused, asked)
		for _, verb := range spared[asked.verb] {
			delete(r.refused, permission{verb, asked.resource})
		}
		if readAgain {
			delete(r.refused, updateLease)
		}
	}
}

// Permissions on the lease. A process that reads it and then does not update it is a standby, and needs only to read.
var readLease, updateLease = permission{"get", "leases"}, permission{"update", "leases"}

// spared are the permissions that are not needed when another one was granted: a watch replaces the list, and a lease that
// can be read exists.
var spared = map[string][]string{"watch": {"list"}, "get": {"create"}}

// askedFor returns which of neededPermissions a request needs.
func askedFor(r *http.Request) (permission, bool) {
	var asked permission
	// The path of a gateway may come before this. A namespace, or a name, comes after it.
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/api/v1/configmaps"):
		asked = permission{collectionVerb(r), "configmaps"}
	case strings.HasSuffix(path, "/api/v1/namespaces"):
		asked = permission{collectionVerb(r), "namespaces"}
	case strings.Contains(path, "/apis/coordination.k8s.io/v1/namespaces/"):
		asked = permission{objectVerbs[r.Method], "leases"}
	}
	return asked, slices.Contains(neededPermissions, asked)
}

// collectionVerb is what RBAC calls a request for all objects of a resource.
func collectionVerb(r *http.Request) string {
	switch {
	case r.Method != http.MethodGet:
		return ""
	case r.URL.Query().Has("watch"):
		return "watch"
	}
	return "list"
}

// objectVerbs are what RBAC calls requests for one object.
var objectVerbs = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"}

// wrap returns a transport that notes the answers.
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
