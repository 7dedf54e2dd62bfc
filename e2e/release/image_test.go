package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestDockerfileTakesTheGoOfTheModule compares the version of Go in the Dockerfile with that in go.mod.
// TestImageHasTheProgramsAlone builds on another image of Go.
func TestDockerfileTakesTheGoOfTheModule(t *testing.T) {
	read := checkout{t, repository}.read
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(read("go.mod"))
	if want := "ARG GO_IMAGE=golang:" + string(minor[1]) + "\n"; !bytes.Contains(read("Dockerfile"), []byte(want)) {
		t.Errorf("it does not have %q", want)
	}
}

// TestImageHasTheProgramsAlone builds the image by its Dockerfile, twice, and around programs that were compiled
// before, and runs what is in it.
func TestImageHasTheProgramsAlone(t *testing.T) {
	b := newBuilder(t)
	b.standIn()
	cache := b.command("go", "env", "GOCACHE")
	first := cache
	if *thorough {
		first = t.TempDir()
	}
	whole := b.image("image", runtime.GOARCH, b.tools(first)...)
	prebuilt := b.image("image-prebuilt", runtime.GOARCH)
	expectConfig(t, whole.config, runtime.GOARCH)
	expectPrograms(b, whole, runtime.GOARCH)
	if again := b.image("image", runtime.GOARCH, b.tools(cache)...); again.digest != whole.digest {
		t.Errorf("the digest is %s, and then %s", whole.digest, again.digest)
	}
	if !reflect.DeepEqual(prebuilt.config.Config, whole.config.Config) ||
		!reflect.DeepEqual(prebuilt.config.RootFS, whole.config.RootFS) {
		t.Errorf("prebuilt: %+v, and by the whole Dockerfile %+v", prebuilt.config, whole.config)
	}
	for _, arch := range architectures() {
		if arch != runtime.GOARCH {
			b.make("dist/mirror-controller-linux-"+arch, "dist/kubectl-mirror-linux-"+arch)
			foreign := b.image("image", arch, b.tools(cache)...)
			expectConfig(t, foreign.config, arch)
			expectPrograms(b, foreign, arch)
		}
	}
}

// builder is a copy of the repository, and buildah with a store of its own.
type builder struct{ checkout }

