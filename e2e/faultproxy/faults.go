package faultproxy

import (
	"context"
	"slices"
	"time"
)

// Kind is what goes wrong.
type Kind string

// What happens to a request for which a rule fires. Pass, Hold, Delay and DelayAnswer let the request go on, and
// later rules have their turn; DelayAnswer and what is named after the answer act when the server has done it.
const (
	// Pass does nothing: it counts requests.
	Pass Kind = "pass"
	// Hold keeps the request back until the injection is stopped.
	Hold Kind = "hold"
	// Delay keeps the request back for Fault.For.
	Delay Kind = "delay"
	// DelayAnswer keeps the answer back for Fault.For, after the server has carried out the request.
	DelayAnswer Kind = "delay answer"

	// ResetBefore ends the request without an answer; the server never hears of it.
	ResetBefore Kind = "reset before"
	// ResetAfter has the server do what was asked for, and ends the request without an answer.
	ResetAfter Kind = "reset after"
	// BreakBefore and BreakAfter are the same, but end the whole connection and all that goes on on it.
	BreakBefore Kind = "break before"
	BreakAfter  Kind = "break after"

	// The request is answered here, with a Status of this kind, and never reaches the server. TooManyRequests
	// and Unavailable say Retry-After if Fault.For is set.
	TooManyRequests Kind = "429"
	InternalError   Kind = "500"
	Unavailable     Kind = "503"
	Conflict        Kind = "409"
	Gone            Kind = "410"
	// Expired answers a watch with a stream of one event, the ERROR that its resourceVersion is too old.
	// It fires for watches only.
	Expired Kind = "expired"
)

// What happens to running watches and to connections; these kinds appear in counts only.
const (
	WatchEnded       Kind = "watch ended"
	WatchCut         Kind = "watch cut"
	WatchExpired     Kind = "watch expired"
	ConnectionBroken Kind = "connection broken"
	ConnectionLost   Kind = "connection lost"
	Silenced         Kind = "silenced"
)

// Fault is what happens to a request.
type Fault struct {
	Kind Kind
	// For is how long a Delay or DelayAnswer lasts, and what TooManyRequests and Unavailable say in
	// Retry-After, in full seconds; these say nothing if it is 0.
	For time.Duration
}

// Rule says to which requests what happens. Its zero value fits all of them.
type Rule struct {
	// Verbs and Resources are those of RBAC; none means all. A watch has the verb watch.
	Verbs, Resources []string
	// When chooses further among the requests; nil chooses all. It must not call the proxy.
	When func(Request) bool
	// Skip is how many of these requests pass before the rule begins to fire.
	Skip int
	// Probability is the part of the rest for which it fires; 0 means all.
	Probability float64
	// Count is how often it fires; 0 means without end.
	Count int
	Fault Fault
}

func (r Rule) fits(q Request) bool {
	return (len(r.Verbs) == 0 || slices.Contains(r.Verbs, q.Verb)) &&
		(len(r.Resources) == 0 || slices.Contains(r.Resources, q.Resource)) &&
		(r.Fault.Kind != Expired || q.Verb == "watch") &&
		(r.When == nil || r.When(q))
}

// Injection is a rule at work.
type Injection struct {
	proxy   *Proxy
	rule    Rule
	id      int           // injections have their turn by it
	stopped chan struct{} // closed by Stop

	// Guarded by the proxy's mutex.
	seen  int // requests that fit
	fired int // requests that it was chosen for
	held  int // requests that a Hold keeps back at present
}

// Inject puts a rule to work, behind those that are at work already.
func (p *Proxy) Inject(r Rule) *Injection {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	i := &Injection{proxy: p, rule: r, id: p.lastID, stopped: make(chan struct{})}
	p.injections = append(p.injections, i)
	return i
}

// Stop ends the injection, and lets go what it holds. Calls after the first do nothing.
func (i *Injection) Stop() {
	p := i.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.injections, i)
	if at < 0 {
		return
	}
	p.injections = slices.Delete(p.injections, at, at+1)
	close(i.stopped)
}

// Fired returns how many requests have met the fault.
func (i *Injection) Fired() int {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	return i.fired
}

// Held returns how many requests a Hold keeps back at present: those that it met, without those that were let go
// or given up by their clients.
func (i *Injection) Held() int {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	return i.held
}

// hold keeps back a request until the injection is stopped. See [Proxy.wait] for when it does not return.
func (i *Injection) hold(ctx context.Context) {
	i.holding(1)
	defer i.holding(-1)
	i.proxy.wait(ctx, i.stopped)
}

func (i *Injection) holding(n int) {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	i.held += n
	i.proxy.wake()
}

// next returns the first injection behind the one with the id that is chosen for the request; nil if there is none.
func (p *Proxy) next(id int, q Request) *Injection {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.injections {
		if i.id > id && i.choose(q) {
			return i
		}
	}
	return nil
}

// choose decides whether the rule fires for the request, and takes note of it.
func (i *Injection) choose(q Request) bool {
	if !i.rule.fits(q) || i.rule.Count > 0 && i.fired == i.rule.Count {
		return false
	}
	if i.seen++; i.seen <= i.rule.Skip {
		return false
	}
	if i.rule.Probability > 0 && i.proxy.random.Float64() >= i.rule.Probability {
		return false
	}
	i.fired++
	i.proxy.count(i.rule.Fault.Kind, 1)
	return true
}

// count notes faults. The mutex is held.
func (p *Proxy) count(k Kind, n int) {
	p.counts[k] += n
	p.wake()
}
