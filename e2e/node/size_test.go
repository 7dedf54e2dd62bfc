package node

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestMemory publishes 20 sources of 100 KiB to 100 namespaces: the controller takes less than 128 MiB, and is not killed.
func TestMemory(t *testing.T) {
	w := newWorld(t)
	w.install()
	before := restarts(w.pods()[0])
	data := map[string]string{"key": strings.Repeat("0123456789abcdef", 100<<10/16)}
	for i := range 20 {
		w.source(fmt.Sprintf("settings-%d", i), data)
	}
	for i := range 20 {
		w.waitInSync(fmt.Sprintf("settings-%d", i), data, targets()...)
	}
	pod := w.pods()[0]
	status := read(t, fmt.Sprintf("/proc/%d/status", w.process(pod)))
	peak, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(status)[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d MiB", peak>>10)
	if peak > 128<<10 {
		t.Errorf("it took %d KiB", peak)
	}
	if n := restarts(pod) - before; n > 0 {
		t.Errorf("it was restarted %d times", n)
	}
}
