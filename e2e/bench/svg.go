package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Measures of the plot, in pixels.
const (
	plotChar    = 6.4 // about the width of a letter
	plotScale   = 300 // width of a bar that uses all that is allowed
	plotNumbers = 150 // width for the numbers behind the bars
	plotLine    = 20  // height of a row
	plotHead    = 54  // height of what stands above the rows
	plotLongest = 1.5 // share of what is allowed at which a bar is cut off
)

// plotStyle has colours for a light background, and for a dark one.
const plotStyle = `text{font:12px system-ui,sans-serif;fill:#24292f}.s{fill:#57606a}.met{fill:#2da44e}.MISSED{fill:#cf222e}.l{stroke:#24292f}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.met{fill:#3fb950}.MISSED{fill:#f85149}.l{stroke:#e6edf3}}`

// plot draws a bar for each row that has one to meet: how much of what is allowed it uses. Of the rows that are exact it
// draws those that are not met: all others would be of one length. The head says what the run was.
func plot(head string, rows []*row) string {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *row) bool {
		return r.verdict() != missed && (r.verdict() != met || r.exact)
	})
	names := 0.0
	for _, r := range rows {
		names = max(names, math.Ceil(plotChar*float64(len(r.figure))))
	}
	var bars strings.Builder
	for i, r := range rows {
		bars.WriteString(r.draw(names+8, plotHead+float64(i)*plotLine))
	}
	zero, height := names+8, plotHead+float64(len(rows))*plotLine
	full := zero + plotScale
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]g %[2]g" width="%[1]g" height="%[2]g" role="img">
<title>How much of its bar each row uses: %[7]s</title>
<style>%[3]s</style>
<text x="8" y="16">%[7]s</text>
<text x="%[6]g" y="38" text-anchor="middle">0</text>
<text x="%[4]g" y="38" text-anchor="middle">the bar</text>
<line class="l" x1="%[6]g" x2="%[6]g" y1="44" y2="%[2]g"/>
<line class="l" x1="%[4]g" x2="%[4]g" y1="44" y2="%[2]g" stroke-dasharray="3 3"/>
%[5]s</svg>
`, full+plotScale*(plotLongest-1)+plotNumbers, height+8, plotStyle, full, bars.String(), zero, html.EscapeString(head))
}

// draw is the line of one row: its name before x, its bar, and its numbers behind it.
func (r *row) draw(x, y float64) string {
	allowed, numbers := r.allowed(), fmt.Sprintf("%.2f of %.2f", r.ratio(), r.allowed())
	if r.exact {
		allowed, numbers = 1, fmt.Sprintf("%s of %s", r.unit(median(r.ours)), r.unit(median(r.limit)))
	}
	share := min(r.ratio()/allowed, plotLongest)
	return fmt.Sprintf(`<text x="%g" y="%g" text-anchor="end">%s</text><rect class="%s" x="%g" y="%g" width="%.1f" height="12" rx="2"/><text class="s" x="%.1f" y="%g">%s</text>
`, x-8, y+14, html.EscapeString(r.figure), r.verdict(), x, y+4, share*plotScale,
		x+max(share, 1)*plotScale+8, y+14, html.EscapeString(numbers))
}
