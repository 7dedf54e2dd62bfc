package mirror

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// latencies remembers since when the sources and namespaces are not in line for which something was written or is
// still to be. It is for measuring; no decision rests on it.
type latencies struct {
	mu         sync.Mutex
	sources    map[string]map[cache.ObjectName]*delay // by name
	namespaces map[string]*filling
}

// delay is that of one source or namespace.
type delay struct {
	since time.Time
	wrote bool // a copy was written since
}

// filling is a new namespace that does not have all of its copies yet.
type filling struct {
	delay
	left map[string]bool // names of sources whose copy there is not settled
}

func newLatencies() *latencies {
	return &latencies{sources: map[string]map[cache.ObjectName]*delay{}, namespaces: map[string]*filling{}}
}

// sourceChanged notes that a change of a source was seen. Of several before it is in line the first counts.
func (l *latencies) sourceChanged(key cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sources[key.Name] == nil {
		l.sources[key.Name] = map[cache.ObjectName]*delay{}
	}
	if l.sources[key.Name][key] == nil {
		l.sources[key.Name][key] = &delay{since: time.Now()}
	}
}

// namespaceSeen notes that a namespace is new, in which the copies of sources of these names are to be looked after.
func (l *latencies) namespaceSeen(namespace string, names []string) {
	if len(names) == 0 {
		return
	}
	f := &filling{delay: delay{since: time.Now()}, left: make(map[string]bool, len(names))}
	for _, name := range names {
		f.left[name] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespaces[namespace] = f
}

// forgetNamespace notes that a namespace is gone.
func (l *latencies) forgetNamespace(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.namespaces, namespace)
}

// settled notes what came of one target. If that was the last of a new namespace, it returns how long it took to fill
// it; zero if not, or if there was nothing to write.
func (l *latencies) settled(v view, namespace string, res result) (fill time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if res.wrote {
		if d := l.sources[v.name][res.change.source.key]; d != nil {
			d.wrote = true
		}
	}
	f := l.namespaces[namespace]
	if f == nil || !f.left[v.name] {
		return 0
	}
	f.wrote = f.wrote || res.wrote
	if res.outcome == outcomePending || res.untold {
		return 0
	}
	delete(f.left, v.name)
	if len(f.left) > 0 {
		return 0
	}
	delete(l.namespaces, namespace)
	return f.elapsed()
}

// idle notes that there is nothing left to do for the sources of a name, but for those that pending holds of. It
// returns how long each of the others took for which something was written.
func (l *latencies) idle(name string, pending func(cache.ObjectName) bool) (took []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, d := range l.sources[name] {
		if pending(key) {
			continue
		}
		delete(l.sources[name], key)
		if d.wrote {
			took = append(took, d.elapsed())
		}
	}
	if len(l.sources[name]) == 0 {
		delete(l.sources, name)
	}
	return took
}

// elapsed is zero if nothing was written.
func (d *delay) elapsed() time.Duration {
	if !d.wrote {
		return 0
	}
	return time.Since(d.since)
}
