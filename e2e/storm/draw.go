package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// The places where things happen. There are so few of them that what happens meets what happened before.
var (
	// homes are namespaces that the prefixes do not allow as targets, in most of the flags.
	homes = []string{"home", "shared", "other"}
	// targets are those that they do allow, in most of the flags, and two that one could take for such.
	targets = []string{"team-a", "team-b", "team-c", "team-ab", "dev-x", "dev-y", "teamster", "devel"}
	// beyondFirst are the targets that are out of scope of the first of the flags.
	beyondFirst = targets[6:]
	// names are those of the ConfigMaps, the favoured ones first. The last is a reserved one.
	names = []string{
		"settings", "ca", "proxy", "banner", "a.b.c", "flags", "routes", "limits", "motd", "cold", "colder", "coldest",
		"istio-ca-root-cert",
	}
)

// drawer draws from a seed what is to happen.
type drawer struct{ *rand.Rand }

// drawRound returns the rounds of a number: the storm, and others before it now and then. They follow from the
// seed and the number alone.
func drawRound(seed uint64, number, operations int) []round {
	d := drawer{rand.New(rand.NewPCG(seed, uint64(number)))}
	var out []round
	switch d.IntN(8) {
	case 0:
		out = d.limit()
	case 1:
		out = d.limitFew()
	case 2:
		out = d.limitHalf()
	case 3, 4:
		out = d.staleNamespaces()
	case 5:
		out = d.staleConfigMaps()
	case 6:
		out = d.selection()
	}
	storm := round{steps: d.storm(operations)}
	return append(append(out, d.resumption()...), storm)
}

// drawBeginning returns the round that lays out the cluster.
func drawBeginning(seed uint64) round {
	d := drawer{rand.New(rand.NewPCG(seed, math.MaxUint64))}
	out := round{calm: true}
	for _, ns := range slices.Concat(homes, targets) {
		out.steps = append(out.steps, newStep("create-namespace", ns))
	}
	for range 15 {
		out.steps = append(out.steps, d.createSource())
	}
	return out
}

// limit draws calm rounds that fill the cluster, change the flags so that many copies are out of scope, with the prune
// limit, and lift the limit: the outcome of a storm of takeovers with a limit that blocks is open.
func (d drawer) limit() []round {
	return append([]round{calm(d.fill())}, limited(1+d.IntN(len(profiles)-1), 50)...)
}

// limitFew draws a prune limit that is met by few copies out of scope: of some 70 and them, 1 is more than 1%, and 1 or 2 are
// at the edge of those that follow. By 0% none goes.
func (d drawer) limitFew() []round {
	n, limit := 1+d.IntN(2), d.IntN(4)
	var places []string
	for _, ns := range beyondFirst {
		for _, name := range names[:len(names)-1] {
			places = append(places, ns+"/"+name)
		}
	}
	var outOfScope []step
	for _, i := range d.Perm(len(places))[:n] {
		outOfScope = append(outOfScope, d.truly(places[i], homes[0]))
	}
	return append([]round{calm(cleared(beyondFirst)), calm(d.fill()), calm(outOfScope)}, limited(0, limit)...)
}

// limitHalf draws a prune limit that is at the edge by share: half of the copies are out of scope, if nothing but copies is
// in the targets.
func (d drawer) limitHalf() []round {
	return append([]round{calm(cleared(targets)), calm(d.fill())}, limited(halving, 50)...)
}

// cleared are steps behind which nothing is in the namespaces but copies, and the sources that come behind are not
// narrowed.
func cleared(namespaces []string) []step {
	var out []step
	for _, name := range names[:len(names)-1] {
		for _, ns := range namespaces {
			at := ns + "/" + name
			out = append(out, newStep("unfinalize", at).with(finalizerArg, "off"), newStep("delete-source", at), newStep("delete-foreign", at))
		}
		out = append(out, newStep("mend-source", homes[0]+"/"+name).widen())
	}
	return out
}

