package plan

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNewOptions(t *testing.T) {
	want := Options{ExcludeNamespaces: []string{"kube-*"}, Label: "mirror", Instance: "default"}
	if got := NewOptions(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if a, b := NewOptions(), NewOptions(); &a.ExcludeNamespaces[0] == &b.ExcludeNamespaces[0] {
		t.Error("got defaults that share a slice: a change of one changes the other")
	}
}

// TestValidateAccepts has options at the limits. cmd/mirror-controller.TestRefusedArguments has what is refused.
func TestValidateAccepts(t *testing.T) {
	everywhere := Options{AllNamespaces: true, ExcludeNamespaces: []string{"a", "a-*"}, Label: "m", Instance: "i"}
	longest := testOptions(func(o *Options) { o.NamespacePrefixes = []string{strings.Repeat("a", 63)} })
	if err := errors.Join(everywhere.Validate(), longest.Validate()); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	patterns := []string{"*", "app", "example.com/te*", "example.*", strings.Repeat("a", 70) + "*", "argocd.argoproj.io/*"}
	listed := testOptions(func(o *Options) { o.CopyLabels, o.CopyAnnotations = patterns, patterns })
	if err := listed.Validate(); err != nil {
		t.Errorf("got %v, want patterns accepted, also those that match keys which never travel", err)
	}
}

// TestValidNamespace compares it with the function of apimachinery that it replaces.
func TestValidNamespace(t *testing.T) {
	long := strings.Repeat("a", 63)
	names := []string{"", "a", "a\n", "z9", "0-a", "-a", "a-", "a.b", "A", "a_b", "a/b", "a:b", "a`b", "a{b",
		long, long + "a"}
	for _, name := range names {
		t.Run(strconv.Quote(name), func(t *testing.T) {
			if got, want := validNamespace(name), len(validation.IsDNS1123Label(name)) == 0; got != want {
				t.Errorf("got valid %v, want %v", got, want)
			}
		})
	}
}
