package main

import (
	"fmt"
	"strings"
	"time"
)

// rung is what there is with so many copies.
type rung struct {
	namespaces, copies int
	made               int           // copies that the process of this rung made
	filled             time.Duration // how long that took
	maker              figures       // when it was done
	restarted          time.Duration // until a process that starts with all copies in sync mirrors
	found              figures       // of that process
	changed            time.Duration // a change of a source, to its last copy
}

// figures are bytes: of the controller, of each program of the run, and of etcd's file.
type figures struct {
	resident, peak, live float64
	programs             map[string]float64
	database             float64
}

// growthPoint is what programs have in memory when so many copies have been made.
type growthPoint struct {
	copies   int
	resident map[string]float64
}

// sections are the table and the picture of how things grow.
func (m *million) sections() []section {
	if len(m.ladder) == 0 {
		return nil
	}
	return []section{
		{text: growthTable(m.ladder) + leanNote},
		{file: "million-growth.svg", picture: growthPicture(m.curve)},
	}
}

// leanNote says what the table does not show.
const leanNote = "\nkube-controller-manager runs without its garbage collector, quotas and publisher of kube-root-ca.crt: each keeps every ConfigMap in memory.\n"

// growthTable has a line for each number of copies.
func growthTable(ladder []rung) string {
	var s strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&s, "| %s |\n", strings.Join(cells, " | ")) }
	line("copies", "namespaces", "made", "start until it mirrors", "change of one source", "resident, made", "resident, restarted", "live heap",
		"API server", "etcd", "etcd's file", "controller manager")
	line(strings.Split(strings.Repeat("---,", 11)+"---", ",")...)
	for _, r := range ladder {
		line(thousands(r.copies), thousands(r.namespaces), fmt.Sprintf("%s in %s", thousands(r.made), asSeconds(r.filled.Seconds())),
			asSeconds(r.restarted.Seconds()), asSeconds(r.changed.Seconds()),
			asBytes(r.maker.resident), asBytes(r.found.resident), asBytes(r.found.live),
			asBytes(r.maker.programs["kube-apiserver"]), asBytes(r.maker.programs["etcd"]), asBytes(r.maker.database),
			asBytes(r.maker.programs["kube-controller-manager"]))
	}
	return s.String()
}

// grown are the programs in the picture of how memory grows, by the names of their lines.
var grown = []struct{ name, program string }{
	{"controller", "mirror-controller"}, {"API server", "kube-apiserver"}, {"etcd", "etcd"}, {"controller manager", "kube-controller-manager"},
}

// growthPicture draws what programs have in memory over the number of copies.
func growthPicture(points []growthPoint) string {
	p := panel{title: "memory of each program while copies are made", y: asGiB, x: asCount, xName: "copies"}
	for _, g := range grown {
		l := line{name: g.name}
		for _, at := range points {
			l.points = append(l.points, point{float64(at.copies), at.resident[g.program]})
		}
		p.lines = append(p.lines, l)
	}
	return drawPanels("How memory grows", []panel{p})
}