// fill draws steps behind which all sources that there are have their copies in all targets of the first flags. The grace is
// short, so that what is decided wrongly in the round that follows is done in it.
func (d drawer) fill() []step {
	out := []step{newStep("flags", "-").with(profileArg, "0").with(limitArg, "100").with(graceArg, one(d, graces[:2]).String())}
	for _, ns := range slices.Concat(homes, targets) {
		out = append(out, newStep("create-namespace", ns), newStep("label-namespace", ns).with(labelArg+model.Label, ""))
	}
	for _, name := range names {
		at := homes[0] + "/" + name
		out = append(out, d.content(newStep("create-source", at)).with(labelArg+model.Label, model.Source))
	}
	return out
}

// limited are rounds in which the flags change with the prune limit, and in which it is lifted.
func limited(profile, limit int) []round {
	flags := func(limit int) round {
		return calm([]step{newStep("flags", "-").with(profileArg, strconv.Itoa(profile)).with(limitArg, strconv.Itoa(limit))})
	}
	return []round{flags(limit), flags(100)}
}

func calm(steps []step) round { return round{calm: true, steps: steps} }

// truly is a copy of a source that somebody makes by hand, with all our marks.
func (d drawer) truly(at, home string) step {
	return d.content(newStep("forge", at)).with(labelArg+model.Label, model.CopyMark).
		with(annotationArg+model.SourceAnnotation, home+"/"+nameValue).
		with(annotationArg+model.CopyAnnotation, selfValue).with(annotationArg+model.InstanceAnnotation, instance.Instance)
}

// unheard is for how long nobody has heard of a change of namespaces when its consequences come: longer than the
// answer of a live read may serve.
const unheard = readLasts + 4*time.Second

// staleNamespaces draws a round in which the namespaces are changed, the controllers do not hear of it, and then all
// depends on it.
func (d drawer) staleNamespaces() []round {
	fill := d.fill()
	for _, ns := range targets {
		fill = append(fill, newStep("label-namespace", ns).with(labelArg+"tier", ""))
	}
	stale := []step{newStep("hold-namespaces", "*").with(forArg, (2 * unheard).String())}
	for i, ns := range targets {
		s := newStep("label-namespace", ns).with(labelArg+"tier", "gold")
		if i == 0 {
			s.gap = time.Second
		}
		stale = append(stale, s)
	}
	for i, name := range names[:6] {
		s := newStep("narrow-source", homes[0]+"/"+name).with(annotationArg+model.SelectorAnnotation, "tier=gold")
		if i == 0 {
			s.gap = unheard
		}
		stale = append(stale, s)
	}
	last := d.content(newStep("edit-source", homes[0]+"/"+names[0]))
	last.gap = 2 * time.Second // in which what is decided wrongly is done
	return []round{calm(fill), {steps: append(stale, last)}}
}

// staleConfigMaps draws a round in which sources and copies are changed, the controllers do not hear of it, and then
// namespaces, of which they do hear, have them act on what they know.
func (d drawer) staleConfigMaps() []round {
	const unheard = 3 * time.Second // until the namespaces change
	fill := d.fill()
	for _, ns := range targets[:2] { // which are targets again when the sources are not what they were
		fill = append(fill, newStep("label-namespace", ns).with(labelArg+model.Label, model.OptOut))
	}
	stale := []step{newStep("hold-configmaps", "*").with(forArg, (2 * unheard).String())}
	for i, name := range names[:6] {
		change := d.change(homes[0] + "/" + name)
		if i == 0 {
			change.gap = time.Second
		}
		stale = append(stale, change, d.theft(name), d.theft(name), d.theft(name))
	}
	for i, s := range []step{
		newStep("label-namespace", targets[0]).with(labelArg+model.Label, ""),
		newStep("label-namespace", targets[1]).with(labelArg+model.Label, ""),
		newStep("label-namespace", targets[2]).with(labelArg+model.Label, model.OptOut),
		newStep("label-namespace", targets[3]).with(labelArg+model.Label, model.OptOut),
		newStep("recreate-namespace", targets[4]),
		d.tier(newStep("label-namespace", targets[5])),
	} {
		if i == 0 {
			s.gap = unheard - time.Second
		}
		stale = append(stale, s)
	}
	last := d.content(newStep("edit-source", homes[0]+"/"+names[0]))
	last.gap = 2 * time.Second // in which what is decided wrongly is done
	return []round{calm(fill), {steps: append(stale, last)}}
}

