package mirror

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of the events on a source. Dashboards and people look for them: they do not change.
const (
	ReasonMirrored        = "Mirrored"
	ReasonForeign         = "Foreign"
	ReasonSuperseded      = "Superseded"
	ReasonReservedName    = "ReservedName"
	ReasonInvalidSelector = "InvalidSelector"
	ReasonWriteFailed     = "WriteFailed"
	ReasonFight           = "Fight"
	ReasonPruneBlocked    = "PruneBlocked"
)

// Actions of events: what the controller was doing.
const (
	actionMirror = "Mirror"
	actionPrune  = "Prune"
)

// statement is one event on a source.
type statement struct {
	source *corev1.ConfigMap
	kind   string // corev1.EventTypeNormal or EventTypeWarning
	reason string
	action string
	note   string
}

// told is what was already said about a source, so that an event comes only when the outcome changes.
type told struct {
	reserved bool
	frozen   string
	solved   bool                        // a problem that was told of is over, which was not told of yet
	checksum string                      // of the content of which it was said, or known, that it is in line
	problems map[outcome]map[string]bool // targets of which a problem was reported
}

// problemReasons are the outcomes that an owner has to know of, in the order of telling.
var problemReasons = []struct {
	outcome outcome
	reason  string
	action  string
	say     func(a *account, targets []string) string
}{
	{outcomeForeign, ReasonForeign, actionMirror, sayForeign},
	{outcomeSuperseded, ReasonSuperseded, actionMirror, saySuperseded},
	{outcomeFailed, ReasonWriteFailed, actionMirror, sayFailed},
	{outcomeFight, ReasonFight, actionMirror, sayFight},
	{outcomeStranger, ReasonForeign, actionPrune, sayStranger},
}

// statements returns what is new about the source of the account and updates what was told.
func (a *account) statements() []statement {
	var out []statement
	say := func(kind, reason, action, note string) {
		out = append(out, statement{a.source.cm, kind, reason, action, clip(note)})
	}
	if reserved := a.source.reserved && !a.source.outside; reserved != a.told.reserved {
		a.told.reserved = reserved
		if reserved {
			say(corev1.EventTypeWarning, ReasonReservedName, actionMirror, sayReserved(a))
		}
	}
	if frozen := errorText(a.source.frozen); frozen != a.told.frozen {
		a.told.frozen = frozen
		if frozen != "" && !a.source.outside {
			say(corev1.EventTypeWarning, ReasonInvalidSelector, actionMirror, sayFrozen(a))
		}
	}
	for _, p := range problemReasons {
		targets, news, gone := a.compareProblems(p.outcome)
		if news {
			say(corev1.EventTypeWarning, p.reason, p.action, p.say(a, targets))
		}
		a.told.solved = a.told.solved || gone
	}
	if a.count[outcomePending] > 0 || a.source.reserved || a.source.frozen != nil {
		return out
	}
	// Of a source that was in line when the controller started there is nothing to tell, and neither of every
	// new namespace that was filled.
	if a.told.solved && a.count[outcomeSynced] > 0 || a.wrote > 0 && a.told.checksum != a.source.checksum {
		say(corev1.EventTypeNormal, ReasonMirrored, actionMirror, sayMirrored(a))
	}
	a.told.checksum, a.told.solved, a.wrote = a.source.checksum, false, 0
	return out
}

// compareProblems returns the targets with a problem, whether one of them is new since it was last told, and
// whether there were some and are none any more.
func (a *account) compareProblems(o outcome) (targets []string, news, gone bool) {
	before := a.told.problems[o]
	if a.count[o] == 0 && (len(before) == 0 || a.count[outcomePending] == 0) {
		delete(a.told.problems, o)
		return nil, false, len(before) > 0
	}
	now := map[string]bool{}
	for namespace, at := range a.at {
		switch {
		case at == o:
			now[namespace] = true
			targets = append(targets, namespace)
			news = news || !before[namespace]
		case at == outcomePending && before[namespace]:
			now[namespace] = true // it may come back in a moment
		}
	}
	if a.told.problems == nil {
		a.told.problems = map[outcome]map[string]bool{}
	}
	a.told.problems[o] = now
	slices.Sort(targets)
	return targets, news, len(before) > 0 && len(now) == 0
}

