package outbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// recorded are the notes of the events that were handed over.
type recorded struct {
	mu    sync.Mutex
	notes []string
}

func (r *recorded) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, e.Note)
}

func (r *recorded) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notes)
}

// foreign returns an event about a source of its own.
func foreign(i int) Event {
	source := types.NamespacedName{Namespace: "platform", Name: fmt.Sprint(i)}
	return Event{Regarding: source, Reason: plan.ReasonForeign, Note: source.Name}
}

// TestEventsLeaveAtThePaceOfTheRecorder: of thousands of events all arrive, and never more at once than the recorder
// keeps.
func TestEventsLeaveAtThePaceOfTheRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got recorded
		o := New(got.add)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go o.Work(ctx)
		for i := range 3000 {
			o.Put(foreign(i))
		}
		for second := range 11 {
			synctest.Wait()
			if n, most := len(got.all()), handOverBurst+second*handOverRate; n > most {
				t.Errorf("got %d events after %d seconds, want at most %d", n, second, most)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(slices.Compact(slices.Sorted(slices.Values(got.all())))); n != 3000 {
			t.Errorf("got %d events, want 3000", n)
		}
	})
}

// TestWaitingEventsLeaveAtTheEnd: events that wait are handed over after the last write, and the log says how many
// events are too many.
func TestWaitingEventsLeaveAtTheEnd(t *testing.T) {
	for n, want := range map[int]string{handOverBurst: "", handOverBurst + 7: "events=7"} {
		var got recorded
		var out bytes.Buffer
		o := New(got.add)
		for i := range n {
			o.Put(foreign(i))
		}
		o.Flush(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))))
		log := out.String()
		if handed := len(got.all()); handed != handOverBurst || !strings.Contains(log, want) || want == "" && log != "" {
			t.Errorf("got %d of %d events and log %q, want %d and in it %q", handed, n, log, handOverBurst, want)
		}
	}
}

// TestEventsOfCopiesAreBounded: beside other events at most 100 events of copies wait.
func TestEventsOfCopiesAreBounded(t *testing.T) {
	var got recorded
	o := New(got.add)
	for i := range 1000 {
		o.Put(Event{Regarding: types.NamespacedName{Namespace: fmt.Sprint(i)}, Reason: plan.ReasonRestored, Note: "restored"})
	}
	o.Put(foreign(1))
	o.Flush(t.Context())
	o.Flush(t.Context())
	if all := got.all(); len(all) != maxRestored+1 || all[0] != "1" {
		t.Errorf("got %d events, the first one %q, want %d after that of a source", len(all), all[0], maxRestored)
	}
}

// TestAnnouncementsGoFirst, and events Restored go last. A newer event replaces one of its source and reason that
// waits, and goes to the end. Each count is handed over.
func TestAnnouncementsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got recorded
		o := New(got.add)
		put := func(namespace, reason, note string) {
			o.Put(Event{Regarding: types.NamespacedName{Namespace: namespace, Name: "settings"}, Reason: reason, Note: note})
		}
		put("team-a", plan.ReasonRestored, "restored")
		put("platform", plan.ReasonForeign, "old")
		put("platform", plan.ReasonDeleted, "1")
		put("other", plan.ReasonForeign, "other")
		put("platform", plan.ReasonExpiring, "soon")
		put("platform", plan.ReasonForeign, "new")
		put("platform", plan.ReasonDeleted, "2")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go o.Work(ctx)
		synctest.Wait()
		put("platform", plan.ReasonForeign, "later")
		synctest.Wait()
		if want := []string{"soon", "1", "other", "new", "2", "restored", "later"}; !slices.Equal(got.all(), want) {
			t.Errorf("got %q, want %q", got.all(), want)
		}
	})
}
