package endless

import (
	"testing"
	"testing/synctest"
)

func TestSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := Sum(3); got != 6 {
			t.Errorf("got %d, want 6", got)
		}
	})
}
