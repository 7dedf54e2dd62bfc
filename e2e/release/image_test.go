package release

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
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
	t.Run("runs", func(t *testing.T) { expectRuns(t, whole) })
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

// image builds the image by that target of the Makefile and reads it.
func (b builder) image(target, arch string, args ...string) image {
	b.Helper()
	b.make(append(args, target, "BUILDER=buildah", "IMAGE=localhost/tested:"+target, "ARCH="+arch)...)
	layout := b.TempDir()
	b.command("buildah", "push", "--quiet", "localhost/tested:"+target, "oci:"+layout)
	return readImage(b.T, layout)
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
	if names := slices.Sorted(maps.Keys(i.files)); !slices.Equal(names, commands) {
		t.Errorf("it has the files %v, want %v", names, commands)
	}
	for _, name := range commands {
		got := i.files[name]
		if got.mode != 0o755 || got.uid != 0 || got.gid != 0 {
			t.Errorf("%s has the mode %o and belongs to %d:%d", name, got.mode, got.uid, got.gid)
		}
		if !bytes.Equal(got.content, program(name)) {
			t.Errorf("%s is not the one that make builds outside", name)
		}
	}
}

func expectArchitecture(t *testing.T, i image, arch string) {
	t.Helper()
	if i.config.Architecture != arch {
		t.Errorf("the image is for %s, want %s", i.config.Architecture, arch)
	}
	for _, name := range commands {
		file, err := elf.NewFile(bytes.NewReader(i.files[name].content))
		if err != nil {
			t.Fatal(err)
		}
		if file.Machine != machine(arch) {
			t.Errorf("%s is for %s, want %s", name, file.Machine, machine(arch))
		}
	}
}

// expectRuns runs the image as its config says, and the other program as the chart does, with a root that cannot be written.
func expectRuns(t *testing.T, i image) {
	root := t.TempDir()
	for name, f := range i.files {
		if err := os.WriteFile(filepath.Join(root, name), f.content, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	var uid, gid uint32
	if _, err := fmt.Sscanf(i.config.Config.User, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{i.config.Config.Entrypoint[0], "/" + plugin} {
		cmd := exec.CommandContext(t.Context(), program, "--version")
		cmd.Env, cmd.Dir = i.config.Config.Env, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		out, err := withReadOnly(root, cmd)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !strings.HasPrefix(string(out), program[1:]+" "+version+" ") {
			t.Errorf("%s says %q", program, out)
		}
	}
}

// withReadOnly runs a command where dir, for it alone, cannot be written, and returns what it prints.
func withReadOnly(dir string, cmd *exec.Cmd) (out []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked, so that the thread ends with its mounts
		for _, step := range []func() error{
			func() error { return syscall.Unshare(syscall.CLONE_NEWNS) },
			func() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") },
			func() error { return syscall.Mount(dir, dir, "", syscall.MS_BIND, "") },
			func() error {
				return syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
			},
		} {
			if err = step(); err != nil {
				return
			}
		}
		if err = os.WriteFile(filepath.Join(dir, "written"), nil, 0o600); err == nil {
			err = fmt.Errorf("%s can be written", dir)
			return
		}
		out, err = cmd.CombinedOutput()
	}()
	<-done
	return out, err
}
