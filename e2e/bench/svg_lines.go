package main

import (
	"fmt"
	"html"
	"strings"
)

// panel is a diagram: lines over one axis.
type panel struct {
	title string
	lines []line
	xName string
	x, y  unit // print what stands at the ends of the axes
}

// line is a line of a diagram.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// Measures of a panel, in pixels.
const (
	panelLeft   = 90 // for what stands at the axis
	panelWidth  = 620
	panelHeight = 130
	panelNames  = 160 // behind the panel
	panelPitch  = panelHeight + 62
	panelHead   = 34
)

// lineStyle has colours for a light background, and for a dark one.
const lineStyle = `text{font:12px system-ui,sans-serif;fill:#24292f}.s{fill:#57606a}.a{stroke:#8c959f;fill:none}
.l{fill:none;stroke-width:1.5}.l0{stroke:#0969da}.l1{stroke:#bc4c00}.l2{stroke:#1a7f37}.l3{stroke:#8250df}
.n0{fill:#0969da}.n1{fill:#bc4c00}.n2{fill:#1a7f37}.n3{fill:#8250df}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.l0{stroke:#58a6ff}.l1{stroke:#f0883e}.l2{stroke:#3fb950}.l3{stroke:#bc8cff}
.n0{fill:#58a6ff}.n1{fill:#f0883e}.n2{fill:#3fb950}.n3{fill:#bc8cff}}`

// drawPanels draws panels below each other, each from zero to its largest value. The title says what the run was.
func drawPanels(title string, panels []panel) string {
	width, height := panelLeft+panelWidth+panelNames, panelHead+panelPitch*len(panels)
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img">
<title>%[3]s</title>
<style>%[4]s</style>
<text x="8" y="16">%[3]s</text>
`, width, height, html.EscapeString(title), lineStyle)
	for i, p := range panels {
		s.WriteString(p.draw(float64(panelHead + i*panelPitch)))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// draw is one panel, whose upper end is at y.
func (p panel) draw(y float64) string {
	var right, high float64
	for _, l := range p.lines {
		for _, at := range l.points {
			right, high = max(right, at.x), max(high, at.y)
		}
	}
	top, bottom := y+24, y+24+panelHeight
	var s strings.Builder
	fmt.Fprintf(&s, `<text x="%d" y="%g">%s</text>
<path class="a" d="M%[1]d %[4]gV%[5]gH%[6]d"/>
`, panelLeft, y+14, html.EscapeString(p.title), top, bottom, panelLeft+panelWidth)
	text := func(x, y float64, anchor, class, what string) {
		fmt.Fprintf(&s, `<text class="%s" x="%g" y="%g" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(what))
	}
	text(panelLeft-6, bottom+4, "end", "s", "0")
	text(panelLeft-6, top+8, "end", "s", p.y(high))
	text(panelLeft+panelWidth, bottom+16, "end", "s", p.x(right)+" "+p.xName)
	for i, l := range p.lines {
		var points []string
		for _, at := range l.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", panelLeft+share(at.x, right)*panelWidth, bottom-share(at.y, high)*panelHeight))
		}
		fmt.Fprintf(&s, `<polyline class="l l%d" points="%s"/>`+"\n", i%4, strings.Join(points, " "))
		text(panelLeft+panelWidth+8, top+12+float64(i)*16, "start", fmt.Sprintf("n%d", i%4), l.name)
	}
	return s.String()
}

// share is how much of the whole a part is.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
