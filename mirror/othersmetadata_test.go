package mirror

// The labels and annotations of other people on a copy stay, and change nothing
// in what is copied.

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC69InvalidUTF8BesideOthersMetadata: protobuf carries data that is not valid
// UTF-8, and JSON does not. A label of somebody else on a copy must not change
// by which of the two the data travels.
func TestC69InvalidUTF8BesideOthersMetadata(t *testing.T) {
	inScene(append(teams(2, "team-"), source(data("a\xffb"))), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantCopy("team-000", "a\xffb")
		s.edit("team-000", plantest.Label("theirs", "x"))
		s.edit("platform", data("new\xffb"))
		time.Sleep(time.Hour)
		s.wantCopy("team-001", "new\xffb")
		s.wantCopy("team-000", "new\xffb")
		s.wantEventCount(0, plan.ReasonWriteFailed)
		if got := s.get("team-000").Labels["theirs"]; got != "x" {
			t.Errorf("got the label of somebody else %q, want it kept", got)
		}
	})(t)
}

// TestC71ManyCopiedKeysBesideOthersMetadata: the list of the copied keys takes
// more than 4 KiB, so that a copy has its digest instead.
func TestC71ManyCopiedKeysBesideOthersMetadata(t *testing.T) {
	src := source()
	for i := range 80 {
		key := fmt.Sprintf("example.com/a-rather-long-name-of-an-annotation-%02d", i)
		src.Annotations[key] = "x"
	}
	edit := func(o *Options) { o.CopyAnnotations = []string{"example.com/*"} }
	inSceneWith(append(teams(1, "team-"), src), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.edit("team-000", plantest.Label("theirs", "x"), plantest.Annotation("theirs", "x"))
		s.edit("platform", data("new"))
		time.Sleep(time.Minute)
		s.wantCopy("team-000", "new")
		cm := s.get("team-000")
		if cm.Labels["theirs"] != "x" || cm.Annotations["theirs"] != "x" {
			t.Errorf("got %v and %v, want theirs in both", cm.Labels, cm.Annotations)
		}
	})(t)
}

// TestC71ReadBeforeAnUpdateFails: nothing is written without it, or the metadata of
// other people would be lost.
func TestC71ReadBeforeAnUpdateFails(t *testing.T) {
	inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.edit("team-000", plantest.Label("theirs", "x"))
		time.Sleep(time.Minute)
		writes := s.countWrites("team-")
		s.refuse(on(rejected("no get"), reads))
		s.edit("platform", data("new"))
		time.Sleep(10 * time.Minute)
		s.wantWrites(writes, "team-")
		s.refuse(on[error](nil))
		time.Sleep(2 * time.Minute)
		s.wantCopy("team-000", "new")
		if got := s.get("team-000").Labels["theirs"]; got != "x" {
			t.Errorf("got the label of somebody else %q, want it kept", got)
		}
	})(t)
}

// TestC71ConflictsOfAnUpdate: somebody writes a label between our read and our
// update, which conflicts. One more read follows at once, and after a second
// conflict the ordinary retry.
func TestC71ConflictsOfAnUpdate(t *testing.T) {
	for name, tc := range map[string]struct {
		conflicts int
		tries     int // at once
	}{"never": {0, 1}, "once": {1, 2}, "twice": {2, 2}} {
		t.Run(name, inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.edit("team-000", plantest.Label("theirs", "0"))
			time.Sleep(time.Minute)
			calls := s.Calls()
			update := request("update", "configmaps", "team-000")
			var mu sync.Mutex
			tried := 0
			s.beforeCall(func(c apitest.Call) {
				mu.Lock()
				defer mu.Unlock()
				if c != update {
					return
				}
				tried++
				if tried <= tc.conflicts {
					s.edit("team-000", plantest.Label("theirs", fmt.Sprint(tried)))
				}
			})
			s.lose(func(resource, namespace string) bool { return namespace == "team-000" })
			s.edit("platform", data("new"))
			synctest.Wait() // no time passes
			for _, verb := range []string{"get", "update"} {
				c := request(verb, "configmaps", "team-000")
				if n := s.Calls()[c] - calls[c]; n != tc.tries {
					t.Errorf("got %d of %v at once, want %d", n, c, tc.tries)
				}
			}
			s.Relist()
			time.Sleep(time.Minute)
			s.wantCopy("team-000", "new")
			if got := s.get("team-000").Labels["theirs"]; got != fmt.Sprint(tc.conflicts) {
				t.Errorf("got the label of somebody else %q, want its last value", got)
			}
		}))
	}
}

// TestC71TooLarge is the table of the refusals after which an update is tried without
// the metadata of other people. Nobody else's refusal is one, whatever its words.
func TestC71TooLarge(t *testing.T) {
	resource := corev1.Resource("configmaps")
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
	tooLong := field.TooLong(field.NewPath("data"), "", 1)
	policy := apierrors.NewForbidden(resource, "settings", errors.New("request is too large"))
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeTooLong}}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":           {nil, false},
		"413":            {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"too long":       {apierrors.NewInvalid(kind, "settings", field.ErrorList{tooLong}), true},
		"of etcd":        {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), true},
		"of its client":  {apierrors.NewInternalError(errors.New("trying to send message larger than max")), true},
		"of a policy":    {policy, false},
		"another 500":    {apierrors.NewInternalError(errors.New("etcdserver: no leader")), false},
		"another 422":    {apierrors.NewInvalid(kind, "settings", nil), false},
		"without a code": {errors.New("request is too large"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isTooLarge(tc.err); got != tc.want {
				t.Errorf("got too large %v, want %v", got, tc.want)
			}
		})
	}
}

// TestRecreateWhatIsGone: somebody else has deleted it just before.
func TestRecreateWhatIsGone(t *testing.T) {
	src := source()
	c := stillController(t, src, plantest.Namespace("team-a"))
	stored, err := c.reconciler.writer.apply(t.Context(), plan.Change{
		Op:     plan.OpRecreate,
		Key:    settings("team-a"),
		Source: parsed(src),
		Have:   copyOf(src, "team-a"),
	}, nil)
	if err != nil || stored == nil || stored.Data["key"] != "value" {
		t.Errorf("got %v, %v, want a copy", stored, err)
	}
}
