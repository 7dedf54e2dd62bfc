package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder is one of scripts that stand for programs.
type folder string

// put writes a program.
func (f folder) put(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(f), name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// newAssets sets KUBEBUILDER_ASSETS to a folder with programs of the newest
// version. A test that does not take them fails at once: it finds no go command
// to build others.
func newAssets(t *testing.T) folder {
	t.Helper()
	newest, err := findModule("")
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t.TempDir())
	dir.put(t, Etcd, "echo etcd Version: 3.7.0; echo Git SHA: 1")
	dir.put(t, APIServer, "echo Kubernetes v"+newest.minor()+".9")
	dir.put(t, Kubectl, "echo Client Version: v"+newest.minor()+".9; echo Kustomize Version: v5.8.1")
	t.Setenv(assets, string(dir))
	t.Setenv("KUBERNETES", "")
	t.Setenv("PATH", "")
	return dir
}

// TestAssets takes all programs from the folder that KUBEBUILDER_ASSETS names.
func TestAssets(t *testing.T) {
	dir := newAssets(t)
	paths, err := Build(t.Context(), Etcd, APIServer, Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Etcd, APIServer, Kubectl} {
		if want := filepath.Join(string(dir), name); paths[name] != want {
			t.Errorf("%s is %q, want %s", name, paths[name], want)
		}
	}
	if got := paths.Folders(); got != string(dir) {
		t.Errorf("the folders are %q, want %s", got, dir)
	}
}

// TestAssetsWithoutKubectl takes the other two: envtest once had no kubectl.
func TestAssetsWithoutKubectl(t *testing.T) {
	dir := newAssets(t)
	if err := os.Remove(filepath.Join(string(dir), Kubectl)); err != nil {
		t.Fatal(err)
	}
	m, err := findModule("")
	if err != nil {
		t.Fatal(err)
	}
	paths, err := m.given(t.Context(), []string{Etcd, APIServer, Kubectl})
	if _, hasKubectl := paths[Kubectl]; err != nil || len(paths) != 2 || hasKubectl {
		t.Errorf("got %v, %v, want etcd and kube-apiserver", paths, err)
	}
}

// TestBadAssets finds in one line what is wrong with KUBEBUILDER_ASSETS, and
// what to do.
func TestBadAssets(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*testing.T, folder)
		want    string
	}{
		{"empty", func(t *testing.T, _ folder) {
			t.Setenv(assets, "")
		}, `"" is no absolute path`},
		{"relative", func(t *testing.T, _ folder) {
			t.Setenv(assets, "bin/k8s")
		}, `"bin/k8s" is no absolute path`},
		{"no folder", func(t *testing.T, dir folder) {
			t.Setenv(assets, string(dir)+"/none")
		}, "/none has no etcd: set it"},
		{"no kube-apiserver", func(_ *testing.T, dir folder) {
			_ = os.Remove(filepath.Join(string(dir), APIServer))
		}, " has no kube-apiserver: set it"},
		{"older kube-apiserver", func(t *testing.T, dir folder) {
			dir.put(t, APIServer, "echo Kubernetes v1.3.7")
		}, `/kube-apiserver is "Kubernetes v1.3.7", not of Kubernetes 1.`},
		{"older kubectl", func(t *testing.T, dir folder) {
			dir.put(t, Kubectl, "echo Client Version: v1.3.7")
		}, `/kubectl is "Client Version: v1.3.7", not of Kubernetes 1.`},
		{"newer than asked for", func(t *testing.T, _ folder) {
			t.Setenv("KUBERNETES", "1.35")
		}, `.9", not of Kubernetes 1.35: set it`},
		{"of another machine", func(t *testing.T, dir folder) {
			file := filepath.Join(string(dir), Etcd)
			if err := os.WriteFile(file, []byte("\x7fELF, but not of this machine"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "/etcd does not start (fork/exec "},
		{"etcd fails", func(t *testing.T, dir folder) {
			dir.put(t, Etcd, "echo no such library; echo more; exit 127")
		}, `/etcd does not start (exit status 127), and prints "no such library"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.prepare(t, newAssets(t))
			_, err := Build(t.Context(), Etcd, APIServer, Kubectl)
			if err == nil {
				t.Fatal("there is no error")
			}
			got := err.Error()
			if !strings.HasPrefix(got, assets+": ") || !strings.Contains(got, row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if !strings.Contains(got, `"setup-envtest use -p path 1.`) || strings.Contains(got, "\n") {
				t.Errorf("no line that says what to do: %q", got)
			}
		})
	}
}
