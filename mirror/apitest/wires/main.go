// Command wires breaks what one package promises and another has to call, one
// promise at a time, and fails unless the tests of that promise turn red within
// a minute:
//
//	wires PATCH...
//
// A patch is a unified diff. Before the diff it has two lines: the promise, and
// "Red:", the package, and the tests:
//
//	A source with a thousand targets holds up no other source.
//	Red: ./mirror TestC46SourcesTakeTurns
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// limit is how long the tests may take to turn red.
const limit = time.Minute

func main() {
	if len(os.Args) == 1 {
		fmt.Fprintln(os.Stderr, "usage: wires PATCH...")
		os.Exit(2)
	}
	failed := false
	for _, path := range os.Args[1:] {
		w, err := read(path)
		if err == nil {
			err = w.play(context.Background())
		}
		if err != nil {
			fmt.Printf("%s: FAILED: %v\n", filepath.Base(path), err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// wire is a promise, and the patch that breaks it.
type wire struct {
	path, promise string
	folder        string   // of the package whose tests turn red
	tests         []string // all of them do
	files         []string // that the patch changes
}

func read(path string) (*wire, error) {
	patch, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	w := &wire{path: path}
	for i, line := range strings.Split(string(patch), "\n") {
		file, isFile := strings.CutPrefix(line, "+++ b/")
		red, isRed := strings.CutPrefix(line, "Red: ")
		switch {
		case i == 0:
			w.promise = line
		case isRed:
			words := strings.Fields(red)
			w.folder = words[0]
			w.tests = words[1:]
		case isFile:
			w.files = append(w.files, file)
		}
	}
	if len(w.tests) == 0 || len(w.files) == 0 {
		return nil, errors.New("it needs a line Red: with a package and tests, and a diff")
	}
	return w, nil
}

// play applies the patch to copies of the files, runs the tests with these in the
// place of the files, and prints how long the tests took to turn red.
func (w *wire) play(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "wires")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // it is in the folder of temporary files
	overlay, err := w.apply(ctx, folder)
	if err != nil {
		return err
	}
	// A test that runs for longer counts as green.
	args := []string{"test", "-count=1", "-timeout", limit.String(), "-overlay", overlay, "-json",
		"-run", "^(" + strings.Join(w.tests, "|") + ")$", w.folder}
	test := exec.CommandContext(ctx, "go", args...)
	test.Stderr = os.Stderr
	output, _ := test.Output() // the tests are to fail
	failed, err := failures(output)
	if err != nil {
		return err
	}
	var all []string
	for _, name := range w.tests {
		seconds, isRed := failed[name]
		if !isRed {
			return fmt.Errorf("%s stays green in %s without this: %s", name, w.folder, w.promise)
		}
		all = append(all, fmt.Sprintf("%s in %.1f s", name, seconds))
	}
	fmt.Printf("%s: red: %s\n", filepath.Base(w.path), strings.Join(all, ", "))
	return nil
}

// apply returns the name of an overlay for go, in which the files are patched.
func (w *wire) apply(ctx context.Context, folder string) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	patch, err := filepath.Abs(w.path)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, file := range w.files {
		src, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		patched := filepath.Join(folder, file)
		replace[filepath.Join(root, file)] = patched
		if err := errors.Join(os.MkdirAll(filepath.Dir(patched), 0o755), os.WriteFile(patched, src, 0o644)); err != nil {
			return "", err
		}
	}
	git := exec.CommandContext(ctx, "git", "apply", patch)
	git.Dir = folder
	git.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder)) // it is in no repository
	if output, err := git.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it no longer applies: %s", output)
	}
	config, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, config, 0o644)
}

// failures returns the tests that failed, with the seconds that each took. The
// output is that of go test -json.
func failures(output []byte) (map[string]float64, error) {
	failed := map[string]float64{}
	events := json.NewDecoder(bytes.NewReader(output))
	for events.More() {
		var e struct {
			Action, Test, FailedBuild string
			Elapsed                   float64
		}
		if err := events.Decode(&e); err != nil {
			return nil, err
		}
		switch {
		case e.FailedBuild != "":
			return nil, errors.New("it does not compile")
		case e.Action == "fail" && e.Test != "":
			failed[e.Test] = e.Elapsed
		}
	}
	return failed, nil
}
