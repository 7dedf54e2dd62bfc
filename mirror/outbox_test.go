package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestOutboxHandsOverWhatTheRecorderTakes: of thousands of events all arrive, and never more at once than the recorder keeps.
func TestOutboxHandsOverWhatTheRecorderTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		o := newOutbox(d)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go o.work(ctx)
		for i := range 3000 {
			o.put(key{Namespace: "platform", Name: fmt.Sprint(i)}, "", message{kind: corev1.EventTypeWarning, reason: plan.ReasonForeign, note: fmt.Sprint(i)})
		}
		for second := range 11 {
			synctest.Wait()
			if n, most := d.reported(plan.ReasonForeign), handOverBurst+second*handOverRate; n > most {
				t.Errorf("got %d events after %d seconds, want at most %d", n, second, most)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		notes := d.notesOf(plan.ReasonForeign)
		slices.Sort(notes)
		if n := len(slices.Compact(notes)); n != 3000 {
			t.Errorf("got %d events, want 3000", n)
		}
	})
}

// TestOutboxAtAStop: what waits is handed over after the last write, and the log says how many events are too many.
func TestOutboxAtAStop(t *testing.T) {
	for n, want := range map[int]string{handOverBurst: "", handOverBurst + 7: "events=7"} {
		d, out := &diary{}, logBuffer{}
		o := newOutbox(d)
		for i := range n {
			o.put(key{Namespace: "platform", Name: fmt.Sprint(i)}, "", message{kind: corev1.EventTypeWarning, reason: plan.ReasonForeign})
		}
		o.flush(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out)))))
		if got := d.reported(plan.ReasonForeign); got != handOverBurst || !strings.Contains(out.String(), want) || want == "" && out.String() != "" {
			t.Errorf("got %d of %d events and log %q, want %d and in it %q", got, n, out.String(), handOverBurst, want)
		}
	}
}

// TestOutboxOrder: announcements go first, a newer event replaces one of its source and reason that waits and goes to the end, and each
// count is handed over.
func TestOutboxOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		o := newOutbox(d)
		platform, other := settings("platform"), settings("other")
		put := func(source key, reason, note string) {
			o.put(source, "", message{kind: corev1.EventTypeNormal, reason: reason, note: note})
		}
		put(platform, plan.ReasonForeign, "old")
		put(platform, plan.ReasonDeleted, "1")
		put(other, plan.ReasonForeign, "other")
		put(platform, plan.ReasonExpiring, "soon")
		put(platform, plan.ReasonForeign, "new")
		put(platform, plan.ReasonDeleted, "2")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go o.work(ctx)
		synctest.Wait()
		put(platform, plan.ReasonForeign, "later")
		synctest.Wait()
		if want := []string{"soon", "1", "other", "new", "2", "later"}; !slices.Equal(d.notes, want) {
			t.Errorf("got %q, want %q", d.notes, want)
		}
	})
}
