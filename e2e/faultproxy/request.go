package faultproxy

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Request is a request as the API server's authorization sees it.
type Request struct {
	request.RequestInfo
	Query url.Values
}

// IsRelist reports whether the request asks for all objects, as a list or as a watch that begins with them.
func (q Request) IsRelist() bool {
	return q.Verb == "list" || q.Verb == "watch" && q.Query.Get("sendInitialEvents") == "true"
}

// info reads requests as the API server does.
var info = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// describe reads a request.
func describe(r *http.Request) (Request, error) {
	q, err := info.NewRequestInfo(r)
	if err != nil {
		return Request{}, err
	}
	return Request{*q, r.URL.Query()}, nil
}
