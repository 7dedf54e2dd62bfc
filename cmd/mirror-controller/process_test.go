package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// Logging and signals belong to a process, so their tests run one: the test binary, which is the program if its environment
// has this variable.
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
	kubeconfig := writeKubeconfig(t, "one", map[string]string{"one": server})
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{
		"--namespace-prefix=team-", "--kubeconfig=" + kubeconfig, "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), beTheProgram+"=1",
		"GORACE=atexit_sleep_ms=0") // else a program built with -race lingers for a second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
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

func TestFirstSignalWaitsForWritesInFlight(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			server := newAPIServer(t)
			p := start(t, server.URL)
			<-server.writes
			p.signal(sig)
			p.awaitLine("Stopping")
			time.AfterFunc(300*time.Millisecond, server.answer)
			if status := p.end(); !status.Exited() || status.ExitStatus() != 0 {
				t.Errorf("ended with status %#x, want exit code 0", status)
			}
			select {
			case <-server.held:
			default:
				t.Error("the end did not wait for the write")
			}
		})
	}
}

func TestSecondSignalKills(t *testing.T) {
	server := newAPIServer(t)
	p := start(t, server.URL)
	<-server.writes
	p.signal(syscall.SIGTERM)
	p.awaitLine("a second signal ends the process")
	p.signal(syscall.SIGTERM)
	if status := p.end(); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended with status %#x, want death by SIGTERM", status)
	}
}

func TestPortInUse(t *testing.T) {
	server := newAPIServer(t)
	address := strings.TrimPrefix(server.URL, "http://")
	p := start(t, server.URL, "--health-probe-bind-address="+address)
	if line := p.awaitLine("Failed"); !strings.Contains(line, "serve health: listen tcp "+address+": bind: address already in use") {
		t.Errorf("it says %s", line)
	}
	if status := p.end(); !status.Exited() || status.ExitStatus() != 1 {
		t.Errorf("ended with status %#x, want exit code 1", status)
	}
}

// TestHealth shows that the process is ready while it mirrors, and not any more while it waits for its last writes.
func TestHealth(t *testing.T) {
	server := newAPIServer(t)
	p := start(t, server.URL)
	_, address, _ := strings.Cut(p.awaitLine("Serving health"), "address=")
	url := "http://" + strings.Trim(address, `"`)
	get := func(path string) (code int) {
		t.Helper()
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	expect := func(path string, want int) {
		t.Helper()
		if code := get(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	<-server.writes
	expect("/readyz", 200)
	expect("/livez", 200)
	p.signal(syscall.SIGTERM)
	for deadline := time.Now().Add(patience); get("/readyz/shutdown") == 200; {
		if time.Now().After(deadline) {
			t.Fatal("ready although it was asked to stop")
		}
	}
	expect("/readyz", 500)
	expect("/readyz/caches", 200)
	expect("/livez", 200)
	server.answer()
	p.end()
}

// configured returns what control takes to work on that API server with a lease.
func configured(t *testing.T, server *apiServer) (*rest.Config, *options) {
	t.Helper()
	config, err := configFor(t, "--kubeconfig="+writeKubeconfig(t, "one", map[string]string{"one": server.URL}))
	noError(t, err)
	opts := newOptions()
	opts.NamespacePrefixes = []string{"team-"}
	opts.healthAddress, opts.metricsAddress = "127.0.0.1:0", "127.0.0.1:0"
	opts.election.enabled, opts.election.namespace = true, "mirror-system"
	return config, opts
}

// setFor gives a variable another value for as long as the test runs.
func setFor[T any](t *testing.T, variable *T, value T) {
	before := *variable
	*variable = value
	t.Cleanup(func() { *variable = before })
}

// TestLostLeaseEndsEvents shows that the write of an event ends with the lease, like any other write, and not only when
// the last of the others has ended.
func TestLostLeaseEndsEvents(t *testing.T) {
	setFor(t, &eventTimeout, time.Hour)
	server := newAPIServer(t)
	server.frozen = true
	config, opts := configured(t, server)
	writing, end := make(chan struct{}, 1), make(chan struct{})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") { // it does not end when it is cancelled
				writing <- struct{}{}
				<-end
			}
			return next.RoundTrip(r)
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- control(t.Context(), config, opts) }()
	<-writing
	event := <-server.writes
	server.takeLease()
	select {
	case <-event.Context().Done():
	case <-ended:
		t.Error("it ended before its last write")
	case <-time.After(patience):
		t.Error("an event is still being written long after the lease was taken") // and will be
	}
	close(end)
	if err := <-ended; !errors.Is(err, mirror.ErrLeadershipLost) {
		t.Errorf("error %v, want that the leadership is lost", err)
	}
}

// TestLostLeaseWaitsForNoEvents shows that control does not wait for its last events when it has lost its lease.
func TestLostLeaseWaitsForNoEvents(t *testing.T) {
	setFor(t, &eventFlush, time.Hour)
	server := newAPIServer(t)
	server.events = make(chan struct{})
	config, opts := configured(t, server)
	ended := make(chan error, 1)
	go func() { ended <- control(t.Context(), config, opts) }()
	<-server.writes
	server.answer()
	<-server.writes // the event that tells of it, which is not answered
	server.takeLease()
	select {
	case err := <-ended:
		if !errors.Is(err, mirror.ErrLeadershipLost) {
			t.Errorf("error %v, want that the leadership is lost", err)
		}
	case <-time.After(patience):
		t.Fatal("it has not ended long after its lease was taken") // nor will it
	}
}

// TestNothingIsLeft shows that all that control has started has ended when it returns.
func TestNothingIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	server := newAPIServer(t)
	config, opts := configured(t, server)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- control(ctx, config, opts) }()
	<-server.writes
	stop()
	server.answer()
	noError(t, <-ended)
	// What keeps connections open for the next request ends with the server.
	server.CloseClientConnections()
	server.Close()
	goleak.VerifyNone(t, before)
}

func TestRequestsSayWhoSendsThem(t *testing.T) {
	server := newAPIServer(t)
	start(t, server.URL)
	get, write := <-server.gets, <-server.writes
	for _, r := range []*http.Request{get, write} {
		if agent, want := r.UserAgent(), "mirror-controller/"+version()+" instance/default"; agent != want {
			t.Errorf("%s: User-Agent %q, want %q", r.Method, agent, want)
		}
		if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "application/vnd.kubernetes.protobuf") || !strings.Contains(accept, ",application/json") {
			t.Errorf("%s: Accept %q, want protobuf, and JSON behind it", r.Method, accept)
		}
	}
	if got := write.Header.Get("Content-Type"); got != "application/vnd.kubernetes.protobuf" {
		t.Errorf("writes are sent as %q, want protobuf", got)
	}
}
