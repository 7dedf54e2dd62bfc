package release

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

var (
	required = flag.Bool("required", false, "fail where the image cannot be tested")
	thorough = flag.Bool("thorough", false, "test all architectures, and compile the image without the build cache")
)

// architectures returns those whose programs are released. Each but that of this machine takes minutes to compile for.
func architectures() []string {
	if *thorough {
		return []string{"amd64", "arm64"}
	}
	return []string{runtime.GOARCH}
}

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

// checkOut copies the repository to a folder of that name. Tools that take minutes to build go with it, and all times,
// by which make tells that they are built.
func checkOut(t *testing.T, name string) checkout {
	t.Helper()
	c := checkout{T: t, dir: filepath.Join(t.TempDir(), name)}
	c.command("sh", "-ec", `mkdir -p "$2/bin"
tar -C "$1" --exclude=./.git --exclude=./bin --exclude=./dist -cf - . | tar -C "$2" -xpf -
cp -p "$1/bin/helm" "$1/bin/cyclonedx-gomod" "$2/bin"`, "sh", repository, c.dir)
	return c
}

// command runs a command where the test runs, and returns what it prints to stdout. The test fails if the command does.
func (c checkout) command(name string, args ...string) string {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}

// make runs make in the copy.
func (c checkout) make(args ...string) {
	c.Helper()
	c.command("make", append(args, "-C", c.dir, "VERSION="+version, "SOURCE_DATE_EPOCH="+epoch)...)
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
