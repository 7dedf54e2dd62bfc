package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const modulePath = "github.com/mirror-controller/mirror-controller/e2e"

// module is a pinned set of control plane sources: a folder with a go.mod of its own.
type module struct {
	dir        string
	kubernetes string // with the v, as in v1.37.1
	etcd       string
}

// findModule returns the sources for a minor version such as 1.37, or for the newest where minor is empty.
func findModule(ctx context.Context, minor string) (module, error) {
	root, err := e2eDir()
	if err != nil {
		return module{}, err
	}
	folder := filepath.Join(root, "kubernetes")
	have, err := minors(folder)
	if err != nil {
		return module{}, err
	}
	if minor == "" {
		minor = have[len(have)-1]
	}
	if !slices.Contains(have, minor) {
		return module{}, fmt.Errorf("there are no sources of Kubernetes %s in e2e/kubernetes, only of %s", minor, strings.Join(have, ", "))
	}
	return readModule(ctx, filepath.Join(folder, minor))
}

// e2eDir finds the folder of the e2e module from the working directory upwards. The sources cannot be
// found from the position of this file: a binary built with -trimpath does not know it.
func e2eDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		for _, candidate := range []string{dir, filepath.Join(dir, "e2e")} {
			if declares(filepath.Join(candidate, "go.mod"), modulePath) {
				return candidate, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no folder of module %s in or above %s: run this inside a clone of the project", modulePath, wd)
		}
	}
}

// declares reports whether a go.mod file is that of the module named path.
func declares(file, path string) bool {
	content, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Split(string(content), "\n"), "module "+path)
}

// minors returns the versions that have a folder, sorted, and never an empty list without an error.
func minors(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, file := range files {
		found = append(found, filepath.Base(filepath.Dir(file)))
	}
	if len(found) == 0 {
		return nil, errors.New("e2e/kubernetes holds no sources of a control plane")
	}
	return found, nil
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
	m := module{dir: dir}
	for _, r := range file.Require {
		switch r.Path {
		case "k8s.io/kubernetes":
			m.kubernetes = r.Version
		case "go.etcd.io/etcd/server/v3":
			m.etcd = r.Version
		}
	}
	if m.kubernetes == "" || m.etcd == "" {
		return module{}, fmt.Errorf("the go.mod in e2e/kubernetes/%s must require k8s.io/kubernetes and go.etcd.io/etcd/server/v3", filepath.Base(dir))
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
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
