package checks

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// The part of Mermaid's language that the picture has: nodes with texts, and edges with a label or none.
var (
	node = `(\w+)(?:\["([^"\[\]]+)"\])?`
	edge = regexp.MustCompile(`^  ` + node + ` (-->|-\.-)(?:\|([a-z ]+)\|)? ` + node + `$`)
)

// TestPicture reads the picture of the README: a source, a controller, copies in namespaces with the prefix, and a
// namespace without it that gets none.
func TestPicture(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(manual.Find(t, "README.md", "flowchart").Text), "\n")
	if lines[0] != "flowchart LR" {
		t.Fatalf("the picture begins with %q", lines[0])
	}
	texts, copies, none := map[string]string{}, 0, 0
	for _, line := range lines[1:] {
		parts := edge.FindStringSubmatch(line)
		if parts == nil {
			t.Fatalf("this is no edge: %q", line)
		}
		from, arrow, label, to := parts[1], parts[3], parts[4], parts[5]
		for id, text := range map[string]string{from: parts[2], to: parts[6]} {
			if texts[id] == "" {
				texts[id] = text
			}
		}
		_, prefix, _ := strings.Cut(texts["controller"], "--namespace-prefix=")
		inPrefix := prefix != "" && strings.HasPrefix(texts[to], prefix)
		switch {
		case from == "source" && to == "controller":
		case label == "copy" && arrow == "-->" && from == "controller" && inPrefix:
			copies++
		case label == "no target" && arrow == "-.-" && from == "controller" && !inPrefix:
			none++
		default:
			t.Errorf("this edge does not fit the flag --namespace-prefix=%s: %q", prefix, line)
		}
	}
	if !strings.HasSuffix(texts["source"], "mirror=true") || copies < 2 || none != 1 {
		t.Errorf("got the source %q, %d copies and %d namespaces without", texts["source"], copies, none)
	}
}
