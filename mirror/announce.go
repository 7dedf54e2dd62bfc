package mirror

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Announcements. A line of the log announces each deletion, and begins its grace.
// So no copy is ever deleted that no line has counted, whatever becomes of the
// events about it.

const (
	// lineGap is the shortest time between two lines about one source, and between
	// two about sources that this process has never seen.
	lineGap = time.Second
	// namedInLines is how many namespaces a line names.
	namedInLines = 10
	// ofUnseen stands, in the queue of names, for all sources that this process has
	// never seen.
	ofUnseen = ""
)

// announcement is a line about copies that are to be deleted.
type announcement struct {
	report.Expiry
	isIncomplete bool
	copies       map[string]unclaimed // as they were counted, by namespace
}

func newAnnouncement() *announcement {
	return &announcement{Expiry: report.Expiry{}, copies: map[string]unclaimed{}}
}

// announce writes the lines about copies of a name that no line has counted yet.
// Their graces begin.
func (r *reporter) announce(ctx context.Context, name string) {
	n := r.records.lock(name)
	n.reportAt = time.Time{}
	n.reportGap = 0
	lines := r.newDeletions(n, time.Now())
	n.unlock()
	for source, a := range lines {
		writeLine(ctx, a.Text(r.rules, namedInLines, a.isIncomplete), source)
	}
	if len(lines) == 0 {
		return
	}
	n = r.records.lock(name)
	defer n.unlock()
	for source, a := range lines {
		r.beginGraces(n, a.copies)
		n.status(source).lineAt = time.Now()
	}
}

func writeLine(ctx context.Context, text string, source any) {
	klog.FromContext(ctx).Info(text, "source", source, "type", "Warning", "reason", plan.ReasonExpiring)
}

// newDeletions returns the lines that are due, by the sources of the copies. A
// line waits for a running fan-out, or it would count a part of the copies.
// Copies of sources that this process has never seen share one line.
func (r *reporter) newDeletions(n *nameRecords, now time.Time) map[key]*announcement {
	isIncomplete := r.isIncomplete(n)
	if isIncomplete && now.Before(n.announceBy) {
		n.reportIn(reportDelay)
		return nil
	}
	n.announceBy = time.Time{}
	lines := map[key]*announcement{}
	for namespace, known := range n.unannounced() {
		status := n.status(known.owner)
		left := status.lineAt.Add(lineGap).Sub(now)
		switch {
		case !n.hasSeen(known.owner):
			r.unseen.add(n.name)
		case left > 0:
			n.reportIn(left)
		default:
			if lines[known.owner] == nil {
				lines[known.owner] = newAnnouncement()
				lines[known.owner].isIncomplete = isIncomplete
			}
			r.count(lines[known.owner], namespace, namespace, known, now)
		}
	}
	return lines
}

// hasSeen reports whether this process has seen the source, which may be gone.
func (n *nameRecords) hasSeen(source key) bool {
	return n.view != nil && n.view.Find(source) != nil || n.status(source).sent.UID() != ""
}

// unannounced returns the records of copies that are to be deleted and that no
// line has counted, by namespace.
func (n *nameRecords) unannounced() map[string]*record {
	all := maps.Clone(n.byNamespace)
	maps.DeleteFunc(all, func(_ string, known *record) bool {
		return known.state != plan.StateExpiring || known.unclaimed.uid == "" || known.unclaimed.logged
	})
	return all
}

// count counts a copy in a line. place is the name of the copy there.
func (r *reporter) count(a *announcement, namespace, place string, known *record, now time.Time) {
	begin := known.unclaimed.since // for another reason than before
	if begin.IsZero() {
		begin = now
	}
	a.Add(known.unclaimed.why, place, begin.Add(r.grace))
	a.copies[namespace] = known.unclaimed
}

// beginGraces begins the graces of those copies that have stayed unclaimed since
// a line counted them.
func (r *reporter) beginGraces(n *nameRecords, counted map[string]unclaimed) {
	now := time.Now()
	for namespace, u := range counted {
		known := n.byNamespace[namespace]
		if known == nil || known.unclaimed != u {
			continue
		}
		begun := *known
		begun.unclaimed.logged = true
		if u.since.IsZero() {
			begun.unclaimed.since = now
			r.queues.copies.AddAfter(key{Namespace: namespace, Name: n.name}, r.grace)
		}
		n.set(namespace, begun)
	}
}

// unseenDeletions are the names that have copies to be announced of sources that
// this process has never seen. A tenant can make up any number of these.
type unseenDeletions struct {
	queues *queues

	mu     sync.Mutex
	names  map[string]bool
	lineAt time.Time
}

// add adds a name, and has a line written as soon as the last one is old enough.
func (u *unseenDeletions) add(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names[name] = true
	u.queues.reports.AddAfter(ofUnseen, max(0, time.Until(u.lineAt.Add(lineGap))))
}

// take returns the names of which a line is to be written now.
func (u *unseenDeletions) take() map[string]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if left := time.Until(u.lineAt.Add(lineGap)); left > 0 {
		u.queues.reports.AddAfter(ofUnseen, left)
		return nil
	}
	names := u.names
	u.names = map[string]bool{}
	if len(names) > 0 {
		u.lineAt = time.Now()
	}
	return names
}

// announceUnseen writes one line about the copies of all sources that this
// process has never seen, and begins their graces.
func (r *reporter) announceUnseen(ctx context.Context) {
	now := time.Now()
	line := newAnnouncement()
	counted := map[string]map[string]unclaimed{} // by name
	for name := range r.unseen.take() {
		line.copies = map[string]unclaimed{}
		n := r.records.lock(name)
		line.isIncomplete = line.isIncomplete || r.isIncomplete(n)
		for namespace, known := range n.unannounced() {
			if !n.hasSeen(known.owner) {
				r.count(line, namespace, namespace+"/"+name, known, now)
			}
		}
		n.unlock()
		counted[name] = line.copies
	}
	if len(line.Expiry) > 0 {
		writeLine(ctx, line.Text(r.rules, namedInLines, line.isIncomplete), "gone before this process began to lead")
	}
	for name, copies := range counted {
		n := r.records.lock(name)
		r.beginGraces(n, copies)
		n.reportIn(reportDelay)
		n.unlock()
	}
}
