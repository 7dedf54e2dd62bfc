package sample

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			tries    int
			isUrgent bool
			want     time.Duration
		}{{0, false, 0}, {1, true, 0}, {1, false, 10 * time.Second}, {2, false, 20 * time.Second}} {
			began := time.Now()
			time.Sleep(Delay(row.tries, row.isUrgent))
			if got := time.Since(began); got != row.want {
				t.Errorf("try %d takes %v, want %v", row.tries, got, row.want)
			}
		}
	})
}

func TestMost(t *testing.T) {
	t.Parallel()
	if got := Most(1, 3, 2); got != 3 {
		t.Errorf("got %d, want 3", got)
	}
	if got := Most("a", "c", "b"); got != "c" {
		t.Errorf("got %s, want c", got)
	}
}

func TestIsFull(t *testing.T) {
	if IsFull(1, 2) || IsFull(2, 2) || !IsFull(3, 2) {
		t.Error("two calls have room, and three have not")
	}
}

func TestFirstTry(t *testing.T) {
	if got := Delay(0, false); got != 0 {
		t.Errorf("the first try waits %v", got)
	}
}
