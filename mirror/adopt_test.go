package mirror

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// foreignObject returns a foreign ConfigMap in team-000.
func foreignObject(options ...plantest.Option) *corev1.ConfigMap {
	return plantest.ConfigMap("team-000", "settings", append(options, plantest.Data("theirs", "x"))...)
}

// TestC11Foreign: it is left alone, reported once, and read again, at last once a minute. The copy is made when it is
// gone.
func TestC11Foreign(t *testing.T) {
	elsewhere, other := plantest.Annotation(plan.CopyAnnotation, "team-001/settings"),
		plantest.Annotation(plan.InstanceAnnotation, "other")
	for name, foreign := range map[string]*corev1.ConfigMap{
		"no label":                        foreignObject(),
		"C06 a copy's YAML, applied here": copyOf(source(), "team-000", elsewhere, unlabelled),
		"C10 of another instance":         copyOf(source(), "team-000", other),
		"C49 with finalizers, adoptable":  foreignObject(adopt, plantest.Finalizer),
	} {
		t.Run(name, inScene(append(teams(2, "team-"), source(), foreign), func(t *testing.T, s scene) {
			time.Sleep(2 * time.Hour)
			before := s.CountAll("team-000", "create", "get")
			time.Sleep(time.Hour)
			n, visible := s.CountAll("team-000", "create", "get")-before, foreign.Labels["mirror"] != ""
			if visible && n > 0 || !visible && n != 60 {
				t.Errorf("got %d creates and reads in an hour, want one read a minute, none if the watch shows the object", n)
			}
			cm := s.get("team-000")
			if cm.ResourceVersion != foreign.ResourceVersion {
				t.Errorf("got %v, want it untouched", cm)
			}
			s.wantEventCount(1, plan.ReasonForeign)
			note := s.lastNote(plan.ReasonForeign)
			refused := foreign.Annotations[plan.InstanceAnnotation] == "other" || len(cm.Finalizers) > 0
			if strings.Contains(note, plan.AdoptAnnotation+"=") == refused {
				t.Errorf("got event %q, want in it how to hand the object over, if that is possible: %v", note, !refused)
			}
			cm.Finalizers = nil
			s.write(cm)
			if name != "C49 with finalizers, adoptable" {
				s.remove("team-000")
			}
			time.Sleep(time.Minute)
			s.wantCopy("team-000", "value")
		}))
	}
}

// TestC12Adoption: with the label it is noticed at once, else within a minute. The object becomes the copy.
func TestC12Adoption(t *testing.T) {
	for name, tc := range map[string]struct {
		edits []plantest.Option
		after time.Duration
		same  bool // the object stays
	}{
		"by annotation":           {[]plantest.Option{adopt}, time.Minute, true},
		"by annotation and label": {[]plantest.Option{adopt, copyLabel}, 0, true},
		"immutable":               {[]plantest.Option{adopt, copyLabel, plantest.Immutable}, 0, false},
		"immutable, not labelled": {[]plantest.Option{adopt, plantest.Immutable}, time.Minute, false},
	} {
		t.Run(name, inScene(append(teams(1, "team-"), source(), foreignObject()), func(t *testing.T, s scene) {
			time.Sleep(time.Hour)
			uid := s.get("team-000").UID
			s.edit("team-000", tc.edits...)
			time.Sleep(tc.after)
			s.wantCopy("team-000", "value")
			cm := s.get("team-000")
			if len(cm.Data) != 1 || cm.Annotations[plan.AdoptAnnotation] != "" || (cm.UID == uid) != tc.same {
				t.Errorf("got %v, want no key and no mark of the foreign object", cm)
			}
		}))
	}
}

// TestC11PaceAlthoughTheSourceChanges: other content does not remove a foreign object, so edits are no reason for
// another try, neither during the create nor during the read.
func TestC11PaceAlthoughTheSourceChanges(t *testing.T) {
	for _, verb := range []string{"create", "get"} {
		t.Run(verb, inScene(append(teams(1, "team-"), foreignObject()), func(t *testing.T, s scene) {
			s.delay(on(1500*time.Millisecond, request(verb, "configmaps", "team-000")))
			s.write(source())
			for i := range 300 {
				time.Sleep(time.Second)
				s.edit("platform", data(strconv.Itoa(i)))
			}
			if n := s.CountAll("team-000", "get"); n < 6 || n > 26 {
				t.Errorf("got %d reads in five minutes, want 1, 2, 4 seconds between two tries, up to a minute, "+
					"of two reads each", n)
			}
		}))
	}
}
