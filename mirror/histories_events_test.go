package mirror

// The events and log lines of a history are held against the acts of its controllers.

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	staleEvents  = "the events that are repeated are not those of a new process"
	unannounced  = "a deletion was not announced"
	wrongCount   = "a deletion was counted twice, or never"
	minAnnounced = 2 * time.Second // the shortest grace that an announcement fits in
)

// said is an event or a log line about a ConfigMap.
type said struct {
	at           time.Time
	about        key
	reason, note string
}

// AnnotatedEventf records an event.
func (h *history) AnnotatedEventf(about runtime.Object, _ map[string]string, _, reason, _ string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, said{time.Now(), plan.KeyOf(about.(*corev1.ConfigMap)), reason, args[0].(string)})
}

// logSink records the log lines of messages about sources. If one history is played it prints all lines.
type logSink struct {
	h      *history
	prints bool
}

func (logSink) Init(logr.RuntimeInfo)            {}
func (s logSink) Enabled(level int) bool         { return level == 0 || s.prints && level <= 4 }
func (s logSink) WithValues(...any) logr.LogSink { return s }
func (s logSink) WithName(string) logr.LogSink   { return s }
func (s logSink) Error(err error, message string, values ...any) {
	s.Info(0, message, append(values, "err", err)...)
}

func (s logSink) Info(_ int, message string, values ...any) {
	if s.prints {
		fmt.Println(time.Since(s.h.began), message, values)
	}
	line := said{at: time.Now(), note: message}
	for i := 0; i+1 < len(values); i += 2 {
		switch value := values[i+1].(type) {
		case key:
			line.about = value
		case string:
			if values[i] == "reason" {
				line.reason = value
			}
		}
	}
	if line.reason == "" {
		return
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.h.lines = append(s.h.lines, line)
}

// lastSaid returns the last event of each source and reason that says how the source stands, from a time on.
func (h *history) lastSaid(from time.Time) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := map[string]string{}
	for _, e := range h.events {
		if !e.at.Before(from) && e.reason != plan.ReasonDeleted && e.reason != plan.ReasonRestored {
			last[e.about.String()+" "+e.reason] = e.note
		}
	}
	return last
}

// compareEvents: at rest, the events that are repeated are those that a process says that knows nothing of the past.
func (h *history) compareEvents() {
	repeated := h.lastSaid(time.Now().Add(-repeatPeriod))
	took := time.Now()
	h.leader = h.lead(h.options, h.leader)
	time.Sleep(5 * time.Minute)
	if fresh := h.lastSaid(took); !maps.Equal(repeated, fresh) {
		h.found(staleEvents, "got %q, want %q", repeated, fresh)
	}
}

// announced are the namespaces in the text of an Expiring.
var announced = regexp.MustCompile(
	`\d+ cop(?:y|ies) in (?:namespace ([a-z0-9-]+)|\d+ namespaces \(([^)]*)\)) will be deleted`)

// names reports whether the text of an Expiring names the namespace.
func (s said) names(namespace string) bool {
	for _, m := range announced.FindAllStringSubmatch(s.note, -1) {
		if slices.Contains(strings.Split(m[1]+m[2], ", "), namespace) {
			return true
		}
	}
	return false
}

// judgeAnnouncement judges whether a line named the copy before it was deleted, although it may have had another source
// then. Time that passes between two statements may keep a short announcement back, and so may a watch that is silent
// for long.
func (h *history) judgeAnnouncement(k key, c apitest.Change[*corev1.ConfigMap]) {
	source, _ := h.rules.SourceOf(*c.Old)
	h.deletions[source]++
	if h.options.DeletionGrace < minAnnounced+100*h.latestDelay || h.latestWatch > 10*time.Second {
		return
	}
	known := false // sources that no report has met share the spacing of ten seconds
	for _, line := range h.lines {
		known = known || line.about == source && line.reason == plan.ReasonMirrored && line.at.Before(c.At)
		if line.reason == plan.ReasonExpiring && line.about.Name == source.Name && line.names(k.Namespace) &&
			!line.at.After(c.At) && c.At.Sub(line.at) < h.options.DeletionGrace+2*time.Hour {
			return
		}
	}
	if !known {
		return
	}
	h.found(unannounced, "%v, copy of %v, at %v", k, source, c.At.Sub(h.began))
}

// judgeCounts judges whether each deletion was counted once. An answer may be lost, and a process may end before it
// counts.
func (h *history) judgeCounts() {
	counted := map[key]int{}
	for _, line := range h.lines {
		if n, ok := strings.CutPrefix(line.note, "Deleted "); ok && line.reason == plan.ReasonDeleted {
			n, err := strconv.Atoi(strings.Fields(n)[0])
			if err != nil {
				h.t.Fatal(err)
			}
			counted[line.about] += n
		}
	}
	if h.altered {
		return // a copy that a webhook altered may be one that is taken back
	}
	exact := len(h.terms) == 2 && !h.unanswered.Load() // the second one began at rest
	for source := range h.deletions {
		if h.recreated[source] {
			continue // whether a deletion was one of these cannot be told from outside
		}
		if got, want := counted[source], h.deletions[source]; got > want || exact && got < want {
			h.found(wrongCount, "%v: %d counted, %d deleted", source, got, want)
		}
	}
}
