package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStopLeavesNothing stops a cluster and looks for its processes and its folder. All that is harmed by
// what stays is the machine, so no other test notices.
func TestStopLeavesNothing(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	err = Until(t.Context(), time.Minute, func() error { // the kernel may still hold a process that was killed
		left := processesOf(c.Dir())
		if _, err := os.Stat(c.Dir()); err == nil {
			left = append(left, "the folder "+c.Dir())
		}
		if len(left) > 0 {
			return fmt.Errorf("there are %s", strings.Join(left, "; "))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// processesOf returns the command lines of processes that carry the mark of a folder, or name it in their command line.
func processesOf(dir string) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		command, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(p, "environ"))
		if strings.Contains(string(command)+string(environment), dir) {
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
