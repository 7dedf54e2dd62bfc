package mirror

// The labels and annotations of other people on a copy stay, and change nothing
// in what is copied.

import (
	"fmt"
	"testing"
	"time"

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