func sayMirrored(a *account) string {
	note := counted(a.count[outcomeSynced], "copy", "copies") + " in line"
	for _, p := range []struct {
		outcome outcome
		what    string
	}{{outcomeForeign, "foreign"}, {outcomeSuperseded, "superseded"}, {outcomeFailed, "failed"}} {
		if n := a.count[p.outcome]; n > 0 {
			note += fmt.Sprintf(", %d %s", n, p.what)
		}
	}
	return note
}

func sayForeign(a *account, targets []string) string {
	return fmt.Sprintf("Left alone a ConfigMap of this name that is not a copy of this one, in %s. "+
		"It is copied there once that object is gone, or once its owner hands it over: "+
		"kubectl -n NAMESPACE label configmap %s %s=%s --overwrite, and annotate it %s=%s.",
		namespaces(targets), a.source.key.Name, a.label, CopyValue, AdoptAnnotation, AdoptValue)
}

func saySuperseded(a *account, targets []string) string {
	return fmt.Sprintf("Another source of this name comes first: %s, in %s. "+
		"A source outside the target namespaces comes first, then the older one.",
		a.notes[targets[0]], namespaces(targets))
}

func sayFailed(a *account, targets []string) string {
	return fmt.Sprintf("The API server refuses the copy in %s; it is tried again. %s: %s",
		namespaces(targets), targets[0], a.notes[targets[0]])
}

func sayFight(_ *account, targets []string) string {
	return fmt.Sprintf("Somebody keeps changing the copy back in %s. It is put right more and more slowly, down to "+
		"once a minute. Find out who writes it, as by kubectl get configmap -o yaml --show-managed-fields, or what alters it on "+
		"its way: an admission webhook or policy.", namespaces(targets))
}

// sayPruneBlocked is about all sources at once: the limit is for the sum of their copies.
func sayPruneBlocked(strangers, copies int) string {
	return fmt.Sprintf("%d of %d copies lie outside the controller's flags, too many to delete them without being told to. "+
		"Was a flag mistyped? If they are to go, start the controller once with --prune-limit=100%%.", strangers, copies)
}

func sayStranger(a *account, targets []string) string {
	what := "copies of this ConfigMap outside the controller's namespaces"
	if a.source.outside {
		what = "copies of this ConfigMap, which is outside the controller's source namespaces"
	}
	return fmt.Sprintf("Left alone %s, in %s. "+
		"Either another controller has the same --instance, or a flag was changed.", what, namespaces(targets))
}

func sayReserved(a *account) string {
	return fmt.Sprintf("Not mirrored: another controller writes a ConfigMap named %s into every namespace. "+
		"Give this one another name.", a.source.key.Name)
}

func sayFrozen(a *account) string {
	return fmt.Sprintf("Nothing is created, changed or deleted for this source until this is mended: %v",
		strings.ReplaceAll(a.source.frozen.Error(), "\n", "; "))
}

// namespaces names the first few of the targets, which are sorted.
func namespaces(targets []string) string {
	const few = 5
	if len(targets) == 1 {
		return "namespace " + targets[0]
	}
	list := strings.Join(targets[:min(few, len(targets))], ", ")
	if more := len(targets) - few; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d namespaces (%s)", len(targets), list)
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// clip shortens a note to what the API server accepts in an event: 1,024 bytes.
func clip(note string) string {
	const limit = 1024
	if len(note) <= limit {
		return note
	}
	return strings.ToValidUTF8(note[:limit-len("…")], "") + "…"
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
