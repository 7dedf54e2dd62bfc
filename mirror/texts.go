package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The texts of events. Each says what happened, to what, and what to do, in that order.

func mirroredText(s *summary) string {
	text := "Synced to " + counted(s.counts[plan.StateSynced], "namespace", "namespaces")
	blocked := 0
	for state, n := range s.counts {
		if plan.State(state).IsBlocked() {
			blocked += n
		}
	}
	if blocked > 0 {
		text += fmt.Sprintf(", blocked in %d", blocked)
	}
	return text
}

func foreignText(s *summary, targets []string) string {
	var foreign, sources []string
	for _, namespace := range targets {
		if s.notes[namespace] == anotherSource {
			sources = append(sources, namespace)
		} else {
			foreign = append(foreign, namespace)
		}
	}
	var parts []string
	if len(sources) > 0 {
		parts = append(parts, fmt.Sprintf("Not copied to %s: another source of that name is there. Rename one of the two.", namespaces(sources)))
	}
	if len(foreign) > 0 {
		parts = append(parts, fmt.Sprintf("Not copied to %s: a foreign ConfigMap of that name exists. Delete or rename it, or, unless it has "+
			"finalizers, hand it over, which REPLACES ITS DATA: kubectl annotate -n %s configmap %s %s=%s",
			namespaces(foreign), foreign[0], s.source.Key.Name, plan.AdoptAnnotation, plan.AdoptValue))
	}
	return strings.Join(parts, " ")
}

// anotherSource is the note of a target in which the foreign object asks to be mirrored itself.
const anotherSource = "source"

func supersededText(s *summary, _ []string) string {
	if s.selection == nil || s.selection.lost == 0 {
		return ""
	}
	return fmt.Sprintf("Not copied to %s: source %s of the same name has precedence. A source in a namespace that cannot be a "+
		"target comes first, then the older source. Rename one of the two.", nameSome(s.selection.first, s.selection.lost), s.selection.winner)
}

func rejectedText(s *summary, targets []string) string {
	return fmt.Sprintf("Out of sync in %s: the API server rejects the write. Fix the cause; the controller retries at least once a "+
		"minute. Error in %s: %s", namespaces(targets), targets[0], s.notes[targets[0]])
}

func fightText(_ *summary, targets []string) string {
	return fmt.Sprintf("Another client keeps modifying the copy in %s; repairs are slowed to one per minute. Find the client with "+
		"kubectl get configmap -o yaml --show-managed-fields, or find the admission webhook or policy that alters the copy.",
		namespaces(targets))
}

func outOfScopeText(s *summary, targets []string) string {
	by := map[string][]string{}
	for _, namespace := range targets {
		by[s.notes[namespace]] = append(by[s.notes[namespace]], namespace)
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("Copies in %s are out of scope and stay unchanged: %s.", namespaces(by[why]), why))
	}
	return strings.Join(parts, " ") + " Correct the flags of the controller, or set --prune to delete the copies. If another " +
		"controller has the same --instance, give it an instance of its own."
}

func reservedText(s *summary, _ []string) string {
	if !s.source.Reserved || s.source.OutOfScope {
		return ""
	}
	return fmt.Sprintf("Not mirrored: another controller writes a ConfigMap named %s into every namespace. "+
		"Give this ConfigMap another name.", s.source.Key.Name)
}

func frozenText(s *summary, _ []string) string {
	if s.source.Frozen == nil || s.source.OutOfScope {
		return ""
	}
	return fmt.Sprintf("Frozen: an annotation is malformed or not known, so no copy of this source is created, updated or deleted. Fix the %s",
		strings.ReplaceAll(s.source.Frozen.Error(), "\n", "; "))
}

// expiringText has a sentence for each reason why copies expire.
func expiringText(s *summary) string {
	var parts []string
	for _, loss := range slices.SortedFunc(maps.Keys(s.unclaimed), compareLosses) {
		where := s.unclaimed[loss]
		slices.Sort(where)
		why, remedy := s.rules.Explain(loss)
		them := map[bool]string{true: "it", false: "them"}[len(where) == 1]
		parts = append(parts, fmt.Sprintf("%s in %s will be deleted from %s UTC on: %s. To keep %s, %s before.",
			counted(len(where), "copy", "copies"), namespaces(where), s.expires.UTC().Format(time.DateTime), why, them, remedy))
	}
	return strings.Join(parts, " ")
}

func compareLosses(a, b plan.Loss) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Annotation, b.Annotation))
}

func deletedText(copies int) string {
	return fmt.Sprintf("Deleted %s that no source claimed", counted(copies, "copy", "copies"))
}

func noTargetsText(s *summary, _ []string) string {
	if s.selection == nil || len(s.selection.excluded) == 0 {
		return ""
	}
	why, remedy := s.rules.ExplainExcluded(s.source, s.selection.excluded)
	sum := 0
	for _, n := range s.selection.excluded {
		sum += n
	}
	return fmt.Sprintf("Not mirrored: of %s that the flags of the controller allow, none is a target: %s. To mirror the source, %s.",
		counted(sum, "namespace", "namespaces"), why, remedy)
}

// namespaces names the first few namespaces, which are sorted.
func namespaces(sorted []string) string {
	return nameSome(sorted[:min(named, len(sorted))], len(sorted))
}

// nameSome names the first of so many namespaces.
func nameSome(first []string, all int) string {
	if all == 1 {
		return "namespace " + first[0]
	}
	list := strings.Join(first, ", ")
	if more := all - len(first); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d namespaces (%s)", all, list)
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// clipError shortens the text of an error for the log: a webhook, for example, may quote a whole object.
func clipError(err error) error { return errors.New(clip(err.Error())) }

// clip shortens a note to the 1,024 bytes that the API server accepts in an event.
func clip(note string) string { return clipTo(1024, note) }

func clipTo(limit int, note string) string {
	if len(note) <= limit {
		return note
	}
	return strings.ToValidUTF8(note[:limit-len("…")], "") + "…"
}