// change draws a change of a source that its copies have to follow.
func (d drawer) change(source string) step {
	return one(d, []step{
		newStep("unlabel-source", source).with(dropLabel, model.Label),
		newStep("narrow-source", source).with(annotationArg+model.PrefixAnnotation, "nowhere-"),
		d.content(newStep("edit-source", source)),
		newStep("delete-source", source),
	})
}

// theft draws what users do to a copy of a name somewhere so that it is not what the controller takes it for.
func (d drawer) theft(name string) step {
	target := one(d, targets) + "/" + name
	return one(d, []step{
		d.usurp(newStep("usurp-copy", target)), d.usurp(newStep("usurp-copy", target)), d.usurp(newStep("release-copy", target)),
		newStep("release-copy", target).with(dropAnnotation, model.InstanceAnnotation), d.content(newStep("edit-copy", target)),
	})
}

// storm draws about so many operations, and faults among them.
//
// In some storms nothing ends the leader, and it keeps its lease: a leader that takes over compares everything, and so
// makes up for the mistakes of the one before it. In some of them no requests fail either, but those of collisions
// are late.
func (d drawer) storm(operations int) []step {
	faults := one(d, [][]row{nil, wireTable, faultTable, faultTable})
	var out []step
	for len(out) < operations {
		if d.IntN(25) == 0 {
			out = append(out, d.collision()...)
		}
		if d.IntN(50) == 0 {
			out = append(out, d.freezing()...)
		}
		if len(faults) > len(wireTable) && d.IntN(45) == 0 {
			out = append(out, d.haunting()...)
		}
		s := pick(d, operationTable)(d)
		s.gap = d.gap()
		out = append(out, s)
		if faults != nil && d.IntN(6) == 0 {
			out = append(out, pick(d, faults)(d))
		}
	}
	return out
}

// collision draws a change of a source whose writes are held up on their way, and what users do to its copies in the
// meantime, so that each write arrives at an object other than the one that it was decided about.
func (d drawer) collision() []step {
	name := favoured(d, names[:len(names)-1])
	hold := newStep(nameOf(faultproxy.Delay), "*").with(shareArg, "0.8").with(delayArg, "1s").with(forArg, "3s")
	for _, verb := range writes {
		hold = hold.with(verbArg, verb)
	}
	out := []step{hold, d.change(favoured(d, homes) + "/" + name)}
	for range 4 {
		s := d.theft(name)
		s.gap = time.Duration(d.IntN(600)) * time.Millisecond
		out = append(out, s)
	}
	return out
}

// freezing draws a source whose copies are in sync when its narrowing becomes malformed, and what happens then.
func (d drawer) freezing() []step {
	source := homes[0] + "/" + favoured(d, names[:len(names)-1])
	freeze := newStep("narrow-source", source).with(annotationArg+model.SelectorAnnotation, "tier in (gold")
	freeze.gap = time.Second
	change := d.content(newStep("edit-source", source))
	change.gap = d.gap()
	return []step{
		newStep("mend-source", source).widen(),
		freeze, change, d.tier(newStep("label-namespace", one(d, targets))),
		newStep("delete-copy", one(d, targets)+"/"+keyOf(source).Name),
	}
}

// haunting draws a leader that stands still until another leads, and goes on, and then there is much to do.
func (d drawer) haunting() []step {
	const still = 6 * time.Second // the lease lasts for 4 s, and may be as young as that, and the other reads it within 1.1 s
	out := []step{newStep("zombie", onLeader).with(forArg, still.String())}
	for i := range 16 {
		s := d.content(newStep("edit-source", favoured(d, homes)+"/"+favoured(d, names[:len(names)-1])))
		s.gap = 150 * time.Millisecond
		if i == 0 {
			s.gap = still
		}
		out = append(out, s)
	}
	return out
}

// usurp draws an object without our marks.
func (d drawer) usurp(s step) step {
	for _, k := range []string{model.SourceAnnotation, model.CopyAnnotation, model.InstanceAnnotation, model.ChecksumAnnotation, model.CopiedAnnotation} {
		s = s.with(dropAnnotation, k)
	}
	return d.content(s)
}

