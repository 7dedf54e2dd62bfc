package main

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestHowToLift(t *testing.T) {
	for refused, want := range map[string]string{
		`configmaps "x" is forbidden: User "you" cannot delete resource "configmaps"`: "",
		// a policy of somebody else, with a message that looks like ours
		`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ValidatingAdmissionPolicy 'p' with binding 'x; y-protected-copies'`: "",
		`configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'mirror-protected-copies' denied request: m`: ". To lift the policy: " +
			"kubectl delete validatingadmissionpolicybinding mirror-protected-copies",
	} {
		if got := howToLift(errors.New(refused)); got != want {
			t.Errorf("%s: got %q, want %q", refused, got, want)
		}
	}
}

// TestIsRefused: a policy or a webhook may answer with any code of an invalid request.
func TestIsRefused(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithResource("configmaps").GroupResource()
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{apierrors.NewForbidden(kind, "x", nil), true},
		{apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "x", nil), true},
		{apierrors.NewBadRequest("denied the request"), true},
		{apierrors.NewNotFound(kind, "x"), false},
		{apierrors.NewConflict(kind, "x", nil), false},
		{apierrors.NewTooManyRequestsError("busy"), false},
		{apierrors.NewInternalError(errors.New("broken")), false},
	} {
		if got := isRefused(test.err); got != test.want {
			t.Errorf("%v: got %v", test.err, got)
		}
	}
}
