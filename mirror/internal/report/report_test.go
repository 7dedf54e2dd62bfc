package report

import (
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestSpacingIsOfOneSource: sources that no process has seen share the spacing of their messages, and no longer when they
// are seen. A message about one then neither delays nor replaces the repetition of one about the other.
func TestSpacingIsOfOneSource(t *testing.T) {
	now, unseen := time.Unix(5000, 0), map[string]time.Time{}
	var a, b Reported
	for _, r := range []*Reported{&a, &b} {
		r.Begin("", unseen)
		r.Begin("uid", unseen)
	}
	sum := &Summary{Source: &plan.Source{Reserved: true}}
	if said, _ := a.Messages(sum, now); len(said) != 1 {
		t.Fatalf("got %d messages, want one", len(said))
	}
	if wait := b.QuietIn(now); wait != 0 {
		t.Errorf("got a wait of %v for the other source, want none", wait)
	}
}
