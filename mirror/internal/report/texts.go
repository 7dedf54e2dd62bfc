package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The texts of events. Each says what happened, to what, and what to do, in that order.

// mirroredText begins with the first digits of the checksum: client-go's recorder tells events apart by their texts.
func mirroredText(s *Summary, took map[types.NamespacedName]int) string {
	digits := strings.TrimPrefix(s.Source.Checksum, "sha256:")
	text := fmt.Sprintf("Synced %.12s to %s", digits, counted(s.Counts[plan.StateSynced], "namespace", "namespaces"))
	if n := s.Counts[plan.StateHeld]; n > 0 {
		text += fmt.Sprintf("; %s held by %s", counted(n, "is", "are"), s.Source.HeldBy())
	}
	if n, reasons := s.blocked(); n > 0 {
		text += fmt.Sprintf("; %s blocked (see %s)", counted(n, "is", "are"), strings.Join(reasons, ", "))
	}
	if n := s.Counts[plan.StateExpiring]; n > 0 {
		text += fmt.Sprintf("; %s (see %s)", counted(n, "copy expires", "copies expire"), plan.ReasonExpiring)
	}
	for _, from := range slices.SortedFunc(maps.Keys(took), compareKeys) {
		text += fmt.Sprintf("; took over %s of %s", counted(took[from], "copy", "copies"), from)
	}
	return text
}

func compareKeys(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

func foreignText(s *Summary, targets []string) string {
	var parts, commands []string
	for _, about := range s.notesOf(targets) {
		text := fmt.Sprintf("Not copied to %s: %s. ", namespaces(about.targets), about.Text)
		if about.Adoptable {
			commands = append(commands, fmt.Sprintf("%sDelete or rename it, or hand it over, which REPLACES ITS DATA: "+
				"kubectl annotate -n %s configmap %s %s=%s", text, about.targets[0], s.Source.Key.Name, plan.AdoptAnnotation, plan.AdoptValue))
		} else {
			parts = append(parts, text+"Rename one of the two, or delete it.")
		}
	}
	return strings.Join(append(parts, commands...), " ")
}

// noted are the targets with one note.
type noted struct {
	Note
	targets []string
}

// notesOf returns the different notes about targets, which are sorted, in the order of their first targets.
func (s *Summary) notesOf(targets []string) (all []noted) {
	for _, namespace := range targets {
		about := s.notes[namespace]
		i := slices.IndexFunc(all, func(n noted) bool { return n.Note == about })
		if i < 0 {
			i, all = len(all), append(all, noted{Note: about})
		}
		all[i].targets = append(all[i].targets, namespace)
	}
	return all
}

func supersededText(s *Summary, _ []string) string {
	if s.Selection == nil || s.Selection.Lost == 0 {
		return ""
	}
	return fmt.Sprintf("Not copied to %s: source %s of the same name has precedence. A source in a namespace that "+
		"cannot be a target comes first, then the older source. Rename one of the two.",
		nameSome(s.Selection.first, s.Selection.Lost), s.Selection.winner)
}

// maxCause is how many bytes of an error an event quotes, so that the advice behind it fits in.
const maxCause = 600

func rejectedText(s *Summary, targets []string) string {
	refusal, where, remedy := s.notes[targets[0]].Text, namespaces(targets), ""
	if len(targets) > 1 {
		where += ", in the first"
	}
	if command := s.Rules.PolicyRemedy(refusal); command != "" {
		remedy = " (" + command + ")"
	}
	return fmt.Sprintf("Out of sync in %s: %s. Fix the cause%s; the controller retries at least once a minute.",
		where, strings.TrimSuffix(clip(refusal, maxCause), "."), remedy)
}

func fightText(s *Summary, targets []string) string {
	return fmt.Sprintf("Another client keeps modifying or deleting the copy in %s; repairs are slowed to one per minute. Find the "+
		"client in the audit log of the API server or, if it modifies the copy, with kubectl get configmap -n %s %s -o yaml "+
		"--show-managed-fields. It may be an admission webhook or policy.", namespaces(targets), targets[0], s.Source.Key.Name)
}

func outOfScopeText(s *Summary, targets []string) string {
	var parts []string
	for _, about := range s.notesOf(targets) {
		parts = append(parts, fmt.Sprintf("Copies in %s are out of scope and stay unchanged: %s.",
			namespaces(about.targets), about.Text))
	}
	return strings.Join(parts, " ") + " Correct the flags of the controller, or set --prune to delete the copies. If another " +
		"controller has the same --instance, give it an instance of its own."
}

func reservedText(s *Summary, _ []string) string {
	if !s.Source.Reserved || s.Source.OutOfScope {
		return ""
	}
	return fmt.Sprintf("Not mirrored: another controller writes a ConfigMap named %s into every namespace. "+
		"Give this ConfigMap another name.", s.Source.Key.Name)
}

func frozenText(s *Summary, _ []string) string {
	if s.Source.Frozen == nil || s.Source.OutOfScope {
		return ""
	}
	return fmt.Sprintf("Frozen: an annotation is malformed or not known, so no copy of this source is created, updated "+
		"or deleted. Fix the %s", strings.ReplaceAll(s.Source.Frozen.Error(), "\n", "; "))
}

func heldText(s *Summary, _ []string) string {
	held := s.Counts[plan.StateHeld]
	if held == 0 || s.Source.HeldBy() == "" {
		return ""
	}
	all := held
	for _, state := range []plan.State{
		plan.StateSynced, plan.StatePending, plan.StateForeign, plan.StateRejected, plan.StateFight} {
		all += s.Counts[state]
	}
	by, remedy := s.Source.Hold()
	return fmt.Sprintf("Held in %d of %s by the annotation %s: they keep their copies as they are. To reach them, %s.",
		held, counted(all, "namespace", "namespaces"), by, remedy)
}

// expiringText has a sentence for each reason why copies expire.
func expiringText(s *Summary) string {
	var parts []string
	for _, loss := range slices.SortedFunc(maps.Keys(s.unclaimed), compareLosses) {
		where := s.unclaimed[loss]
		slices.Sort(where)
		why, remedy := s.Rules.Explain(loss)
		them := map[bool]string{true: "it", false: "them"}[len(where) == 1]
		parts = append(parts, fmt.Sprintf("%s in %s will be deleted from %s UTC on: %s. To keep %s, %s before then.",
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

func noTargetsText(s *Summary, _ []string) string {
	if s.Selection == nil || s.Selection.Selected ||
		s.Source.Reserved || s.Source.Frozen != nil || s.Source.OutOfScope {
		return ""
	}
	why, remedy := s.Rules.ExplainExcluded(s.Source, s.Selection.excluded)
	return fmt.Sprintf("Not mirrored, because no namespace is a target: %s. To mirror the source, %s.", why, remedy)
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

// maxNote is how many bytes the API server accepts in the text of an event.
const maxNote = 1024

// Clip shortens a text to the 1,024 bytes that fit into an event.
func Clip(text string) string { return clip(text, maxNote) }

// clip shortens a text to so many bytes.
func clip(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest-len("…")], "") + "…"
}
