package cluster

import (
	"bytes"
	"context"
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

func TestUnknownVersionNamesTheKnown(t *testing.T) {
	_, err := findModule(t.Context(), "1.2")
	if err == nil || !strings.Contains(err.Error(), "1.2 ") || !strings.Contains(err.Error(), "1.37") {
		t.Errorf("got %v", err)
	}
}

func TestOutsideOfTheProject(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := findModule(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "clone of the project") {
		t.Errorf("got %v", err)
	}
}

func TestSourcesAreFoundFromAnywhereInTheProject(t *testing.T) {
	here, err := findModule(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"..", "../..", "../kubernetes", "build"} {
		t.Run(dir, func(t *testing.T) {
			t.Chdir(dir)
			if m, err := findModule(t.Context(), ""); err != nil || m != here {
				t.Errorf("got %v, %v, want %v", m, err, here)
			}
		})
	}
}

// What is built depends on these: other flags, and every machine builds the API server anew.
func TestFlagsOfTheBuild(t *testing.T) {
	const want = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
	if got := (module{kubernetes: "v1.37.1"}).ldflags(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCompleteMeansEveryProgram(t *testing.T) {
	dir := t.TempDir()
	for _, p := range programs {
		if complete(dir) {
			t.Errorf("complete without %s", p.name)
		}
		write(t, filepath.Join(dir, p.name), "program")
	}
	if !complete(dir) {
		t.Error("not complete with every program")
	}
	write(t, filepath.Join(dir, Etcd), "")
	if complete(dir) {
		t.Error("complete with an empty etcd")
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := lock(ctx, file, &said); !errors.Is(err, context.DeadlineExceeded) {
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
