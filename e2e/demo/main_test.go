package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

var durations = regexp.MustCompile(`\b([0-9]+m)?[0-9.]+m?s\b`)

// TestReadmeShowsTheDemo compares the first steps that the demo prints, but for times, with the README.
func TestReadmeShowsTheDemo(t *testing.T) {
	var out bytes.Buffer
	if err := tell(t.Context(), nil, &out); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	_, steps, _ := strings.Cut(out.String(), ".\n\n1. ")
	steps, _, _ = strings.Cut("1. "+steps, "\nThe controller was asked")
	got := durations.ReplaceAllString(steps, "TIME")
	want := durations.ReplaceAllString(manual.Find(t, "README.md", "1. A tenant").Text, "TIME")
	if !strings.HasPrefix(got, want+"\n5. ") {
		t.Errorf("got\n%swant what the README shows\n%s", out.String(), want)
	}
}

// untilAnnounced waits for an event: it comes when it can.
const untilAnnounced = `
until kubectl mirror status platform/settings 2>/dev/null | grep Expiring; do sleep 0.1; done
`

// TestPlayground runs what `make run` prints: one command is refused, and no other is. The controller is killed, and
// gets other flags, wrong ones, and an overlay. Cluster and copies stay until Ctrl-C, and then nothing does.
func TestPlayground(t *testing.T) {
	p := startPlayground(t, "--deletion-grace=1h")
	invited := p.until(`(?s)^(.*)The controller is a process here`)
	folder, err := filepath.EvalSymlinks(p.link)
	if err != nil {
		t.Fatal(err)
	}
	shown, _, _ := strings.Cut(invited, "Publish, as")
	want := manual.Find(t, "README.md", "bin/playground/env").Text
	if shown = strings.ReplaceAll(strings.TrimSpace(shown)+"\n", p.link, "bin/playground"); shown != want {
		t.Errorf("the first lines are\n%swant those that the README shows\n%s", shown, want)
	}
	pid := p.until(`runs as process (\d+) with --namespace-prefix=team- .*--deletion-grace=1h\n(?s:.*)"Mirroring".*\n`)
	p.shell("kill -KILL " + pid) // as a machine short of memory does
	p.until(`ended with exit code 137 and is started again in 1s. It printed last:\n  .*"Mirroring".*\n`)
	p.until(`runs as process \d+ `)

	var script strings.Builder
	for line := range strings.Lines(invited) {
		if strings.HasPrefix(line, "  kubectl mirror status -A; ") {
			script.WriteString(untilAnnounced)
		}
		if strings.HasPrefix(line, "  ") {
			script.WriteString(line)
		}
	}
	out := p.shell(script.String())
	for _, want := range []string{"refused", "2 held", "Expiring: 3 copies"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "No controller runs") {
		t.Errorf("the plug-in sees no controller:\n%s", out)
	}
	if refused := strings.Count(strings.ToLower(out), "\nerror"); refused != 1 {
		t.Errorf("%d commands have an error, want 1:\n%s", refused, out)
	}
	p.until(`runs as process \d+ with --leader-elect --deletion-grace=1h --namespace-prefix=team-a\n`)
	p.shell("until kubectl -n platform get events | grep OutOfScope; do sleep 0.1; done")
	p.shell("kubectl mirror check && kubectl -n team-c get configmap settings") // of a team that is out of scope

	p.shell("make run ARGS=--nosuch")
	p.until(`exit code 2 and is started again in 1s. It printed last:\n.*unknown flag: --nosuch`)
	p.until(`exit code 2 and is started again in 2s`)
	if out := p.shell("kubectl apply -k ../../deploy/example"); strings.Contains(out, "Warning") {
		t.Errorf("an overlay is applied with warnings:\n%s", out)
	}
	p.until(`runs as process \d+ with .*--deletion-grace=5m`)
	p.shell("kubectl -n mirror-system scale deployment mirror-controller --replicas=0")
	p.until(`shutting down|Stopped`)
	p.shell("until kubectl mirror check | grep ': 0 of 0 replicas are ready'; do sleep 0.1; done")

	// Ctrl-C ends both programs of `make run | tee log`.
	if err := p.reader.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if <-p.Done(); p.ExitCode() != 0 {
		t.Errorf("after Ctrl-C it ended with code %d:\n%s", p.ExitCode(), p.printed())
	}
	for _, path := range []string{folder, p.link} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

func TestPrinted(t *testing.T) {
	for name, tc := range map[string]struct{ log, want string }{
		"lines":   {"one\ntwo\n", "It printed last:\n  two"},
		"nothing": {"\n", "It printed nothing."},
	} {
		t.Run(name, func(t *testing.T) {
			if got := printed(tc.log); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// running is a demo in a process of its own.
type running struct {
	*testing.T
	*cluster.Process
	link string
	log  string // the file with what it prints
	read int    // what until has matched so far, in bytes

	reader *os.File // of the pipe into which it prints
}

// TestMain is the demo where a test starts this program again.
func TestMain(m *testing.M) {
	if os.Getenv("DEMO") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func startPlayground(t *testing.T, more ...string) *running {
	t.Helper()
	folder, err := cluster.NewFolder("", "playground")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Remove() })
	log, err := folder.OpenLog("demo")
	if err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close() // the process has it, too
	go func() {
		_, _ = io.Copy(log, reader) // until one of both ends
		_ = log.Close()
	}()
	p := &running{T: t, link: folder.File("link"), log: log.Name(), reader: reader}
	cmd := exec.CommandContext(t.Context(), os.Args[0], p.args(more...)...)
	cmd.Env = append(os.Environ(), folder.Mark(), "DEMO=1")
	cmd.Stdout, cmd.Stderr = writer, log
	if p.Process, err = cluster.Run(cmd); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *running) args(more ...string) []string {
	return append([]string{"-controller", *binary, "-deploy", *manifests, "-link", p.link, "-keep", "--"}, more...)
}

func (p *running) printed() string {
	content, _ := os.ReadFile(p.log)
	return string(content)
}

// until waits until it prints something behind what was waited for before, and returns the first group of the pattern.
func (p *running) until(pattern string) string {
	p.Helper()
	var found []string
	err := cluster.Until(p.Context(), patience, func() error {
		if found = regexp.MustCompile(pattern).FindStringSubmatch(p.printed()[p.read:]); found == nil {
			return fmt.Errorf("there is no %q", pattern)
		}
		return nil
	})
	if err != nil {
		p.Fatalf("%v behind the first %d bytes of\n%s", err, p.read, p.printed())
	}
	p.read += strings.Index(p.printed()[p.read:], found[0]) + len(found[0])
	return append(found, "")[1]
}

// shell runs commands in another terminal, where make is the demo that it runs, and returns what they print.
func (p *running) shell(script string) string {
	p.Helper()
	setup := fmt.Sprintf(". %s/env; make() { DEMO=1 %s %s ${2#ARGS=}; }\n", p.link, os.Args[0],
		strings.Join(p.args("--deletion-grace=1h"), " "))
	out, err := exec.CommandContext(p.Context(), "sh", "-xc", setup+script).CombinedOutput()
	if err != nil {
		p.Errorf("%v:\n%s", err, out)
	}
	return string(out)
}
