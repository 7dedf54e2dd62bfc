package faultproxy

import (
	"net/http"
	"net/url"
	"strings"
)

// Request is a request as the API server's authorization sees it, and the parts of HTTP behind that.
type Request struct {
	// Verb is one of get, list, watch, create, update, patch, delete and deletecollection.
	Verb string
	// Resource, Subresource, Namespace and Name are empty where the request has none.
	APIGroup, Resource, Subresource, Namespace, Name string

	Method, Path string
	Query        url.Values
	UserAgent    string
}

// IsRelist reports whether the request asks for all objects, as a list or as a watch that begins with them.
func (q Request) IsRelist() bool {
	return q.Verb == "list" || q.Verb == "watch" && q.Query.Get("sendInitialEvents") == "true"
}

// describe reads a request. Paths that name no resource have the verb of the method and nothing else.
func describe(r *http.Request) Request {
	q := Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), UserAgent: r.UserAgent()}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		q.APIGroup, parts = parts[1], parts[3:]
	default:
		parts = nil
	}
	// The namespace is the object itself if nothing, or a subresource of it, comes behind its name.
	if len(parts) > 2 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		q.Namespace, parts = parts[1], parts[2:]
	}
	for n, field := range []*string{&q.Resource, &q.Name, &q.Subresource} {
		if n < len(parts) {
			*field = parts[n]
		}
	}
	q.Verb = verb(r.Method, q)
	return q
}

func verb(method string, q Request) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if q.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch watch := q.Query.Get("watch"); {
	case watch == "true" || watch == "1":
		return "watch"
	case q.Name == "" && q.Resource != "":
		return "list"
	}
	return "get"
}
