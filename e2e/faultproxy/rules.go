package faultproxy

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Kind is what goes wrong with a request.
type Kind string

// Hold, Delay, DelayAnswer and PlainWatch let a request go on, and later rules have their turn.
const (
	Hold        Kind = "hold"         // until the injection is stopped
	Delay       Kind = "delay"        // for Rule.For
	DelayAnswer Kind = "delay answer" // for Rule.For, when the server has carried out the request
	PlainWatch  Kind = "plain watch"  // a watch that would begin with all objects does not, as behind an old proxy

	// The request ends without an answer: before the server hears of it, or after the server has carried it out.
	ResetBefore Kind = "reset before"
	ResetAfter  Kind = "reset after"

	// The proxy answers the request, and the server never hears of it. TooManyRequests and Unavailable say
	// Retry-After if Rule.For is set.
	TooManyRequests Kind = "429"
	InternalError   Kind = "500"
	Unavailable     Kind = "503"
	Conflict        Kind = "409"
	Gone            Kind = "410"
	Unauthorized    Kind = "401"
	Forbidden       Kind = "403"

	// A balancer that finds no API server answers with a page.
	BadGateway     Kind = "502"
	GatewayTimeout Kind = "504"
)

// Usual are the kinds that any request may meet.
var Usual = []Kind{
	Delay, DelayAnswer, ResetBefore, ResetAfter, TooManyRequests, InternalError, Unavailable, Conflict,
}

// Rule says to which requests what happens. Its zero value fits all of them.
type Rule struct {
	// Verbs and Resources are those of RBAC, and a watch has the verb watch. None means all, as for Namespaces.
	Verbs, Resources, Namespaces []string
	// Skip is how many of these requests pass before the rule begins to fire.
	Skip int
	// Probability is the part of the rest for which it fires; 0 means all.
	Probability float64
	// Count is how often it fires; 0 means without end.
	Count int
	Kind  Kind
	// For is how long a Delay or DelayAnswer lasts, and the Retry-After of an answer, in full seconds.
	For time.Duration
}

func (r Rule) fits(q *request.RequestInfo) bool {
	names := func(of []string, value string) bool { return len(of) == 0 || slices.Contains(of, value) }
	return names(r.Verbs, q.Verb) && names(r.Resources, q.Resource) && names(r.Namespaces, q.Namespace)
}

// Injection is a rule at work.
type Injection struct {
	proxy   *Proxy
	rule    Rule
	stopped chan struct{}

	// Guarded by the proxy's mutex.
	seen, fired, held int // requests that fit, that met the fault, and that a Hold keeps back at present
}

// Inject puts a rule to work, behind those that are at work already.
func (p *Proxy) Inject(r Rule) *Injection {
	i := &Injection{proxy: p, rule: r, stopped: make(chan struct{})}
	p.locked(func() { p.injections = append(p.injections, i) })
	return i
}

// Stop ends the injection, and lets go what it holds. Calls after the first do nothing.
func (i *Injection) Stop() {
	i.proxy.locked(func() {
		if at := slices.Index(i.proxy.injections, i); at >= 0 {
			i.proxy.injections = slices.Delete(i.proxy.injections, at, at+1)
			close(i.stopped)
		}
	})
}

// Fired returns how many requests have met the fault.
func (i *Injection) Fired() (n int) {
	i.proxy.locked(func() { n = i.fired })
	return n
}

// Held returns how many requests a Hold keeps back at present.
func (i *Injection) Held() (n int) {
	i.proxy.locked(func() { n = i.held })
	return n
}

// fires decides whether the rule fires for the request, and counts it.
func (i *Injection) fires(q *request.RequestInfo) (yes bool) {
	p, r := i.proxy, i.rule
	p.locked(func() {
		if !slices.Contains(p.injections, i) || !r.fits(q) || r.Count > 0 && i.fired == r.Count {
			return
		}
		if i.seen++; i.seen <= r.Skip || r.Probability > 0 && rand.Float64() >= r.Probability {
			return
		}
		i.fired++
		yes = true
	})
	return yes
}
