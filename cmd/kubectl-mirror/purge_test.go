package main

import (
	"errors"
	"testing"
)

func TestHowToLift(t *testing.T) {
	for refused, want := range map[string]string{
		`configmaps "x" is forbidden: User "you" cannot delete resource "configmaps"`: "",
		`configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: m`: ". To lift the policy: " +
			"kubectl delete validatingadmissionpolicybinding b",
	} {
		if got := howToLift(errors.New(refused)); got != want {
			t.Errorf("%s: got %q, want %q", refused, got, want)
		}
	}
}
