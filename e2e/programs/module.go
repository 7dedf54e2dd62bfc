package programs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// module is a pinned set of control plane sources: a folder with a go.mod of its own.
type module struct {
	dir        string
	kubernetes string // with the v, as in v1.37.1
	etcd       string
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
	wanted := filepath.Join("e2e", "kubernetes", cmp.Or(minor, "*"), "go.mod")
	for dir, last := wd, ""; dir != last; dir, last = filepath.Dir(dir), dir {
		found, _ := filepath.Glob(filepath.Join(dir, wanted))
		if len(found) == 0 {
			continue
		}
		file := found[len(found)-1]
		content, err := os.ReadFile(file)
		versions := pinned.FindSubmatch(content)
		if versions == nil {
			return module{}, fmt.Errorf("%s does not pin etcd and Kubernetes: %w", file, err)
		}
		return module{filepath.Dir(file), string(versions[2]), string(versions[1])}, nil
	}
	return module{}, fmt.Errorf("no file %s in or above %s: run this inside a clone of the project", wanted, wd)
}
