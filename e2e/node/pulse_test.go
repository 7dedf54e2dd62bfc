package node

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// pulse is a source that is edited ten times a second, and the times at which its copy in one target followed.
type pulse struct {
	world *world
	beats chan time.Time
	end   context.CancelFunc
}

const pulseName = "pulse"

// longestGap returns the longest time in which the copy of a source that is edited all the time did not follow, from the
// beginning of f to a moment after its end.
func (w *world) longestGap(f func()) time.Duration {
	w.Helper()
	p := w.startPulse()
	defer p.end()
	last, longest := time.Now(), time.Duration(0)
	beat := func(now time.Time) {
		longest = max(longest, now.Sub(last))
		last = now
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for running := true; running; {
		select {
		case now := <-p.beats:
			beat(now)
		case <-done:
			running = false
		}
	}
	for range 3 { // the first may be one from before
		select {
		case now := <-p.beats:
			beat(now)
		case <-time.After(patient):
			w.Fatal("nothing is mirrored any more")
		}
	}
	return longest
}

// startPulse begins to edit the source, and returns when its copy follows.
func (w *world) startPulse() *pulse {
	w.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	p := &pulse{w, make(chan time.Time, 1000), cancel}
	w.source(pulseName, map[string]string{"beat": "none"})
	w.waitInSync(pulseName, map[string]string{"beat": "none"}, target(0))
	configMaps := w.admin.CoreV1().ConfigMaps(target(0))
	watched, err := configMaps.Watch(w.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pulseName})
	if err != nil {
		w.Fatal(err)
	}
	context.AfterFunc(ctx, watched.Stop)
	go func() {
		for e := range watched.ResultChan() {
			if e.Type == watch.Modified {
				p.beats <- time.Now()
			}
		}
	}()
	go p.edit(ctx)
	<-p.beats
	return p
}

func (p *pulse) edit(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		patch := fmt.Sprintf(`{"data":{"beat":"%d"}}`, i)
		_, err := p.world.admin.CoreV1().ConfigMaps(home).Patch(ctx, pulseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			p.world.Errorf("edit the source: %v", err)
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
