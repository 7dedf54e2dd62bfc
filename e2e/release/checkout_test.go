package release

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// thorough is what CI asks for.
var thorough = flag.Bool("thorough", false, "fail where the image cannot be tested, and compile it without the build cache")

// repository is where this package is.
const repository = "../.."

// version and epoch are what the programs here are stamped with.
const (
	version = "v1.2.3"
	epoch   = "1700000000"
)

// checkout is a copy of the repository without history, and without what was built.
type checkout struct {
	*testing.T
	dir string
}

// checkOut copies the repository to a folder of that name. The tool bin/helm, which takes minutes to build, goes with it.
func checkOut(t *testing.T, name string) checkout {
	t.Helper()
	c := checkout{T: t, dir: filepath.Join(t.TempDir(), name)}
	if err := os.MkdirAll(filepath.Join(c.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(repository)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-a"} // with the times, by which make tells that helm is built
	for _, entry := range entries {
		if !slices.Contains([]string{".git", "bin", "dist"}, entry.Name()) {
			args = append(args, filepath.Join(repository, entry.Name()))
		}
	}
	c.command("cp", append(args, c.dir)...)
	c.command("cp", "-a", filepath.Join(repository, "bin/helm"), filepath.Join(c.dir, "bin"))
	return c
}

// command runs a command where the test runs and returns what it prints to stdout.
func (c checkout) command(name string, args ...string) string {
	c.Helper()
	return output(c.T, exec.CommandContext(c.Context(), name, args...))
}

// make runs make in the copy.
func (c checkout) make(args ...string) {
	c.Helper()
	args = append(args, "VERSION="+version, "SOURCE_DATE_EPOCH="+epoch)
	cmd := exec.CommandContext(c.Context(), "make", args...)
	cmd.Dir = c.dir
	output(c.T, cmd)
}

// read returns the content of a file of the copy.
func (c checkout) read(path ...string) []byte {
	c.Helper()
	content, err := os.ReadFile(filepath.Join(c.dir, filepath.Join(path...)))
	if err != nil {
		c.Fatal(err)
	}
	return content
}

// output runs a command and returns what it prints to stdout. The test fails if the command does.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}
