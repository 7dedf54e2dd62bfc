package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// programs are those whose memory is followed, beginning with the controller.
var programs = []string{"mirror-controller", cluster.APIServer, cluster.Etcd}

// residents returns what the programs have in memory, in bytes.
func (b *bench) residents(c *controller) (bytes []float64) {
	for _, pid := range append([]int{c.Pid()}, b.servers...) {
		bytes = append(bytes, residentOf(pid))
	}
	return bytes
}

// growth is how things grow while copies are made: a table with a line for each rung, and a picture.
type growth struct {
	lines [][]string
	curve [][]float64 // how many copies there are, and what the programs have in memory then
}

// follow notes every five seconds how many copies there are, and what the programs have in memory.
func (b *bench) follow(c *controller, copies func() int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			_ = attempt(func() { // fails if a program ends meanwhile
				point := append([]float64{float64(copies())}, b.residents(c)...)
				b.growth.curve = append(b.growth.curve, point)
			})
		}, 5*time.Second)
	})
	return func() { cancel(); following.Wait() }
}

// report prints the table, and draws the picture into a file.
func (g *growth) report(out io.Writer, file string) {
	fmt.Fprintln(out)
	printTable(out, []string{"copies", "namespaces", "filling", "start until it mirrors", "change of one source",
		"controller that made them", "restarted", "live heap", "API server", "etcd", "its file"}, g.lines)
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "thousand copies", "GiB"
	p.Legend.Top, p.Legend.Left = true, true
	var lines []any
	for i, program := range programs {
		points := make(plotter.XYs, len(g.curve))
		for at, now := range g.curve {
			points[at] = plotter.XY{X: now[0] / 1000, Y: now[i+1] / (1 << 30)}
		}
		lines = append(lines, program, points)
	}
	check(plotutil.AddLines(p, lines...))
	check(p.Save(18*vg.Centimeter, 9*vg.Centimeter, file))
}
