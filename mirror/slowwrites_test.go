package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
)

// TestC81WritesOfTenSeconds: each write takes as long as a webhook that is down,
// by its default timeout, and is ignored. From the third content on, when the
// controller knows how long calls take, as many writes are in flight as the
// flag allows.
func TestC81WritesOfTenSeconds(t *testing.T) {
	t.Parallel()
	const targets = 512
	for _, takes := range []time.Duration{8500 * time.Millisecond, 10 * time.Second} {
		for _, writes := range []int{32, 128} {
			edit := func(o *Options) { o.ConcurrentWrites = writes }
			name := fmt.Sprintf("%v, %d writes", takes, writes)
			t.Run(name, inSceneWith(teams(targets, "team-"), edit, func(t *testing.T, s scene) {
				s.delay(func(c apitest.Call) time.Duration {
					if c.IsWrite() {
						return takes
					}
					return 0
				})
				mirror := func(content string, limit time.Duration) {
					s.write(source(data(content)))
					s.within(limit, content, func() bool {
						return s.countCopies("team-", content) == targets
					})
					time.Sleep(time.Minute)
				}
				mirror("first", time.Hour)
				mirror("second", time.Hour)
				ideal := takes * targets / time.Duration(writes)
				mirror("third", ideal*3/2)
			}))
		}
	}
}
