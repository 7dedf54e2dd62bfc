package plantest

import (
	"os"
	"strings"
	"testing"
)

// Golden is a file with the texts of a table's rows, in their order. Each row is
// compared with its own text, so that it can run alone.
type Golden struct {
	File   string
	Begin  string // of the first line of a text, and of no other line in it
	Update bool   // write the file anew

	texts []string
}

// Row fails the test unless the file has the text of a row.
func (g *Golden) Row(t testing.TB, text string) {
	t.Helper()
	g.texts = append(g.texts, text)
	if g.Update {
		return
	}
	title, _, _ := strings.Cut(text, "\n")
	_, want, found := strings.Cut("\n"+g.read(t), "\n"+title+"\n")
	want, _, _ = strings.Cut("\n"+want, "\n"+g.Begin)
	want = strings.TrimSuffix(title+want, "\n") + "\n"
	if !found || text != want {
		t.Errorf("got (go test -update, in this folder, writes it)\n%s\nwant, by %s\n%s", text, g.File, want)
	}
}

// End fails the test if all rows have run, and the file has other texts besides,
// or another order.
func (g *Golden) End(t testing.TB, rows int) {
	t.Helper()
	if len(g.texts) < rows {
		if g.Update {
			t.Errorf("-update writes all of %s: run all rows with it", g.File)
		}
		return
	}
	all := strings.Join(g.texts, "")
	if g.Update {
		if err := os.WriteFile(g.File, []byte(all), 0o644); err != nil {
			t.Error(err)
		}
	} else if !t.Failed() && g.read(t) != all {
		t.Errorf("%s has texts of no row, or another order (go test -update, in this folder, writes it)", g.File)
	}
}

func (g *Golden) read(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(g.File)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
