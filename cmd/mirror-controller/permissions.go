package main

import (
	"errors"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// neededPermissions are those that the controller needs to fill its caches, to keep them full, and to lead.
var neededPermissions = []string{
	"list-configmaps", "watch-configmaps", "list-namespaces", "watch-namespaces",
	"get-leases", "create-leases", "update-leases",
}

// refusalPeriod is how long a refused permission counts as missing. A reflector waits for up to a minute between two
// requests, and reports no success.
const refusalPeriod = 90 * time.Second

// refusals remembers when the API server last refused each of neededPermissions.
type refusals struct{ last sync.Map }

// checks returns a check for each of neededPermissions, which is named after it, because ?verbose shows only names.
func (r *refusals) checks() []healthz.HealthChecker {
	var out []healthz.HealthChecker
	for _, permission := range neededPermissions {
		out = append(out, healthz.NamedCheck(permission, func(*http.Request) error {
			if at, ok := r.last.Load(permission); ok && time.Since(at.(time.Time)) < refusalPeriod {
				return errors.New("the API server has refused this within the last " + refusalPeriod.String())
			}
			return nil
		}))
	}
	return out
}

// leaseVerbs are what RBAC calls requests for one object.
var leaseVerbs = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"}

// permissionFor returns which of neededPermissions a request needs, if any. The path of a gateway may come before that
// of the API.
func permissionFor(r *http.Request) string {
	switch p := r.URL.Path; {
	case strings.Contains(p, "/apis/coordination.k8s.io/v1/namespaces/"):
		return leaseVerbs[r.Method] + "-leases"
	case !strings.HasSuffix(p, "/api/v1/configmaps") && !strings.HasSuffix(p, "/api/v1/namespaces"):
		return ""
	case r.URL.Query().Has("watch"):
		return "watch-" + path.Base(p)
	}
	return "list-" + path.Base(r.URL.Path)
}

// wrap returns a transport that records refusals.
func (r *refusals) wrap(next http.RoundTripper) http.RoundTripper { return refusalRecorder{next, r} }

type refusalRecorder struct {
	http.RoundTripper
	refusals *refusals
}

func (r refusalRecorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	if err == nil && (response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden) {
		r.refusals.last.Store(permissionFor(request), time.Now())
	}
	return response, err
}

// WrappedRoundTripper makes the transport beneath accessible to client-go.
func (r refusalRecorder) WrappedRoundTripper() http.RoundTripper { return r.RoundTripper }
