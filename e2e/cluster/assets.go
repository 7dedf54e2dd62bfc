package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestAssets is the oldest Kubernetes on which the controller is tested.
const oldestAssets = "1.35.0"

// assets returns the version of the programs in a folder, as envtest has it: etcd, and a kube-apiserver that is new
// enough.
func assets(ctx context.Context, folder string) (string, error) {
	if _, err := exec.LookPath(filepath.Join(folder, Etcd)); err != nil {
		return "", fmt.Errorf("it has no %s", Etcd)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(folder, APIServer), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("it has no %s that runs", APIServer)
	}
	found := strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	v, err := version.ParseGeneric(found)
	if err != nil || v.LessThan(version.MustParseGeneric(oldestAssets)) {
		return "", fmt.Errorf("its %s has the version %s, and 1.35 is needed", APIServer, found)
	}
	return found, nil
}