// gap draws the time before a step: mostly none, now and then more than the second that deletions wait for by default.
func (d drawer) gap() time.Duration {
	switch n := d.IntN(20); {
	case n < 10:
		return 0
	case n < 16:
		return time.Duration(d.IntN(300)) * time.Millisecond
	case n < 19:
		return time.Duration(d.IntN(800)) * time.Millisecond
	}
	return 1500 * time.Millisecond
}

// row is an entry of a table to draw from.
type row struct {
	weight int
	draw   func(drawer) step
}

func pick(d drawer, table []row) func(drawer) step {
	sum := 0
	for _, r := range table {
		sum += r.weight
	}
	n := d.IntN(sum)
	for _, r := range table {
		if n -= r.weight; n < 0 {
			return r.draw
		}
	}
	panic("the weights have a sum")
}

// operationTable are the operations and how often each is drawn. A copy or a foreign object is not always there
// where it is sought: the counts tell how often.
var operationTable = []row{
	{24, drawer.createSource},
	{12, func(d drawer) step { return d.content(newStep("edit-source", d.sourceKey())) }},
	{4, func(d drawer) step { return newStep("freeze-source", d.sourceKey()).with(immutableArg, "") }},
	{6, func(d drawer) step { return d.pause(d.content(newStep("replace-source", d.sourceKey()))) }},
	{4, func(d drawer) step { return d.pause(newStep("replace-source", d.sourceKey())) }},
	{4, func(d drawer) step { return newStep("delete-source", d.sourceKey()) }},
	{5, func(d drawer) step {
		return newStep("label-source", d.sourceKey()).with(labelArg+model.Label, model.Source)
	}},
	{4, func(d drawer) step {
		return newStep("label-source", d.targetKey()).with(labelArg+model.Label, model.Source)
	}},
	{4, func(d drawer) step { return newStep("unlabel-source", d.sourceKey()).with(dropLabel, model.Label) }},
	{8, drawer.narrowSource},
	{9, func(d drawer) step {
		return newStep("narrow-source", d.sourceKey()).with(annotationArg+model.SelectorAnnotation, "tier in (gold")
	}},
	{9, func(d drawer) step {
		return newStep("mend-source", d.sourceKey()).widen()
	}},
	{9, drawer.markSource},

	{14, drawer.editCopy},
	{9, func(d drawer) step { return newStep("delete-copy", d.targetKey()) }},
	{3, func(d drawer) step { return d.pause(d.content(newStep("replace-copy", d.targetKey()))) }},
	{9, func(d drawer) step { return newStep("strip-label", d.targetKey()).with(dropLabel, model.Label) }},
	{4, func(d drawer) step {
		return newStep("pose-source", d.targetKey()).with(labelArg+model.Label, model.Source)
	}},
	{5, drawer.releaseCopy},
	{3, func(d drawer) step {
		return newStep("promote-copy", d.targetKey()).with(labelArg+model.Label, model.Source).with(dropAnnotation, model.CopyAnnotation)
	}},
	{6, drawer.freezeCopy},
	{4, func(d drawer) step { return newStep("finalize", d.anyKey()).with(finalizerArg, "on") }},
	{8, func(d drawer) step { return newStep("unfinalize", d.anyKey()).with(finalizerArg, "off") }},
	{6, drawer.forge},
	{6, func(d drawer) step { return d.truly(one(d, beyondFirst)+"/"+favoured(d, names), favoured(d, homes)) }},

	{8, drawer.createForeign},
	{4, func(d drawer) step { return d.content(newStep("edit-foreign", d.targetKey())) }},
	{11, drawer.adopt},
	{14, func(d drawer) step { return newStep("delete-foreign", d.targetKey()) }},

	{7, func(d drawer) step { return d.tier(newStep("create-namespace", one(d, targets))) }},
	{2, func(d drawer) step { return newStep("create-namespace", one(d, homes)) }},
	{2, func(d drawer) step { return newStep("delete-namespace", one(d, targets)) }},
	{1, func(d drawer) step { return newStep("recreate-namespace", one(d, homes)) }},
	{4, func(d drawer) step { return d.tier(newStep("recreate-namespace", one(d, targets))) }},
	{5, func(d drawer) step {
		return newStep("label-namespace", one(d, targets)).with(labelArg+model.Label, model.OptOut)
	}},
	{9, func(d drawer) step { return newStep("label-namespace", one(d, targets)).with(labelArg+model.Label, "") }},
	{7, func(d drawer) step { return d.tier(newStep("label-namespace", one(d, targets))) }},
}

