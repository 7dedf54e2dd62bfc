package main

import (
	"strconv"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// selection draws rounds with flags that choose namespaces by their labels: a calm one in which a prune limit meets the
// labels, and a storm in which they change while sources and copies do. In half of them the controllers do not hear of
// the labels at first, and act on old ones.
func (d drawer) selection() []round {
	profile := one(d, selecting)
	labels := d.fill()
	for _, ns := range targets {
		labels = append(labels, d.tier(newStep("label-namespace", ns)))
	}
	out := append([]round{calm(labels)}, limited(profile, one(d, []int{0, 1, 50}))...)
	var storm []step
	if d.IntN(2) == 0 {
		storm = append(storm, newStep("hold-namespaces", "*").with(forArg, unheard.String()))
	}
	for range 20 {
		storm = append(storm, d.tier(newStep("label-namespace", one(d, targets))), d.amid())
		storm[len(storm)-2].gap, storm[len(storm)-1].gap = d.gap(), d.gap()
	}
	storm[len(storm)-1].gap = 2 * time.Second // in which what is decided wrongly is done
	return append(out, round{steps: storm})
}

// amid draws what happens to a source or a copy while labels change.
func (d drawer) amid() step {
	name := favoured(d, names[:len(names)-1])
	switch d.IntN(5) {
	case 0:
		return d.content(newStep("edit-source", homes[0]+"/"+name))
	case 1:
		return newStep("delete-copy", one(d, targets)+"/"+name)
	case 2:
		return newStep("label-namespace", one(d, targets)).with(labelArg+model.Label, one(d, []string{model.OptOut, ""}))
	case 3:
		return newStep("flags", "-").with(profileArg, strconv.Itoa(one(d, selecting))).with(limitArg, "100")
	}
	return d.theft(name)
}
