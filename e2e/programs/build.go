// Package programs builds etcd and Kubernetes from Go modules, and compiles with a look at how far it is. It needs the
// standard library alone: what says how far compilers are must not take them minutes.
package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The programs of a cluster, by the names they are built under.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kubectl           = "kubectl"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
)

// ControlPlane names the programs that every cluster runs. The others take minutes more, and few need them: kubectl,
// and what a node takes.
var ControlPlane = []string{Etcd, APIServer, ControllerManager}

// Build makes sure that the named programs are built, and without a name those that Start needs: of the minor
// version, such as 1.37, that the environment variable KUBERNETES names, and without it of the newest in
// e2e/kubernetes. It returns the folder they are in, one for each set of versions in the user's cache folder. The
// first time takes minutes, and standard error shows it; after that it takes a moment and says nothing. Processes
// that call it at the same time build once: the others wait.
func Build(ctx context.Context, names ...string) (string, error) { return cheap.build(ctx, names) }

// BuildInlined is Build for measurements: the compilers inline, as for what is released, and the folder is another one.
func BuildInlined(ctx context.Context, names ...string) (string, error) {
	return inlined.build(ctx, names)
}

// gcflags are the compiler's flags, by packages.
type gcflags []string

// Compilers that write no data for debuggers, which the linker would strip, take a twelfth less CPU time, and a sixth
// less if they inline nothing. Packages that the controller shares are compiled as for the controller, and so only
// once.
var (
	cheap   = gcflags{"all=-dwarf=false", "k8s.io/kubernetes/...=-dwarf=false -l", "go.etcd.io/etcd/...=-dwarf=false -l"}
	inlined = gcflags{"all=-dwarf=false"}
)

func (g gcflags) build(ctx context.Context, names []string) (string, error) {
	if len(names) == 0 {
		names = ControlPlane
	}
	m, err := findModule(os.Getenv("KUBERNETES"))
	if err != nil {
		return "", err
	}
	key, err := m.key(g)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder for the control plane: %w", err)
	}
	dir := filepath.Join(cache, "mirror-controller", key)
	if len(missing(dir, names)) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	return dir, m.build(ctx, dir, g, missing(dir, names))
}

// key names everything that decides what the programs are: versions, compiler, platform, and by their
// hash the compiler's flags and the modules they are built from.
func (m module) key(g gcflags) (string, error) {
	hash := sha256.New()
	hash.Write([]byte(strings.Join(g, "\n")))
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			return "", err
		}
		hash.Write(content)
	}
	return fmt.Sprintf("kubernetes-%s-etcd-%s-%s-%s-%s-%x", m.kubernetes, m.etcd,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, hash.Sum(nil)[:4]), nil
}

// missing returns those of the named programs that are not in dir. An empty file is what a machine leaves that has
// lost its power: it is no program.
func missing(dir string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Size() > 0
	})
}

// build builds programs in a folder beside dir, and moves each into dir when it is complete, so that nobody
// ever sees half of it. The caller holds the lock: folders of builds that were broken off are nobody's, and
// are removed.
func (m module) build(ctx context.Context, dir string, g gcflags, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	left, _ := filepath.Glob(dir + ".building-*")
	for _, folder := range left {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".building-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	start := time.Now()
	fmt.Fprintf(os.Stderr, "Building %s of Kubernetes %s from Go modules into the cache folder; later runs build "+
		"nothing. With empty caches a control plane takes a download and about eight minutes of CPU: 5 minutes on two idle "+
		"cores, up to 20 on a busy machine.\n", strings.Join(missing, ", "), m.kubernetes)
	args := []string{"-trimpath", "-buildvcs=false"}
	for _, flags := range g {
		args = append(args, "-gcflags="+flags)
	}
	var packages []string
	for _, name := range missing {
		packages = append(packages, packageOf(name))
	}
	if err := Compile(ctx, os.Stderr, m.dir, slices.Concat(args, packages)...); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range missing {
		fmt.Fprintf(os.Stderr, "Linking %s\n", name)
		file := filepath.Join(tmp, name)
		link := slices.Concat([]string{"build", "-ldflags", m.ldflags(), "-o", file}, args, []string{packageOf(name)})
		if _, err := goCommand(ctx, m.dir, func(string) {}, link...); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		if err := os.Rename(file, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "Built in %s.\n", time.Since(start).Round(time.Second))
	return nil
}

func packageOf(name string) string {
	if name == Etcd {
		return "go.etcd.io/etcd/server/v3"
	}
	return "k8s.io/kubernetes/cmd/" + name
}

// ldflags stamps the version: without it the programs call themselves v0.0.0-master.
func (m module) ldflags() string {
	n := strings.Split(strings.TrimPrefix(m.kubernetes, "v"), ".")
	const version = " -X k8s.io/component-base/version."
	return "-s -w" + version + "gitVersion=" + m.kubernetes + version + "gitMajor=" + n[0] + version + "gitMinor=" + n[1]
}

// lock takes the exclusive lock on a file, which the kernel gives back when this process ends, however it does. The
// file stays: removing it would let two others lock two files of one name.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file, err), f.Close())
		case !told:
			fmt.Fprintln(os.Stderr, "Waiting for another process, which is building the control plane.")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
