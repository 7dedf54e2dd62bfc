package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMinorsAreOrderedAsNumbers(t *testing.T) {
	folder := t.TempDir()
	for _, minor := range []string{"1.37", "1.9", "1.35", "1.100"} {
		write(t, filepath.Join(folder, minor, "go.mod"), "module x\n")
	}
	write(t, filepath.Join(folder, "notes", "README"), "")
	got, err := minors(folder)
	if want := []string{"1.9", "1.35", "1.37", "1.100"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := minors(t.TempDir()); err == nil {
		t.Error("no sources at all: no error")
	}
}

// What is built depends on these: other flags, and every machine builds the API server anew.
func TestFlagsOfTheBuild(t *testing.T) {
	const want = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
	if got := (module{kubernetes: "v1.37.1"}).ldflags(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A package is compiled anew for each set of versions below it. One module that the control plane has in another
// version than the controller can cost minutes.
func TestSharedModulesHaveOneVersion(t *testing.T) {
	newest, err := findModule(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	type module struct{ Path, Version string }
	type found struct{ version, dir string }
	first := map[string]found{}
	for _, dir := range []string{"../..", "..", "../kubernetes/" + filepath.Base(newest.dir)} {
		out, err := goOutput(t.Context(), dir, "mod", "edit", "-json")
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Require []module
			Replace []struct{ New module }
		}
		if err := json.Unmarshal(out, &file); err != nil {
			t.Fatal(err)
		}
		all := file.Require
		for _, r := range file.Replace {
			all = append(all, r.New)
		}
		for _, m := range all {
			if other, ok := first[m.Path]; !ok {
				first[m.Path] = found{m.Version, dir}
			} else if other.version != m.Version {
				t.Errorf("%s: %s in %s/go.mod, %s in %s/go.mod; raise the lower", m.Path, other.version, other.dir, m.Version, dir)
			}
		}
	}
}

// The second waits, says so once, and has the lock when the first gives it back.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}

	var said bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := writerFunc(func(b []byte) (int, error) {
		time.AfterFunc(time.Second, cancel) // time to say it again
		return said.Write(b)
	})
	if _, err := lock(ctx, file, told); !errors.Is(err, context.Canceled) {
		t.Errorf("the second lock: %v, want that it waits", err)
	}
	if n := strings.Count(said.String(), "Waiting for another process"); n != 1 {
		t.Errorf("said %d times that it waits: %q", n, said.String())
	}

	unlock()
	unlock, err = lock(t.Context(), file, &bytes.Buffer{})
	if err != nil {
		t.Fatalf("lock what was given back: %v", err)
	}
	unlock()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// write makes a file, and the folder it is in.
func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
