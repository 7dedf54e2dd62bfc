// Package programs finds etcd and Kubernetes, or builds them from Go modules, and compiles with a look at how far it
// is. It needs the standard library and one small package: what says how far compilers are must not take them minutes.
package programs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// The programs of a cluster, by the names they are built under.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
	Kubectl   = "kubectl"
	Scheduler = "kube-scheduler"
	Kubelet   = "kubelet"

	// KubeControllerManager takes 363 packages beyond those of the API server.
	KubeControllerManager = "kube-controller-manager"
	// ControllerManager is a program of ours with the controllers that tests
	// notice, which takes 11. It calls functions that change with each version,
	// so that the newest version alone has it: in its place, others have
	// KubeControllerManager.
	ControllerManager = "controller-manager"
)

// ControlPlane names the programs that every cluster runs. The others take minutes more, and few need them: kubectl,
// and what a node takes.
var ControlPlane = []string{Etcd, APIServer, ControllerManager}

// Compilers that write no data for debuggers, which the linker would strip, take a twelfth less CPU time, and a sixth
// less if they inline nothing. Packages that the controller shares are compiled as for the controller, and so only
// once.
var (
	cheap   = []string{"all=-dwarf=false", "k8s.io/kubernetes/...=-dwarf=false -l", "go.etcd.io/etcd/...=-dwarf=false -l"}
	inlined = []string{"all=-dwarf=false"}
)

// Paths are the paths of programs, by their names.
type Paths map[string]string

// Folders returns the folders of the programs, as PATH has them.
func (p Paths) Folders() string {
	var all []string
	for _, file := range p {
		all = append(all, filepath.Dir(file))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ":")
}

// Build returns the paths of the named programs, and without a name of those that Start needs: of the minor version,
// such as 1.37, that the environment variable KUBERNETES names, and without it of the newest in e2e/kubernetes.
//
// etcd and kube-apiserver, and kubectl if it is there, come from the folder that KUBEBUILDER_ASSETS names. All others
// are built into a folder for each set of versions in the user's cache folder. The first time takes minutes, and
// standard error shows it; after that it takes a moment and says nothing. Processes that call it at the same time build
// once: the others wait.
func Build(ctx context.Context, names ...string) (Paths, error) { return build(ctx, false, names) }

// BuildInlined is Build for measurements: the compilers inline, as for what is released, the folder is another one, and
// kube-controller-manager is the real one.
func BuildInlined(ctx context.Context, names ...string) (Paths, error) {
	return build(ctx, true, names)
}

func build(ctx context.Context, measured bool, names []string) (Paths, error) {
	if len(names) == 0 {
		names = ControlPlane
	}
	m, err := findModule(os.Getenv("KUBERNETES"))
	if err != nil {
		return nil, err
	}
	paths, err := m.given(ctx, names)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache folder for the control plane: %w", err)
	}
	flags := cheap
	if measured {
		flags = inlined
	}
	dir := filepath.Join(cache, "mirror-controller", m.key(flags))
	var built []string
	for _, name := range names {
		if paths[name] != "" {
			continue
		}
		program := m.program(name, measured)
		built = append(built, program)
		paths[name] = filepath.Join(dir, program)
	}
	if len(missing(dir, built)) == 0 {
		return paths, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	return paths, m.build(ctx, dir, flags, missing(dir, built))
}

// missing returns those of the named programs that are not in dir. An empty file is what a machine leaves that has
// lost its power: it is no program.
func missing(dir string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Size() > 0
	})
}

// module is a pinned set of control plane sources: a folder with a go.mod of its own.
type module struct {
	dir              string
	content          []byte // of its files
	kubernetes, etcd string // versions, with the v, as in v1.37.1
	hasManager       bool   // it has a ControllerManager
}

// minor returns the minor version of Kubernetes, such as 1.37.
func (m module) minor() string {
	version := strings.TrimPrefix(m.kubernetes, "v")
	return version[:strings.LastIndex(version, ".")]
}

// pinned finds the versions in a go.mod.
var pinned = regexp.MustCompile(`(?ms)^\tgo\.etcd\.io/etcd/server/v3 (v\S+).*^\tk8s\.io/kubernetes (v\S+)`)

