package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The texts of events. Each has what happened, to what, and what to do, in that
// order. None may be longer than MaxNote, or the API server refuses the event.
// Where a text is cut, the advice at its end is lost.

// mirroredText is empty while a target is pending, for a source that is not
// mirrored, and for one without targets.
func mirroredText(s *Summary) string {
	if s.Pending() || !s.isMirrored() {
		return ""
	}
	synced := s.Counts[plan.StateSynced]
	held := s.Counts[plan.StateHeld]
	blocked, reasons := s.blocked()
	if synced+held+blocked == 0 {
		return ""
	}
	text := fmt.Sprintf("Synced version %s to %s", s.Source.ConfigMap.ResourceVersion,
		number(synced, "namespace", "namespaces"))
	if held > 0 {
		text += fmt.Sprintf("; %s held by %s",
			number(held, "is", "are"), cmp.Or(s.Source.HeldBy(), "an annotation"))
	}
	if blocked > 0 {
		text += fmt.Sprintf("; %s blocked (see %s)", number(blocked, "is", "are"), reasons)
	}
	text += s.left()
	if s.Waiting > 0 {
		text += fmt.Sprintf("; another source of this name waits for %s",
			number(s.Waiting, "namespace", "namespaces"))
	}
	return text
}

// left counts the copies where the source has no target, each kind after "; ".
func (s *Summary) left() (text string) {
	if n := s.Counts[plan.StateOutOfScope]; n > 0 {
		text += fmt.Sprintf("; %s out of scope (see %s)",
			number(n, "copy is", "copies are"), plan.ReasonOutOfScope)
	}
	if n := s.Counts[plan.StateExpiring]; n > 0 {
		text += fmt.Sprintf("; %s (see %s)",
			number(n, "copy expires", "copies expire"), plan.ReasonExpiring)
	}
	return text
}

// blocked returns from how many targets something keeps the source, and the
// reasons of the events about these; of several reasons, with their numbers.
func (s *Summary) blocked() (targets int, reasons string) {
	var each []string
	for _, state := range plan.Counted {
		if n := s.Counts[state]; n > 0 && state.IsBlocked() {
			targets += n
			each = append(each, fmt.Sprintf("%s: %d", state.Event(), n))
		}
	}
	if len(each) == 1 {
		reasons, _, _ = strings.Cut(each[0], ":")
		return targets, reasons
	}
	slices.Sort(each)
	return targets, strings.Join(each, ", ")
}

// foreignText has the command that hands an object over at its end, because it is
// what a reader copies.
func foreignText(s *Summary) string {
	var parts, commands []string
	for _, g := range grouped(s.problems[plan.StateForeign]) {
		text := fmt.Sprintf("Not copied to %s: %s. ", namespaces(g.namespaces, named), g.note)
		if g.adoptable {
			commands = append(commands, fmt.Sprintf(
				"%sDelete it, or move its data to another name, which is noticed within a minute, "+
					"or hand it over, which REPLACES ITS DATA: "+
					"kubectl annotate -n %s configmap %s %s=%s",
				text, g.namespaces[0], s.Source.Key.Name, plan.AdoptAnnotation, plan.AdoptValue))
		} else {
			parts = append(parts, text+"Remove what is in the way, or publish the source under "+
				"another name. A name that becomes free is noticed within a minute.")
		}
	}
	return strings.Join(append(parts, commands...), " ")
}

// group are the namespaces with one problem.
type group struct {
	problem
	namespaces []string
}

// grouped returns the different problems, which are sorted by namespace, in the
// order of their first namespaces.
func grouped(problems []problem) (all []group) {
	for _, p := range problems {
		i := slices.IndexFunc(all, func(g group) bool {
			return g.note == p.note && g.adoptable == p.adoptable
		})
		if i < 0 {
			i = len(all)
			all = append(all, group{problem: p})
		}
		all[i].namespaces = append(all[i].namespaces, p.namespace)
	}
	return all
}

// supersededText explains the order of sources, because their owners may not know
// of each other.
func supersededText(s *Summary) string {
	if len(s.superseded) == 0 {
		return ""
	}
	return fmt.Sprintf("Not copied to %s: source %s of the same name has precedence. "+
		"A source in a namespace that cannot be a target comes first, then the older source. "+
		"Publish one of the two under another name.",
		nameSome(namesOf(s.superseded), s.Counts[plan.StateSuperseded]), s.superseded[0].note)
}

