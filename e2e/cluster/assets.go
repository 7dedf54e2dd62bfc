package cluster

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestAssets is the oldest Kubernetes on which the controller is tested.
const oldestAssets = "1.35.0"

// assets reports whether a folder, as envtest has it, holds etcd and a kube-apiserver that is new enough, and says so. An empty folder is
// none.
func assets(ctx context.Context, folder string, progress io.Writer) (bin string, ok bool) {
	if folder == "" {
		return "", false
	}
	found, err := versionIn(ctx, folder)
	if err != nil {
		fmt.Fprintf(progress, "KUBEBUILDER_ASSETS=%s is not used: %v.\n", folder, err)
		return "", false
	}
	fmt.Fprintf(progress, "Taking etcd and kube-apiserver %s from KUBEBUILDER_ASSETS=%s.\n", found, folder)
	return folder, true
}

// versionIn returns the version of the kube-apiserver in a folder that has etcd, too.
func versionIn(ctx context.Context, folder string) (string, error) {
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