func newStep(kind, on string) step { return step{kind: kind, on: on, args: url.Values{}} }

func (s step) with(arg, value string) step {
	s.args.Add(arg, value)
	return s
}

// one draws from a list, each entry as likely as the others.
func one[T any](d drawer, of []T) T { return of[d.IntN(len(of))] }

// favoured draws from a list, the first entries more often than the last.
func favoured[T any](d drawer, of []T) T { return of[min(d.IntN(len(of)), d.IntN(len(of)))] }

// sourceKey draws where a source may be: as a rule not in a target.
func (d drawer) sourceKey() string {
	if d.IntN(4) == 0 {
		return d.targetKey()
	}
	return favoured(d, homes) + "/" + favoured(d, names)
}

func (d drawer) targetKey() string { return one(d, targets) + "/" + favoured(d, names) }

func (d drawer) anyKey() string {
	if d.IntN(3) == 0 {
		return d.sourceKey()
	}
	return d.targetKey()
}

// content draws what is in a ConfigMap.
func (d drawer) content(s step) step {
	shape := "small"
	switch n := d.IntN(100); {
	case n < 40:
	case n < 50:
		shape = "empty"
	case n < 60:
		shape = "blank"
	case n < 68:
		shape = "many"
	case n < 80:
		shape = "binary"
	case n < 90:
		shape = "both"
	case n < 97:
		shape = "large"
	default:
		shape = "huge"
	}
	return s.with(contentArg, fmt.Sprintf("%s:%d", shape, d.IntN(1000)))
}

// pause draws the time between a deletion and a creation: often less than the grace in which copies stay.
func (d drawer) pause(s step) step {
	return s.with(pauseArg, one(d, []time.Duration{0, 0, 100 * time.Millisecond, 400 * time.Millisecond, 1500 * time.Millisecond}).String())
}

func (d drawer) createSource() step {
	s := d.content(newStep("create-source", d.sourceKey())).with(labelArg+model.Label, model.Source)
	if d.IntN(4) == 0 {
		s = s.with(immutableArg, "")
	}
	if d.IntN(6) == 0 {
		s = s.with(finalizerArg, "on")
	}
	return s
}

// narrowSource narrows a source, or widens it again. Some of the narrowings are malformed.
func (d drawer) narrowSource() step {
	s := newStep("narrow-source", d.sourceKey())
	prefixes := []string{"team-", "team-a", " team-a , dev-", "dev-x", "nowhere-", "", "team-,,dev-", "team-, ", "team-,Dev-", "-a"}
	selectors := []string{"tier=gold", "tier in (gold,silver)", "!tier", "", "tier!=silver", "tier in (gold", "=gold", "tier=gold,"}
	switch d.IntN(8) {
	case 0:
		return s.with(annotationArg+model.PrefixAnnotation, one(d, prefixes))
	case 1:
		return s.with(annotationArg+model.SelectorAnnotation, one(d, selectors))
	case 2:
		return s.with(annotationArg+model.PrefixAnnotation, one(d, prefixes[:5])).
			with(annotationArg+model.SelectorAnnotation, one(d, selectors[:5]))
	case 3:
		return s.with(annotationArg+mistyped, "team-")
	}
	return s.widen()
}

// mistyped is an annotation of the domain that is not known, narrowings are all that narrow a source or freeze it.
const mistyped = model.PrefixAnnotation + "es"

var narrowings = []string{model.PrefixAnnotation, model.SelectorAnnotation, mistyped}

// widen drops all narrowings.
func (s step) widen() step {
	s.args[dropAnnotation] = slices.Clone(narrowings)
	return s
}

// Keys of labels and annotations of sources, some that are copied and some that are not, whatever the flags say.
var (
	markLabels      = []string{"team", "team", "app.kubernetes.io/component", "app.kubernetes.io/instance", "helm.sh/chart", "cost"}
	markAnnotations = []string{"example.com/note", "example.com/owner", "argocd.argoproj.io/tracking-id", "kustomize.toolkit.fluxcd.io/reconcile"}
)

