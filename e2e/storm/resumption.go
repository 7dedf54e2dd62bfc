package main

import (
	"strconv"
	"time"
)

// graces are the deletion graces that are drawn, the default first. From 10 seconds on the controller announces deletions.
var graces = []time.Duration{time.Second, 0, 3 * time.Second, 11 * time.Second}

// resumption draws a calm round in which users act while no controller runs, and then controllers start with other flags: with
// all the operations of a start at once, and known in advance.
func (d drawer) resumption() []round {
	steps := []step{newStep("halt", "*")}
	for range 30 {
		steps = append(steps, pick(d, operationTable)(d))
	}
	profile, limit, grace := strconv.Itoa(d.IntN(len(profiles))), one(d, []string{"50", "100", "100"}), one(d, graces).String()
	out := []round{calm(append(steps, newStep("resume", "*").with(profileArg, profile).with(limitArg, limit).with(graceArg, grace)))}
	if limit != "100" {
		out = append(out, calm([]step{newStep("flags", "-").with(profileArg, profile).with(limitArg, "100")}))
	}
	return out
}
