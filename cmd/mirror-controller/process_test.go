package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Logging and signals belong to a process, so their tests run one: the test binary, which is the program if its
// environment has this variable.
const beTheProgram = "TEST_MIRROR_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(beTheProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for a process before it fails. A wait ends with its event.
const patience = 5 * time.Minute

// process is the running program.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of stderr
}

// start runs the program on that API server until the test ends.
func start(t *testing.T, server string, args ...string) *process {
	t.Helper()
	kubeconfig := writeKubeconfig(t, "one", server)
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"--namespace-prefix=team-", "--kubeconfig=" + kubeconfig, "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), beTheProgram+"=1",
		"GORACE=atexit_sleep_ms=0") // else a program built with -race lingers for a second
	stderr, err := cmd.StderrPipe()
	noError(t, err)
	noError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, lines: make(chan string, 1000)}
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	return p
}

// awaitLine returns the next line of the log that contains text.
func (p *process) awaitLine(text string) string {
	p.t.Helper()
	var before []string
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the log ended without %q:\n%s", text, strings.Join(before, "\n"))
			}
			if strings.Contains(line, text) {
				return line
			}
			before = append(before, line)
		case <-time.After(patience):
			p.t.Fatalf("the log does not say %q:\n%s", text, strings.Join(before, "\n"))
		}
	}
}

// awaitURL returns where the process serves this.
func (p *process) awaitURL(what string) string {
	p.t.Helper()
	_, address, _ := strings.Cut(p.awaitLine("Serving "+what), "address=")
	return "http://" + strings.Trim(address, `"`)
}

// get returns the answer to a request as soon as it has this code.
func get(t *testing.T, url string, want int) (text string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			resp, err := http.Get(url)
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			content, err := io.ReadAll(resp.Body)
			text, last = string(content), resp.Status
			return resp.StatusCode == want, err
		})
	if err != nil {
		t.Fatalf("%s: %v, last %s, want %d", url, err, last, want)
	}
	return text
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	noError(p.t, p.cmd.Process.Signal(sig))
}

// end waits until the process has ended, and returns how. If it takes too long that is by SIGKILL.
func (p *process) end() syscall.WaitStatus {
	p.t.Helper()
	defer time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() }).Stop()
	for range p.lines {
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestSignals: a process that was asked to stop is alive, and not ready any more, while it waits for its last writes;
// the second signal kills it.
func TestSignals(t *testing.T) {
	server := newAPIServer(t)
	p := start(t, server.URL)
	url := p.awaitURL("health")
	<-server.writes
	get(t, url+"/readyz", http.StatusOK)
	p.signal(syscall.SIGINT)
	p.awaitLine("a second signal ends the process")
	get(t, url+"/readyz", http.StatusInternalServerError)
	get(t, url+"/livez", http.StatusOK)
	p.signal(syscall.SIGTERM)
	if status := p.end(); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended with status %#x, want death by SIGTERM", status)
	}
}