// findModule returns the sources for a minor version such as 1.37, or for the newest where minor is empty. The folder
// e2e/kubernetes is found from the working directory upwards: a program that is built with -trimpath does not know
// where its own source is.
func findModule(minor string) (module, error) {
	wd, err := os.Getwd()
	if err != nil {
		return module{}, err
	}
	wanted := filepath.Join("e2e", "kubernetes", cmp.Or(minor, "*"))
	for dir, last := wd, ""; dir != last; dir, last = filepath.Dir(dir), dir {
		found, _ := filepath.Glob(filepath.Join(dir, wanted, "go.mod"))
		if len(found) == 0 {
			continue
		}
		file := found[len(found)-1]
		mod, err := os.ReadFile(file)
		sum, sumErr := os.ReadFile(strings.TrimSuffix(file, "mod") + "sum")
		manager, managerErr := os.ReadFile(filepath.Join(filepath.Dir(file), ControllerManager, "main.go"))
		versions := pinned.FindSubmatch(mod)
		if err := errors.Join(err, sumErr); err != nil || versions == nil {
			return module{}, fmt.Errorf("%s does not pin etcd and Kubernetes: %w", file, err)
		}
		content := slices.Concat(mod, sum, manager)
		return module{filepath.Dir(file), content, string(versions[2]), string(versions[1]), managerErr == nil}, nil
	}
	return module{}, fmt.Errorf("no folder %s in or above %s: run this inside a clone of the project", wanted, wd)
}

// key names everything that decides what the programs are: versions, compiler, platform, and by their hash the
// compiler's flags and the modules they are built from.
func (m module) key(flags []string) string {
	hash := sha256.Sum256(append([]byte(strings.Join(flags, "\n")), m.content...))
	return fmt.Sprintf("kubernetes-%s-etcd-%s-%s-%s-%s-%x", m.kubernetes, m.etcd,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, hash[:4])
}

// build builds programs, and gives each its name in dir when it is complete, so that nobody ever sees half of it. The
// caller holds the lock.
func (m module) build(ctx context.Context, dir string, flags, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	start := time.Now()
	fmt.Fprintf(os.Stderr, "Building %s of Kubernetes %s from Go modules into the cache folder; later runs build "+
		"nothing. With empty caches a control plane takes a download and about eight minutes of CPU: 5 minutes on two idle "+
		"cores, up to 20 on a busy machine. README.md shows how to download etcd and kube-apiserver instead.\n",
		strings.Join(missing, ", "), m.kubernetes)
	args := []string{"-trimpath", "-buildvcs=false"}
	for _, f := range flags {
		args = append(args, "-gcflags="+f)
	}
	var packages []string
	for _, name := range missing {
		packages = append(packages, packageOf(name))
	}
	if err := Compile(ctx, m.dir, slices.Concat(args, packages)...); err != nil {
		return err
	}
	for i, name := range missing {
		fmt.Fprintf(os.Stderr, "Linking %s\n", name)
		file := filepath.Join(dir, name)
		link := slices.Concat([]string{"build", "-ldflags", m.ldflags(), "-o", file + ".new"}, args, packages[i:i+1])
		if err := goCommand(ctx, m.dir, link...).Run(); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "Built in %s.\n", time.Since(start).Round(time.Second))
	return nil
}

// program returns the program that is built under a name.
func (m module) program(name string, measured bool) string {
	if name == ControllerManager && (measured || !m.hasManager) {
		return KubeControllerManager
	}
	return name
}

func packageOf(name string) string {
	switch name {
	case Etcd:
		return "go.etcd.io/etcd/server/v3"
	case ControllerManager:
		return "./" + name
	default:
		return "k8s.io/kubernetes/cmd/" + name
	}
}

// ldflags stamps the version: without it the programs call themselves v0.0.0-master.
func (m module) ldflags() string {
	n := strings.Split(strings.TrimPrefix(m.kubernetes, "v"), ".")
	const version = " -X k8s.io/component-base/version."
	return "-s -w" + version + "gitVersion=" + m.kubernetes + version + "gitMajor=" + n[0] + version + "gitMinor=" + n[1]
}

// lock takes the exclusive lock on a file, which the kernel gives back when this
// process ends, however it does. The file stays: removing it would let two others
// lock two files of one name. If ctx ends first, the process is about to end, too.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	type answer struct {
		unlock func()
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		unlock, err := lockedfile.MutexAt(file).Lock()
		answers <- answer{unlock, err}
	}()
	waits := time.After(time.Second) // longer than it takes when nobody has it
	for {
		select {
		case a := <-answers:
			return a.unlock, a.err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-waits:
			fmt.Fprintln(os.Stderr, "Waiting for another process, which is building the control plane")
		}
	}
}
