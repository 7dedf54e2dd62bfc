package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// assets is the environment variable that names a folder of programs, as every
// user of envtest knows it.
const assets = "KUBEBUILDER_ASSETS"

// versionArgs are the arguments by which each program that such a folder may
// hold prints its version.
var versionArgs = map[string][]string{
	Etcd:      {"--version"},
	APIServer: {"--version"},
	Kubectl:   {"version", "--client"},
}

// given returns the paths of those of the named programs that KUBEBUILDER_ASSETS
// gives: none where it is not set.
func (m module) given(ctx context.Context, names []string) (Paths, error) {
	dir, isSet := os.LookupEnv(assets)
	if !isSet {
		return Paths{}, nil
	}
	paths, err := m.inFolder(ctx, dir, names)
	if err != nil {
		const remedy = `set it to the folder that "setup-envtest use -p path %s.x" prints, ` +
			"or unset it to have the programs built"
		return nil, fmt.Errorf("%s: %w: "+remedy, assets, err, m.minor())
	}
	return paths, nil
}

// inFolder returns the paths of those of the named programs that the folder of
// assets has to hold, and of kubectl if it is there. They start, and are of the
// module's minor version.
func (m module) inFolder(ctx context.Context, dir string, names []string) (Paths, error) {
	if !filepath.IsAbs(dir) { // tests run in folders of their own
		return nil, fmt.Errorf("%q is no absolute path", dir)
	}
	paths := Paths{}
	for _, name := range names {
		args, isAsset := versionArgs[name]
		file := filepath.Join(dir, name)
		_, missing := os.Stat(file)
		if !isAsset || name == Kubectl && missing != nil {
			continue
		}
		if missing != nil {
			return nil, fmt.Errorf("%s has no %s", dir, name)
		}
		out, err := exec.CommandContext(ctx, file, args...).CombinedOutput()
		version, _, _ := strings.Cut(string(out), "\n")
		if err != nil {
			return nil, fmt.Errorf("%s does not start (%w), and prints %q", file, err, version)
		}
		if name != Etcd && !strings.Contains(string(out), " v"+m.minor()+".") {
			return nil, fmt.Errorf("%s is %q, not of Kubernetes %s", file, version, m.minor())
		}
		paths[name] = file
	}
	return paths, nil
}
