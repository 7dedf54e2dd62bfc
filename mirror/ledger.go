package mirror

import (
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// ledger holds how every source stands at each of its targets, and what was said about it. It is for telling
// people; no decision rests on it.
type ledger struct {
	label string // key of the mirror label, for people

	mu    sync.Mutex
	names map[string]map[cache.ObjectName]*account
	total [outcomes]int
}

// account is the part of the ledger for one source.
type account struct {
	label  string
	source *source // as last seen
	at     map[string]outcome
	notes  map[string]string // by target: what there is to say about a problem
	count  [outcomes]int
	wrote  int // copies written since the last statement
	dirty  bool
	told   told
	// unannounced is set until a round over the targets of the source, as last seen, was listed.
	unannounced bool
}

// standing is how a source stands at one target.
type standing struct {
	outcome outcome
	note    string
	wrote   bool
}

func newLedger(label string) *ledger {
	return &ledger{label: label, names: map[string]map[cache.ObjectName]*account{}}
}

// open makes sure that exactly the sources that read returns, all of one name, have accounts, and that these know
// their present state. It reports whether that of one of them was not known before. It reads under the lock: no
// older reading comes behind a newer one.
func (l *ledger) open(name string, read func() []*source) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sources := read()
	accounts := l.names[name]
	if known(accounts, sources) {
		return false
	}
	present := map[cache.ObjectName]bool{}
	for _, s := range sources {
		present[s.key] = true
	}
	for key, a := range accounts {
		if !present[key] {
			for o, n := range a.count {
				l.total[o] -= n
			}
			delete(accounts, key)
		}
	}
	if len(sources) == 0 {
		delete(l.names, name)
		return false
	}
	if accounts == nil {
		accounts = map[cache.ObjectName]*account{}
		l.names[name] = accounts
	}
	for _, s := range sources {
		a := accounts[s.key]
		if a == nil {
			a = &account{label: l.label, at: map[string]outcome{}, notes: map[string]string{}}
			accounts[s.key] = a
		}
		if a.source != s {
			if a.source != nil && a.source.checksum != s.checksum {
				l.outdate(a)
			}
			a.source, a.dirty, a.unannounced = s, true, true
			changed = true
		}
	}
	return changed
}

// known reports whether there are accounts of exactly these sources, in their present state: before each write that is
// all there is to find out.
func known(accounts map[cache.ObjectName]*account, sources []*source) bool {
	return len(accounts) == len(sources) && !slices.ContainsFunc(sources, func(s *source) bool {
		a := accounts[s.key]
		return a == nil || a.source != s
	})
}

// outdate notes that the copies that were in line with the source are not any more.
func (l *ledger) outdate(a *account) {
	for namespace, o := range a.at {
		if o == outcomeSynced {
			a.at[namespace] = outcomePending
		}
	}
	n := a.count[outcomeSynced]
	l.count(a, outcomeSynced, -n)
	l.count(a, outcomePending, n)
}

// expect notes that a source wants a copy in a namespace of which nothing is known yet.
func (l *ledger) expect(key cache.ObjectName, namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.names[key.Name][key]
	if a == nil || a.at[namespace] != outcomeNone {
		return
	}
	a.at[namespace] = outcomePending
	l.count(a, outcomePending, 1)
}

func (l *ledger) count(a *account, o outcome, n int) {
	a.count[o] += n
	l.total[o] += n
}

// announce reports whether a source of the name changed since it was last called.
func (l *ledger) announce(name string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.names[name] {
		changed = changed || a.unannounced
		a.unannounced = false
	}
	return changed
}

// targets returns the namespaces of which something is noted for the name.
func (l *ledger) targets(name string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.names[name] {
		for namespace := range a.at {
			out = append(out, namespace)
		}
	}
	return out
}

// enter notes how a source stands at a target, as decided by s. A source without an account is gone: nothing is
// noted. If the account knows other content of that source by now, the round that this asked for will compare the
// target with it, and until then it is pending.
func (l *ledger) enter(s *source, namespace string, st standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.names[s.key.Name][s.key]
	if a == nil {
		return
	}
	if st.outcome == outcomeSynced && a.source.checksum != s.checksum {
		st.outcome = outcomePending
	}
	if st.wrote {
		a.wrote++
		a.dirty = true
	}
	before := a.at[namespace]
	if before == st.outcome && a.notes[namespace] == st.note {
		return
	}
	a.dirty = true
	l.count(a, before, -1)
	l.count(a, st.outcome, 1)
	if st.outcome == outcomeNone {
		delete(a.at, namespace)
	} else {
		a.at[namespace] = st.outcome
	}
	if st.note == "" {
		delete(a.notes, namespace)
	} else {
		a.notes[namespace] = st.note
	}
}

// copies returns how many of the targets of all sources stand in one of these ways.
func (l *ledger) copies(outcomes ...outcome) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range outcomes {
		n += l.total[o]
	}
	return n
}

// sources returns how many sources there are under the flags.
func (l *ledger) sources() int { return l.countSources(func(*source) bool { return true }) }

// invalidSources returns how many of them cannot be read.
func (l *ledger) invalidSources() int {
	return l.countSources(func(s *source) bool { return s.frozen != nil })
}

func (l *ledger) countSources(such func(*source) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, accounts := range l.names {
		for _, a := range accounts {
			if !a.source.outside && such(a.source) {
				n++
			}
		}
	}
	return n
}

// pending reports whether something is to be done or waited for at a target of the source.
func (l *ledger) pending(key cache.ObjectName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.names[key.Name][key]
	return a != nil && a.count[outcomePending] > 0
}

// statements returns what is to be said about the sources of a name, now that there is nothing left to do for
// them at the moment, and takes note that it was said; nothing if idle, asked under the lock, says otherwise.
func (l *ledger) statements(name string, idle func() bool) []statement {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !idle() {
		return nil // they come at its end
	}
	var out []statement
	for _, a := range l.names[name] {
		if a.dirty {
			a.dirty = false
			out = append(out, a.statements()...)
		}
	}
	return out
}
