package mirror

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
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
	return fmt.Sprintf("Not copied to %s: a foreign ConfigMap of that name exists. Delete or rename it, or hand it over (this "+
		"REPLACES ITS DATA): kubectl mirror adopt %s/%s, or without the plug-in annotate it with %s=%s. "+
		"A ConfigMap with finalizers cannot be handed over.",
		namespaces(targets), targets[0], s.source.Key.Name, plan.AdoptAnnotation, plan.AdoptValue)
}

func supersededText(s *summary, targets []string) string {
	return fmt.Sprintf("Not copied to %s: source %s of the same name has precedence. A source in a namespace that cannot be a "+
		"target comes first, then the older source. Rename one of the two.", namespaces(targets), s.notes[targets[0]])
}

func failedText(s *summary, targets []string) string {
	return fmt.Sprintf("Out of sync in %s: the API server rejects the write. Fix the cause; the controller retries at least once a "+
		"minute. Error in %s: %s", namespaces(targets), targets[0], s.notes[targets[0]])
}

var failedNote = regexp.MustCompile(`(?s)^Out of sync in (?:namespace ([^:]+)|\d+ namespaces \(([^)]*?)(and \d+ more)?\)): ` +
	`the API server rejects the write\..*? Error in (.*)$`)

// Rejection is what an event WriteFailed says.
type Rejection struct {
	Namespaces []string // the first few
	More       bool     // there are others
	Text       string   // one of the namespaces, and the error there
}

// ParseRejection reads the note of an event WriteFailed. No object shows that a write was rejected.
func ParseRejection(note string) (r Rejection, ok bool) {
	m := failedNote.FindStringSubmatch(note)
	if m == nil {
		return Rejection{}, false
	}
	names := strings.FieldsFunc(m[1]+m[2], func(c rune) bool { return c == ',' || c == ' ' })
	return Rejection{Namespaces: names, More: m[3] != "", Text: m[4]}, true
}

func fightText(_ *summary, targets []string) string {
	return fmt.Sprintf("Another client keeps modifying the copy in %s; repairs are slowed to one per minute. Find the client with "+
		"kubectl get configmap -o yaml --show-managed-fields, or find the admission webhook or policy that alters the copy.",
		namespaces(targets))
}

func outOfScopeText(s *summary, targets []string) string {
	why := "the controller's flags do not allow copies there"
	if s.source.OutOfScope {
		why = "the controller's --source-namespace does not allow this source"
	}
	return fmt.Sprintf("Copies in %s are out of scope and stay unchanged: %s. If another controller has the same --instance, give it "+
		"an instance of its own. Otherwise correct the flags, or restart the controller, which deletes the copies within "+
		"--prune-limit.", namespaces(targets), why)
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

// exclusions say, of what keeps a source from a namespace, why there is no copy, and what its owner can do about it.
var exclusions = map[plan.Exclusion]struct{ why, remedy string }{
	plan.NotExcluded:                 {"the source is deleted, or has lost its label {label}=true", "create the source again, or label it again"},
	plan.ExcludedSource:              {"the flags of the controller do not allow the source", "start the controller with other flags"},
	plan.ExcludedName:                {"the flags of the controller do not allow the namespace", "start the controller with other flags"},
	plan.ExcludedByPrefix:            {"the source's annotation {annotation} rules the namespace out", "correct the annotation"},
	plan.ExcludedByOptOut:            {"the namespace has the label {label}=false", "remove that label"},
	plan.ExcludedBySelector:          {"the source's annotation {annotation} does not match the namespace", "correct the annotation, or the labels of the namespace"},
	plan.ExcludedByNamespaceSelector: {"the controller's --namespace-selector does not match the namespace", "correct the labels of the namespace"},
}

// exclusionText returns why a source has no copy, and what its owner can do about it.
func (s *summary) exclusionText(e plan.Exclusion) (why, remedy string) {
	annotation := ""
	for by, key := range map[plan.Exclusion]string{plan.ExcludedByPrefix: plan.PrefixAnnotation, plan.ExcludedBySelector: plan.SelectorAnnotation} {
		if e == by && s.source != nil {
			annotation = fmt.Sprintf("%s=%q", key, clipTo(200, s.source.ConfigMap.Annotations[key]))
		}
	}
	return strings.NewReplacer("{label}", s.label, "{annotation}", annotation).Replace(exclusions[e].why), exclusions[e].remedy
}

// expiringText is about the copies that no source claims.
func expiringText(s *summary, _ []string) string {
	var parts []string
	by := map[plan.Exclusion][]string{}
	for namespace, e := range s.unclaimed {
		by[e] = append(by[e], namespace)
	}
	for _, e := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[e])
		why, remedy := s.exclusionText(e)
		them := map[bool]string{true: "it", false: "them"}[len(by[e]) == 1]
		where := counted(len(by[e]), "copy", "copies") + " in " + namespaces(by[e])
		if s.expires.IsZero() {
			parts = append(parts, fmt.Sprintf("Deleted %s: %s. To get %s back, %s.", where, why, them, remedy))
		} else {
			parts = append(parts, fmt.Sprintf("%s will be deleted from %s UTC on: %s. To keep %s, %s before.", where,
				s.expires.UTC().Format(time.DateTime), why, them, remedy))
		}
	}
	return strings.Join(parts, " ")
}

func noTargetsText(s *summary, _ []string) string {
	if len(s.excluded) == 0 {
		return ""
	}
	var parts, remedies []string
	sum := 0
	for _, e := range slices.Sorted(maps.Keys(s.excluded)) {
		why, remedy := s.exclusionText(e)
		parts, remedies = append(parts, fmt.Sprintf("in %d %s", s.excluded[e], why)), append(remedies, remedy)
		sum += s.excluded[e]
	}
	return fmt.Sprintf("Not mirrored: of %s that the flags of the controller allow, none is a target: %s. To mirror the source, %s.",
		counted(sum, "namespace", "namespaces"), strings.Join(parts, ", "), strings.Join(remedies, "; "))
}

// pruneBlockedText is about all sources at once: the limit is for the sum of their copies.
func pruneBlockedText(outOfScope, copies int) string {
	return fmt.Sprintf("%d of %d copies are out of scope of the controller's flags, which is more than --prune-limit allows to delete: "+
		"none of them is deleted. Check the flags for a mistake. To delete these copies, start the controller with "+
		"--prune-limit=100%% until they are gone.", outOfScope, copies)
}

// namespaces names the first few namespaces, which are sorted.
func namespaces(sorted []string) string {
	const few = 5
	if len(sorted) == 1 {
		return "namespace " + sorted[0]
	}
	list := strings.Join(sorted[:min(few, len(sorted))], ", ")
	if more := len(sorted) - few; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d namespaces (%s)", len(sorted), list)
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
