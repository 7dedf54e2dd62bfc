package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write writes files, named by their paths, into a folder of their own, and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shouter returns a module that calls strings.ToUpper.
func shouter(t *testing.T) string {
	return write(t, map[string]string{
		"go.mod":  "module example.com/shouter\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport \"strings\"\n\nfunc main() { println(strings.ToUpper(\"x\")) }\n",
	})
}

// database returns the URL of a database in which all versions of a function of package strings have a hole.
func database(t *testing.T, function string) string {
	const id, modified = "GO-0000-0001", "2026-01-01T00:00:00Z"
	return "file://" + write(t, map[string]string{
		"index/db.json":      `{"modified":"` + modified + `"}`,
		"index/modules.json": `[{"path":"stdlib","vulns":[{"id":"` + id + `","modified":"` + modified + `"}]}]`,
		"index/vulns.json":   `[{"id":"` + id + `","modified":"` + modified + `"}]`,
		"ID/" + id + ".json": `{"schema_version":"1.3.1","id":"` + id + `","modified":"` + modified + `",
			"details":"A hole for this test.","affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
			"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
			"ecosystem_specific":{"imports":[{"path":"strings","symbols":["` + function + `"]}]}}],
			"database_specific":{"url":"https://example.com/` + id + `"}}`,
	})
}

func TestFindings(t *testing.T) {
	for name, test := range map[string]struct {
		function string
		code     int
	}{
		"called":     {"ToUpper", 3},
		"not called": {"ToTitle", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := run(t.Context(), []string{"-db", database(t, test.function), shouter(t)}, &out, &out)
			if code != test.code {
				t.Errorf("exit code %d, want %d:\n%s", code, test.code, out.String())
			}
			if test.code != 0 && !strings.Contains(out.String(), "GO-0000-0001") {
				t.Errorf("the finding is not named:\n%s", out.String())
			}
		})
	}
}

// TestNoDatabase: a database that is away, or a proxy that does not let it through, fails only where it is required.
func TestNoDatabase(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, db := range []string{refusing.URL, gone.URL} {
		for required, want := range map[string]int{"-required=false": 0, "-required": 1} {
			var out, errout bytes.Buffer
			if code := run(t.Context(), []string{"-db", db, required, shouter(t)}, &out, &errout); code != want {
				t.Errorf("%s: exit code %d, want %d", required, code, want)
			}
			if !strings.Contains(errout.String(), "NOTHING WAS LOOKED FOR") {
				t.Errorf("%s: it only says %q", required, errout.String())
			}
		}
	}
}

// TestCannotSearch: an error that keeps it from searching, with a database there, is no success.
func TestCannotSearch(t *testing.T) {
	empty := write(t, nil)
	for name, args := range map[string][]string{
		"no module":    {"-db", database(t, "ToUpper"), empty},
		"no database":  {"-db", "file://" + filepath.Join(empty, "none"), shouter(t)},
		"no directory": {},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), args, &out, &out); code == 0 || code == 3 {
			t.Errorf("%s: exit code %d:\n%s", name, code, out.String())
		}
	}
}
