package main

import "testing"

func TestPlan(t *testing.T) {
	var out golden
	out.print(t, "every state", newPlanned(everyState().Snapshot(t)), outputFormats...)
	out.print(t, "nothing", newPlanned(newScene().Snapshot(t)), outputFormats...)
	out.compare(t, "plan")
}
