package main

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestRefusedAsConfined: the policy is known by its name, whatever a kustomization adds to that.
func TestRefusedAsConfined(t *testing.T) {
	forbidden := func(text string) error {
		return apierrors.NewForbidden(corev1.Resource("configmaps"), "any", errors.New(text))
	}
	denied := func(policy string) string {
		return "ValidatingAdmissionPolicy '" + policy + "' with binding '" + policy + "' denied request: no"
	}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"shipped":             {forbidden(denied("mirror-controller-confined")), true},
		"with a prefix":       {forbidden(denied("eu-mirror-controller-confined")), true},
		"with a suffix":       {forbidden(denied("mirror-controller-confined-blue")), true},
		"another policy":      {forbidden(denied("require-labels")), false},
		"no permission":       {forbidden("User cannot create resource"), false},
		"no answer of policy": {errors.New(denied("mirror-controller-confined")), false},
		"accepted":            {nil, false},
	} {
		if got := refusedAsConfined(test.err); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
