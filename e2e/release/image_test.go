package release

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDockerfile: go.mod and the Makefile say what to build with, and no file names a registry.
func TestDockerfile(t *testing.T) {
	dockerfile, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	minor := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	if want := "ARG GO_IMAGE=golang:" + string(minor[1]) + "\n"; !bytes.Contains(dockerfile, []byte(want)) {
		t.Errorf("it does not have %q, as go.mod would have it", want)
	}
	if bytes.Contains(dockerfile, []byte("go build")) {
		t.Error("it has flags of its own for the compiler, and those of the Makefile count")
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		if !map[string]bool{"scratch": true, "base": true, "${GO_IMAGE}": true}[from[1]] {
			t.Errorf("a stage is built on %s", from[1])
		}
	}
}

// TestImage builds the image by its Dockerfile, twice, and around programs that were compiled before, and runs what is in it.
func TestImage(t *testing.T) {
	b := newBuilder(t)
	b.standIn()
	cache := b.command("go", "env", "GOCACHE")
	first := cache
	if *thorough {
		first = t.TempDir()
	}
	whole := b.image("image", runtime.GOARCH, b.tools(first)...)
	prebuilt := b.image("image-prebuilt", runtime.GOARCH)
	t.Run("config", func(t *testing.T) { expectConfig(t, whole.config) })
	t.Run("files", func(t *testing.T) {
		expectPrograms(t, whole, func(name string) []byte { return b.read("dist", name+"-linux-"+runtime.GOARCH) })
	})
	t.Run("twice the same", func(t *testing.T) {
		if again := b.with(t).image("image", runtime.GOARCH, b.tools(cache)...); again.digest != whole.digest {
			t.Errorf("the digest is %s, and then %s", whole.digest, again.digest)
		}
	})
	t.Run("prebuilt is the same", func(t *testing.T) {
		if !reflect.DeepEqual(prebuilt.config.Config, whole.config.Config) ||
			!reflect.DeepEqual(prebuilt.config.RootFS, whole.config.RootFS) {
			t.Errorf("%+v, and by the whole Dockerfile %+v", prebuilt.config, whole.config)
		}
	})
	t.Run("other architecture", func(t *testing.T) {
		for _, target := range []string{"image", "image-prebuilt"} {
			expectArchitecture(t, b.with(t).image(target, "arm64", b.tools(cache)...), "arm64")
		}
	})
}

// builder is a copy of the repository, and buildah with a store of its own.
type builder struct{ checkout }

// newBuilder skips the test where it cannot run. In CI that fails.
func newBuilder(t *testing.T) builder {
	t.Helper()
	skip := t.Skip
	if *thorough {
		skip = t.Fatal
	}
	if _, err := exec.LookPath("buildah"); err != nil {
		skip("the image is not tested: buildah is not here")
	}
	if os.Getuid() != 0 {
		skip("the image is not tested: that takes root")
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

// with returns b for a part of its test.
func (b builder) with(t *testing.T) builder { return builder{b.checkout.with(t)} }

// goImage is the name of the image that stands in for that of Go.
const goImage = "localhost/go-of-this-machine"

// standIn makes that image: the environment of the go command here, because its files come with the arguments of tools.
func (b builder) standIn() {
	b.Helper()
	dir := b.TempDir()
	for _, folder := range []string{"usr", "etc", "root", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, "root", folder), 0o777); err != nil {
			b.Fatal(err)
		}
	}
	for _, link := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+link, filepath.Join(dir, "root", link)); err != nil {
			b.Fatal(err)
		}
	}
	dockerfile := "FROM scratch\nCOPY root /\nENV HOME=/root GOCACHE=/gocache PATH=" + b.env("GOROOT") + "/bin:/usr/bin\n"
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GOTOOLCHAIN", "GOMODCACHE"} {
		dockerfile += fmt.Sprintf("ENV %s=%q\n", name, b.env(name))
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(dockerfile), 0o600); err != nil {
		b.Fatal(err)
	}
	b.command("buildah", "build", "--tag", goImage, dir)
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
	Config                    imageConfig
	RootFS                    struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// imageConfig is what a container begins with.
type imageConfig struct {
	User, WorkingDir, StopSignal string
	Env, Entrypoint, Cmd, Shell  []string
	Labels                       map[string]string
	ExposedPorts, Volumes        map[string]struct{}
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
	delete(inspected.OCIv1.Config.Labels, "io.buildah.version") // which buildah adds by itself
	container := strings.TrimSpace(b.command("buildah", "from", "--arch="+arch, name))
	return image{inspected.FromImageDigest, inspected.OCIv1, strings.TrimSpace(b.command("buildah", "mount", container))}
}

// expectConfig: the image runs the program, not as root, and has nothing of a shell.
func expectConfig(t *testing.T, got config) {
	want := imageConfig{
		User:       "65532:65532",
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, // of the builders, all have it
		Entrypoint: []string{"/mirror-controller"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "mirror-controller",
			"org.opencontainers.image.description": got.Config.Labels["org.opencontainers.image.description"],
			"org.opencontainers.image.version":     version,
			"org.opencontainers.image.revision":    "unknown", // there is no history in a copy
		},
	}
	if !reflect.DeepEqual(got.Config, want) {
		t.Errorf("the config is\n%+v\nwant\n%+v", got.Config, want)
	}
	if got.Config.Labels["org.opencontainers.image.description"] == "" {
		t.Error("it has no description")
	}
	if got.OS != "linux" || got.Architecture != runtime.GOARCH || got.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("it is for %s/%s, of %s", got.OS, got.Architecture, got.Created)
	}
}

// commands are the programs in the image.
var commands = []string{plugin, "mirror-controller"}

// expectPrograms: in the image are the two programs, which anyone may run and nobody but root may change, and no other file.
func expectPrograms(t *testing.T, i image, program func(name string) []byte) {
	entries, err := os.ReadDir(i.root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, commands) {
		t.Fatalf("it has the files %v, want %v", names, commands)
	}
	for _, name := range commands {
		info, err := os.Stat(filepath.Join(i.root, name))
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); info.Mode() != 0o755 || owner.Uid != 0 || owner.Gid != 0 {
			t.Errorf("%s has the mode %o and belongs to %d:%d", name, info.Mode(), owner.Uid, owner.Gid)
		}
		if content, err := os.ReadFile(filepath.Join(i.root, name)); err != nil || !bytes.Equal(content, program(name)) {
			t.Errorf("%s is not the one that make builds outside (%v)", name, err)
		}
	}
}

func expectArchitecture(t *testing.T, i image, arch string) {
	t.Helper()
	if i.config.Architecture != arch {
		t.Errorf("the image is for %s, want %s", i.config.Architecture, arch)
	}
	for _, name := range commands {
		info, err := buildinfo.ReadFile(filepath.Join(i.root, name))
		if err != nil {
			t.Fatal(err)
		}
		expectBuiltFor(t, info, "linux", arch)
	}
}
