package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is a pinned set of control plane sources: a folder with a go.mod of its own.
type module struct {
	dir        string
	kubernetes string // with the v, as in v1.37.1
	etcd       string
}

// findModule returns the sources for a minor version such as 1.37, or for the newest where minor is empty. The folder
// e2e/kubernetes is found from the working directory upwards: a program that is built with -trimpath does not know where its own
// source is.
func findModule(ctx context.Context, minor string) (module, error) {
	wd, err := os.Getwd()
	if err != nil {
		return module{}, err
	}
	wanted := filepath.Join("e2e", "kubernetes", cmp.Or(minor, "*"))
	for dir, last := wd, ""; dir != last; dir, last = filepath.Dir(dir), dir {
		if found, _ := filepath.Glob(filepath.Join(dir, wanted)); len(found) > 0 {
			return readModule(ctx, found[len(found)-1])
		}
	}
	return module{}, fmt.Errorf("no folder %s in or above %s: run this inside a clone of the project", wanted, wd)
}

// readModule reads the pinned versions from a folder's go.mod. It needs no network and no module cache.
func readModule(ctx context.Context, dir string) (module, error) {
	out, err := goOutput(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return module{}, err
	}
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return module{}, fmt.Errorf("read the go.mod of the control plane: %w", err)
	}
	versions := map[string]string{}
	for _, r := range file.Require {
		versions[r.Path] = r.Version
	}
	m := module{dir: dir, kubernetes: versions["k8s.io/kubernetes"], etcd: versions["go.etcd.io/etcd/server/v3"]}
	if m.kubernetes == "" || m.etcd == "" {
		return module{}, fmt.Errorf("the go.mod in %s must require k8s.io/kubernetes and go.etcd.io/etcd/server/v3", dir)
	}
	return m, nil
}

// goOutput runs the go command in dir, outside of any workspace, and returns what it prints.
func goOutput(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
