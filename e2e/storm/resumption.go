package main

import "strconv"

// resumption draws a calm round in which users act while no controller runs, and then controllers start with other flags: with
// all the operations of a start at once, and known in advance.
func (d drawer) resumption() []round {
	steps := []step{newStep("halt", "*")}
	for range 30 {
		steps = append(steps, pick(d, operationTable)(d))
	}
	profile, limit := strconv.Itoa(d.IntN(len(profiles))), one(d, []string{"50", "100", "100"})
	out := []round{calm(append(steps, newStep("resume", "*").with(profileArg, profile).with(limitArg, limit)))}
	if limit != "100" {
		out = append(out, calm([]step{newStep("flags", "-").with(profileArg, profile).with(limitArg, "100")}))
	}
	return out
}
