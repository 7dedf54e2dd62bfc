package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// api is an API server for one user, of which each test sees what the whole program asks and prints.
type api struct {
	*httptest.Server

	mu      sync.Mutex
	objects []metav1.Object
	refused []string // the resources that the user may not see, each maybe with "verb ", or "no " if nobody has it
	fault   int      // the status of each answer, or cut; 0: there is no fault
	http2   bool     // it speaks HTTP/2 when it starts again
	faults  counter  // requests that were answered with it, or refused
	listed  int      // lists of events so far, which is how often the sources were read
	onList  func()   // is called at each list of events
	alter   func(metav1.Object) error
}

// cut ends each request without an answer.
const cut = -1

// newAPI starts an API server with these objects.
func newAPI(t *testing.T, objects ...metav1.Object) *api {
	a := &api{objects: objects}
	a.faults.changed.L = &a.faults.mu
	a.Server = httptest.NewUnstartedServer(a)
	a.begin(t)
	return a
}

// begin starts the server until the test ends.
func (a *api) begin(t *testing.T) {
	a.EnableHTTP2 = a.http2
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.StartTLS()
	t.Cleanup(a.Close)
}

// with runs f while no request is answered.
func (a *api) with(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// run runs a command, and returns its exit code and what it has printed.
func (a *api) run(t *testing.T, command string) (code exitCode, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = a.start(t.Context(), command, &out, &problems)
	return code, out.String(), problems.String()
}

// start runs a command that prints to some writers.
func (a *api) start(ctx context.Context, command string, stdout, stderr io.Writer) exitCode {
	args := append(strings.Fields(command), "--server="+a.URL, "--insecure-skip-tls-verify", "--token=any")
	return exitCode(run(ctx, args, strings.NewReader(""), stdout, stderr))
}

// wait runs the command wait, and ends its time when it reads the sources a second time.
func (a *api) wait(t *testing.T, args string) (code exitCode, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.with(func() {
		a.listed = 0
		a.onList = func() {
			if a.listed == 2 {
				cancel()
			}
		}
	})
	var out, problems bytes.Buffer
	code = a.start(ctx, "wait "+args, &out, &problems)
	return code, out.String(), problems.String()
}

var requests = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, err := requests.NewRequestInfo(r)
	if q.Verb == "list" && q.Resource == "events" {
		a.listed++
		if a.onList != nil {
			a.onList()
		}
	}
	isRefused := slices.Contains(a.refused, q.Resource) || slices.Contains(a.refused, q.Verb+" "+q.Resource)
	switch {
	case slices.Contains(a.refused, "no "+q.Resource):
		w.WriteHeader(http.StatusNotFound)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	case a.fault == cut:
		a.faults.add()
		panic(http.ErrAbortHandler)
	case a.fault != 0:
		a.faults.add()
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(a.fault)
		fmt.Fprintf(w, "<html><body>\n<h1>%d</h1>\n", a.fault)
	case isRefused:
		a.faults.add()
		respond(w, http.StatusForbidden, fmt.Sprintf("%s is forbidden: User \"u\" cannot %s", q.Resource, q.Verb))
	case q.Verb == "list":
		items := []metav1.Object{}
		for _, o := range a.objects {
			if matches(o, q, r) {
				items = append(items, o)
			}
		}
		write(w, map[string]any{"metadata": map[string]any{}, "items": items})
	case q.Verb == "create":
		a.create(w, r)
	default:
		for _, o := range a.objects {
			if matches(o, q, r) && o.GetName() == q.Name {
				write(w, o)
				return
			}
		}
		respond(w, http.StatusNotFound, q.Resource+" not found")
	}
}

// create answers with what was sent, as admission leaves it.
func (a *api) create(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		respond(w, http.StatusBadRequest, err.Error())
		return
	}
	o := decoded.(metav1.Object)
	o.SetCreationTimestamp(metav1.Now())
	if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
		review.Status.Allowed = true
	}
	if a.alter != nil {
		err = a.alter(o)
	}
	if err != nil {
		respond(w, http.StatusForbidden, err.Error())
		return
	}
	write(w, o)
}

// matches reports whether an object is one that the request asks for.
func matches(o metav1.Object, q *request.RequestInfo, r *http.Request) bool {
	kinds, _, err := scheme.Scheme.ObjectKinds(o.(runtime.Object))
	if err != nil {
		return false
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	selector, _ := labels.Parse(r.URL.Query().Get("labelSelector"))
	name := o.GetName()
	if e, ok := o.(*corev1.Event); ok {
		name = e.InvolvedObject.Name
	}
	fields := r.URL.Query().Get("fieldSelector")
	_, wanted, byName := strings.Cut(fields, "ame=") // of metadata.name or involvedObject.name
	return resource.Resource == q.Resource && (q.Namespace == "" || o.GetNamespace() == q.Namespace) &&
		selector.Matches(labels.Set(o.GetLabels())) && (!byName || name == wanted)
}

func write(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // fails if the client has gone
}

// respond answers with a Status.
func respond(w http.ResponseWriter, code int, message string) {
	reasons := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reasons[code], Message: message,
	})
}

// counter counts, and lets others wait for a number.
type counter struct {
	mu      sync.Mutex
	changed sync.Cond
	n       int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.changed.Broadcast()
}

// await returns when it has counted up to n.
func (c *counter) await(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n < n {
		c.changed.Wait()
	}
}

// restart ends the server, and starts another one at its address.
func (a *api) restart(t *testing.T, through func(net.Listener) net.Listener) {
	t.Helper()
	address := a.Listener.Addr().String()
	a.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	a.Server = httptest.NewUnstartedServer(a)
	_ = a.Listener.Close()
	a.Listener = through(listener)
	a.begin(t)
}