// newBuilder skips the test where it cannot run. With -required that fails.
func newBuilder(t *testing.T) builder {
	t.Helper()
	if _, err := exec.LookPath("buildah"); (err != nil || os.Getuid() != 0) && !*required {
		t.Skipf("the image is not tested: that takes root, and buildah (%v)", err)
	}
	b := builder{checkOut(t, "image")}
	store := t.TempDir()
	conf := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", store+"/graph", store+"/run")
	if err := os.WriteFile(store+"/storage.conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	// Chroot and plain folders work where the test runs in a container itself.
	t.Setenv("CONTAINERS_STORAGE_CONF", store+"/storage.conf")
	t.Setenv("STORAGE_DRIVER", "vfs")
	t.Setenv("BUILDAH_ISOLATION", "chroot")
	return b
}

// goImage is the name of the image that stands in for that of Go.
const goImage = "localhost/go-of-this-machine"

// standIn makes that image: the environment of the go command here, because its files come with the arguments of tools.
func (b builder) standIn() {
	b.Helper()
	b.command("sh", "-ec", `{
	echo "FROM scratch"
	echo "COPY root /"
	echo "ENV HOME=/root GOCACHE=/gocache PATH=$(go env GOROOT)/bin:/usr/bin"
	for name in GOPROXY GOSUMDB GOTOOLCHAIN GOMODCACHE; do echo "ENV $name=\"$(go env $name)\""; done
} >"$1/Dockerfile"
cd "$1"
mkdir -p root/usr root/etc root/root
mkdir -m 1777 root/tmp
for link in bin lib lib64; do ln -s usr/$link root/$link; done
buildah build --tag `+goImage+" .", "sh", b.TempDir())
}

// env returns a variable of the go command.
func (b builder) env(name string) string {
	b.Helper()
	return strings.TrimSpace(b.command("go", "env", name))
}

// tools are the arguments for make to build on that image, with make and go of this machine, and with this build cache.
func (b builder) tools(cache string) []string {
	b.Helper()
	volumes := ""
	for from, to := range map[string]string{
		"/usr": "/usr:ro", "/etc/ssl": "/etc/ssl:ro", b.env("GOROOT"): b.env("GOROOT") + ":ro",
		b.env("GOMODCACHE"): b.env("GOMODCACHE"), strings.TrimSpace(cache): "/gocache",
	} {
		volumes += " --volume " + from + ":" + to
	}
	return []string{"GO_IMAGE=" + goImage, "IMAGE_ARGS=" + volumes}
}

// image is what is in an image.
type image struct {
	digest string
	config config
	root   string // the folder with its files
}

// config is the configuration of an image, as the OCI image specification has it.
type config struct {
	OS, Architecture, Created string
	Config                    map[string]any // what a container begins with
	RootFS                    any
}

// image builds the image by that target of the Makefile, and returns what is in it.
func (b builder) image(target, arch string, args ...string) image {
	b.Helper()
	name := "localhost/tested:" + target
	b.make(append(args, target, "BUILDER=buildah", "IMAGE="+name, "ARCH="+arch)...)
	var inspected struct {
		FromImageDigest string
		OCIv1           config
	}
	if err := json.Unmarshal([]byte(b.command("buildah", "inspect", "--type=image", name)), &inspected); err != nil {
		b.Fatal(err)
	}
	delete(inspected.OCIv1.Config["Labels"].(map[string]any), "io.buildah.version") // which buildah adds by itself
	container := strings.TrimSpace(b.command("buildah", "from", "--arch="+arch, name))
	return image{inspected.FromImageDigest, inspected.OCIv1, strings.TrimSpace(b.command("buildah", "mount", container))}
}

// expectConfig: the image runs the program, not as root, and has nothing of a shell.
func expectConfig(t *testing.T, got config, arch string) {
	t.Helper()
	description := got.Config["Labels"].(map[string]any)["org.opencontainers.image.description"]
	want := map[string]any{
		"User": "65532:65532",
		// Of the builders: all have it.
		"Env":        []any{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		"Entrypoint": []any{"/mirror-controller"},
		"Labels": map[string]any{
			"org.opencontainers.image.title":       "mirror-controller",
			"org.opencontainers.image.description": description,
			"org.opencontainers.image.version":     version,
			"org.opencontainers.image.revision":    "unknown", // there is no history in a copy
		},
	}
	if !reflect.DeepEqual(got.Config, want) || description == "" {
		t.Errorf("the config is\n%+v\nwant\n%+v", got.Config, want)
	}
	if got.OS != "linux" || got.Architecture != arch || got.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("it is for %s/%s, of %s", got.OS, got.Architecture, got.Created)
	}
}

// expectPrograms: in the image are the two programs, which anyone may run and nobody but root may change, and no other
// file.
func expectPrograms(b builder, i image, arch string) {
	b.Helper()
	entries, err := os.ReadDir(i.root)
	if err != nil || len(entries) != 2 {
		b.Fatalf("it has the files %v, want two programs (%v)", entries, err)
	}
	for _, name := range []string{plugin, "mirror-controller"} {
		info, err1 := os.Stat(filepath.Join(i.root, name))
		content, err2 := os.ReadFile(filepath.Join(i.root, name))
		if err := errors.Join(err1, err2); err != nil {
			b.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); info.Mode() != 0o755 || owner.Uid != 0 || owner.Gid != 0 {
			b.Errorf("%s has the mode %o and belongs to %d:%d", name, info.Mode(), owner.Uid, owner.Gid)
		}
		if !bytes.Equal(content, b.read("dist", name+"-linux-"+arch)) {
			b.Errorf("%s is not the one that make builds outside", name)
		}
	}
}