// maxCause is how many bytes of an error an event quotes, so that the advice
// behind it fits in.
const maxCause = 600

// rejectedText quotes the answer of the API server to one write: the others mostly
// have the same cause.
func rejectedText(s *Summary) string {
	problems := s.problems[plan.StateRejected]
	if len(problems) == 0 {
		return ""
	}
	where := namespaces(namesOf(problems), named)
	if len(problems) > 1 {
		where += ", in the first"
	}
	return fmt.Sprintf(
		"Out of sync in %s: %s. Fix the cause; the controller retries at least once a minute.",
		where, strings.TrimSuffix(plan.Clip(problems[0].note, maxCause), "."))
}

// fightText names ways to find the other client: the controller sees what that
// client wrote, and not which one it was.
func fightText(s *Summary) string {
	problems := s.problems[plan.StateFight]
	if len(problems) == 0 {
		return ""
	}
	return fmt.Sprintf("Another client keeps modifying or deleting the copy in %s; "+
		"repairs wait for up to a minute. Find the client in the audit log of the API server or, "+
		"if it modifies the copy, with kubectl get configmap -n %s %s -o yaml "+
		"--show-managed-fields -w",
		namespaces(namesOf(problems), named), problems[0].namespace, s.Source.Key.Name)
}

// outOfScopeText also names a shared instance, which makes the copies of another
// controller look like ours.
func outOfScopeText(s *Summary) string {
	text := ""
	for _, g := range grouped(s.problems[plan.StateOutOfScope]) {
		text += fmt.Sprintf("Copies in %s are out of scope and stay unchanged: %s. ",
			namespaces(g.namespaces, named), g.note)
	}
	if text == "" {
		return ""
	}
	if s.Source.OutOfScope {
		text = "Version " + s.Source.ConfigMap.ResourceVersion + " is not mirrored. " + text
	}
	return text + "Correct the flags of the controller, or set --prune to delete the copies. " +
		"If another controller has the same --instance, give it an instance of its own."
}

func reservedText(s *Summary) string {
	if !s.Source.Reserved || s.Source.OutOfScope {
		return ""
	}
	return fmt.Sprintf("Version %s is not mirrored: another controller writes a ConfigMap "+
		"named %s into every namespace. Give this ConfigMap another name.",
		s.Source.ConfigMap.ResourceVersion, s.Source.Key.Name)
}

// frozenText has the cause before the value, which may be long. A source with a
// reserved name is not mirrored in any case.
func frozenText(s *Summary) string {
	if s.Source.Frozen == nil || s.Source.OutOfScope || s.Source.Reserved {
		return ""
	}
	cause := strings.ReplaceAll(s.Source.Frozen.Error(), "\n", "; ")
	return fmt.Sprintf("%s. Version %s is frozen: no copy of this source is created, updated or "+
		"deleted. Fix the annotation.", plan.Clip(strings.ToUpper(cause[:1])+cause[1:], maxCause),
		s.Source.ConfigMap.ResourceVersion)
}

// heldText counts the held targets among those that the source has.
func heldText(s *Summary) string {
	held := s.Counts[plan.StateHeld]
	if held == 0 || s.Source.HeldBy() == "" {
		return ""
	}
	by, remedy := s.Source.Hold()
	return fmt.Sprintf("Held in %d of %s by the annotation %s: they keep their copies as they "+
		"are. To reach them, %s.", held, number(s.Counts.Targets(), "namespace", "namespaces"), by, remedy)
}

// noTargetsText is empty for a source that holds targets: they keep its copies.
func noTargetsText(s *Summary) string {
	if !s.isMirrored() || s.Excluded == nil || s.Counts[plan.StateHeld] > 0 {
		return ""
	}
	why, remedy := s.Rules.ExplainExcluded(s.Source, s.Excluded)
	return fmt.Sprintf("Version %s is not mirrored, because no namespace is a target: %s. "+
		"To mirror the source, %s%s.", s.Source.ConfigMap.ResourceVersion, why, remedy, s.left())
}

// namesOf returns the namespaces of the problems.
func namesOf(problems []problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.namespace)
	}
	return all
}

// named is how many namespaces an event names.
const named = 5

// namespaces names the first so many namespaces, which are sorted.
func namespaces(sorted []string, named int) string {
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

// number returns a number of things, such as "1 copy" or "2 copies".
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
