package main

// What the audit log says about one request.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// request is a line of the audit log.
type request struct {
	cluster.Event
	at       key
	accepted bool
	named    int64             // the resourceVersion on which an update, or a delete with a UID, depends; 0: none
	sent     *corev1.ConfigMap // by a create or an update of a ConfigMap
	made     int64             // the resourceVersion of the answer; 0: it has none
}

// writeVerbs are those of requests that change something.
var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// isWrite reports whether the request was to change something.
func (r *request) isWrite() bool {
	return slices.Contains(writeVerbs, r.Verb) && !strings.Contains(r.RequestURI, "dryRun=")
}

// isAbout reports whether the request is about an object, or objects, of a resource.
func (r *request) isAbout(resource string) bool { return r.Object.Resource == resource }

// maybe reports whether the request may have been carried out although the log says that it failed: the API server or its
// client had not the time to wait.
func (r *request) maybe() bool { return r.accepted || r.Response.Code >= 500 }

// unread reports whether the API server refused the request before it had its body: its sender had gone, or had to wait.
func (r *request) unread() bool { return !r.accepted && len(r.Sent) == 0 }

func (r *request) String() string {
	return fmt.Sprintf("%s %v", r.Received.Format("15:04:05.000"), r.Event)
}

// parse reads a line of the audit log.
func parse(e cluster.Event) (*request, error) {
	r := &request{Event: e, at: key{Namespace: e.Object.Namespace, Name: e.Object.Name}, accepted: e.Response.Code < 300}
	var answer metav1.PartialObjectMetadata
	if err := read(e.Answer, &answer); err != nil {
		return nil, fmt.Errorf("%v: its answer: %w", e, err)
	}
	r.made, _ = strconv.ParseInt(answer.ResourceVersion, 10, 64) // 0 if there is none
	if e.Verb == "update" {
		var sent metav1.PartialObjectMetadata
		if err := read(e.Sent, &sent); err != nil {
			return nil, fmt.Errorf("%v: %w", e, err)
		}
		r.named, _ = strconv.ParseInt(sent.ResourceVersion, 10, 64)
	}
	if !r.isWrite() || !r.isAbout("configmaps") {
		return r, nil
	}
	if e.Verb == "delete" {
		var options metav1.DeleteOptions
		if err := read(e.Sent, &options); err != nil {
			return nil, fmt.Errorf("%v: %w", e, err)
		}
		if p := options.Preconditions; p != nil && p.UID != nil && p.ResourceVersion != nil {
			r.named, _ = strconv.ParseInt(*p.ResourceVersion, 10, 64)
		}
		return r, nil
	}
	r.sent = &corev1.ConfigMap{}
	if err := read(e.Sent, r.sent); err != nil {
		return nil, fmt.Errorf("%v: %w", e, err)
	}
	r.at.Name = r.sent.Name // a create has none in its path
	return r, nil
}

// read reads a body, if there is one.
func read(body json.RawMessage, into any) error {
	if len(body) == 0 {
		return nil
	}
	return json.Unmarshal(body, into)
}

// answered returns what a GET answered; nil: it is not there.
func answered[T any](r *request) *T {
	if !r.accepted {
		return nil
	}
	object := new(T)
	_ = read(r.Answer, object) // it is an object: parse has read its metadata
	return object
}

// holder returns who has the lease by a write to it; empty: nobody.
func (r *request) holder() string {
	var lease coordinationv1.Lease
	if read(r.Sent, &lease) != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