func (d drawer) markSource() step {
	s := newStep("mark-source", d.sourceKey())
	label, annotation := one(d, markLabels), one(d, markAnnotations)
	if d.IntN(2) == 0 {
		return s.with(dropLabel, label).with(dropAnnotation, annotation)
	}
	return s.with(labelArg+label, "v"+strconv.Itoa(d.IntN(9))).with(annotationArg+annotation, "v"+strconv.Itoa(d.IntN(9)))
}

// editCopy draws a drift: of the content, of a mark, or of metadata that is nobody's business.
func (d drawer) editCopy() step {
	s := newStep("edit-copy", d.targetKey())
	switch d.IntN(8) {
	case 0:
		return s.with(extraArg, "extra")
	case 1:
		return s.with(extraArg, "key1") // which is binary in some
	case 2:
		return s.with(cutArg, "")
	case 3:
		return s.with(labelArg+model.ManagedBy, "somebody")
	case 4:
		return s.with(annotationArg+model.ChecksumAnnotation, "sha256:none")
	case 5:
		return s.with(labelArg+"cost", "mine").with(annotationArg+"other.example.com/x", "y")
	}
	return d.content(s)
}

func (d drawer) freezeCopy() step {
	s := newStep("freeze-copy", d.targetKey()).with(immutableArg, "")
	if d.IntN(2) == 0 {
		return d.content(s)
	}
	return s
}

// releaseCopy takes marks from a copy, so that it is not ours any more.
func (d drawer) releaseCopy() step {
	s := newStep("release-copy", d.targetKey())
	marks := []string{model.SourceAnnotation, model.CopyAnnotation, model.InstanceAnnotation}
	if d.IntN(2) == 0 {
		return s.with(dropAnnotation, one(d, marks))
	}
	s = d.usurp(s)
	if d.IntN(2) == 0 {
		s = s.with(dropLabel, model.Label)
	}
	return s
}

// forge puts marks on whatever is there: true ones, those of a clone, of another instance, or of no copy at all.
func (d drawer) forge() step {
	s := newStep("forge", d.targetKey())
	marks := map[string]string{
		model.SourceAnnotation: one(d, homes) + "/" + nameValue, model.CopyAnnotation: selfValue, model.InstanceAnnotation: instance.Instance,
	}
	switch d.IntN(7) {
	case 0, 1: // true
	case 2:
		marks[model.CopyAnnotation] = one(d, homes) + "/" + nameValue // a clone, or a backup restored elsewhere
	case 3:
		marks[model.InstanceAnnotation] = "another"
	case 4:
		marks[model.SourceAnnotation] = one(d, homes) + "/another"
	case 5:
		marks[model.SourceAnnotation] = selfValue
	case 6:
		marks[model.SourceAnnotation] = one(d, []string{"Home", "home-", "a.b", ""}) + "/" + nameValue // of no namespace that can be
	}
	for _, k := range []string{model.SourceAnnotation, model.CopyAnnotation, model.InstanceAnnotation} {
		s = s.with(annotationArg+k, marks[k])
	}
	if d.IntN(3) > 0 {
		s = s.with(labelArg+model.Label, one(d, []string{model.CopyMark, model.CopyMark, model.Source}))
	}
	if d.IntN(2) == 0 {
		s = d.content(s)
	}
	return s
}

func (d drawer) createForeign() step {
	s := d.content(newStep("create-foreign", d.targetKey()))
	switch d.IntN(5) {
	case 0:
		s = s.with(labelArg+model.Label, model.CopyMark)
	case 1:
		s = s.with(immutableArg, "")
	case 2:
		s = s.with(finalizerArg, "on")
	}
	return s
}

// adopt hands a foreign object over, as a rule in the way that is seen at once.
func (d drawer) adopt() step {
	s := newStep("adopt-foreign", d.targetKey()).with(annotationArg+model.AdoptAnnotation, "true")
	if d.IntN(4) > 0 {
		s = s.with(labelArg+model.Label, model.CopyMark)
	}
	return s
}

// tier draws the label by which selectors choose namespaces.
func (d drawer) tier(s step) step {
	return s.with(labelArg+"tier", one(d, []string{"gold", "silver", "bronze", ""}))
}
