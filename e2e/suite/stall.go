package suite

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

var stalling = flag.Bool("stall-apiserver", false,
	"stop the API server that tests share for a second, again and again, at random moments")

const (
	// stallFor is how long the API server stands still. The controller cuts
	// ordinary calls after a few hundred milliseconds, so each of them in a
	// stall is cut, and comes again.
	stallFor = time.Second
	// longestRun is the most time between two stalls. It leaves the API server
	// most of its time.
	longestRun = 10 * time.Second
)

// stall has the API server of the cluster stand still at random moments until
// the returned function is called, which returns when the API server runs
// again. If the process of the test ends before, the cluster ends with it.
func stall(c *cluster.Cluster) (end func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-time.After(rand.N(longestRun)):
			case <-ending:
				fmt.Fprintf(os.Stderr, "The API server stood still %d times.\n", n)
				return
			}
			stallOnce(c)
		}
	}()
	return func() {
		close(ending)
		<-ended
	}
}

// stallOnce has the API server stand still for a moment, and always has it go
// on.
func stallOnce(c *cluster.Cluster) {
	signal := func(sig syscall.Signal) {
		if err := c.Signal(cluster.APIServer, sig); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	defer signal(syscall.SIGCONT)
	signal(syscall.SIGSTOP)
	time.Sleep(stallFor)
}
