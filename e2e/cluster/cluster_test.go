package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// victim, in the environment, makes this test binary a process that starts a cluster and is killed.
const victim = "CLUSTER_TEST_VICTIM"

// patience is how long a test waits for what takes a second on an idle machine.
const patience = 5 * time.Minute

// auditedUser is a user whose requests are logged beside those of ServiceAccounts.
const auditedUser = "carol"

// shared is the cluster of all tests that do not break it.
var shared *Cluster

func TestMain(m *testing.M) {
	if os.Getenv(victim) != "" {
		beVictim()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if shared, err = Start(ctx, Options{AuditUsers: []string{auditedUser}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := stopLeavesNothing(ctx, shared); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: after Stop:", err)
		return 1
	}
	return code
}

// stopLeavesNothing stops a cluster and looks for its processes, its folder and its ports.
func stopLeavesNothing(ctx context.Context, c *Cluster) error {
	if err := c.Stop(); err != nil {
		return err
	}
	if err := nothingLeft(ctx, c.Dir()); err != nil {
		return err
	}
	server, err := url.Parse(c.Admin().Host)
	if err != nil {
		return err
	}
	for _, address := range []string{server.Host, c.plane.Etcd.URL.Host} {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return fmt.Errorf("somebody still listens on %s", address)
		}
	}
	return nil
}

// nothingLeft waits until no process carries the mark of the cluster in dir, or names dir in its command
// line, and dir is gone.
func nothingLeft(ctx context.Context, dir string) error {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, pollPeriod, patience, true, func(context.Context) (bool, error) {
		left = processesOf(dir)
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, "the folder "+dir)
		}
		return len(left) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("left behind: %s", strings.Join(left, "; "))
	}
	return nil
}

// processesOf returns the command lines of processes that belong to the cluster in dir.
func processesOf(dir string) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		command, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(p, "environ"))
		if strings.Contains(string(command)+string(environment), dir) {
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

func TestServiceAccountIsAudited(t *testing.T) {
	admin := clientOf(t, shared.Admin())
	ns := namespace(t, admin, "robots")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := shared.ServiceAccountConfig(t.Context(), ns, "robot")
	if err != nil {
		t.Fatal(err)
	}
	mark := auditMark(t)
	user := ServiceAccountUser(ns, "robot")
	if got := whoAmI(t, cfg).Username; got != user {
		t.Errorf("the server knows us as %s, want %s", got, user)
	}
	whoAmI(t, shared.Admin())
	// No waiting: both answers have been read.
	events := auditSince(t, mark)
	if len(events) != 1 {
		t.Fatalf("the audit log has %v, want the request of the ServiceAccount and not the admin's", events)
	}
	e := events[0]
	if e.User.Username != user || e.Verb != "create" || e.Object.Resource != "selfsubjectreviews" || e.Response.Code != 201 ||
		e.Done.Before(e.Received) || e.Received.IsZero() {
		t.Errorf("the audit log has %+v", e)
	}
}

// A watch that lasts is in the log when it has begun, and does not appear again when it ends.
func TestAuditHasWatchesOnce(t *testing.T) {
	cfg, err := shared.Config(User{Name: auditedUser, Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, cfg)
	mark := auditMark(t)
	w, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if events := auditSince(t, mark); len(events) != 1 || events[0].Verb != "watch" || events[0].Response.Code != 200 {
		t.Errorf("while the watch lasts the audit log has %v", events)
	}
	w.Stop()
	whoAmI(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events, err := shared.Audit().WaitFor(ctx, mark, func(e Event) bool { return e.Object.Resource == "selfsubjectreviews" })
	if err != nil || len(events) != 2 {
		t.Errorf("after the watch the audit log has %v, %v", events, err)
	}
}

// TestRestartAPIServer: what is stored, tokens and the audit log outlive a restart, also of an API server that hangs.
func TestRestartAPIServer(t *testing.T) {
	admin := clientOf(t, shared.Admin())
	ns := namespace(t, admin, "survives")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := shared.ServiceAccountConfig(t.Context(), ns, "robot")
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Signal(APIServer, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := shared.Signal(APIServer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := shared.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	mark := auditMark(t)
	if user := whoAmI(t, token).Username; user != ServiceAccountUser(ns, "robot") {
		t.Errorf("after the restart the token is that of %s", user)
	}
	if events := auditSince(t, mark); len(events) != 1 {
		t.Errorf("after the restart the audit log has %v", events)
	}
}

// A program that does not come up is named, with what it said, and nothing is left.
func TestFailedStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin := t.TempDir()
	for _, name := range controlPlane {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho no room for "+name+"\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c, err := startFrom(t.Context(), bin, Options{})
	if err == nil {
		t.Fatal(errors.Join(errors.New("it came up"), c.Stop()))
	}
	for _, want := range []string{"start the control plane", "process etcd", "etcd logged last:\nno room for etcd"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q:\n%v", want, err)
		}
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The process that started a cluster is killed: nothing that it started is left.
func TestKilledProcessLeavesNothing(t *testing.T) {
	dir, kill := startVictim(t)
	eventually(t, "etcd, API server, controller manager and 3 processes of the victim's own", func(context.Context) (bool, error) {
		return len(processesOf(dir)) >= 6, nil
	})
	kill()
	if err := nothingLeft(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

// startVictim runs this test binary as a process that starts a cluster. It returns the cluster's folder,
// and a function that kills the process and waits for its end.
func startVictim(t *testing.T) (dir string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victim+"=yes")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the process that was to start a cluster did not: %v", err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return strings.TrimSpace(line), kill
}

// beVictim starts a cluster, a process that Ctrl-C does not reach, and one in a session of its own that is a
// child of that process and deaf to requests, prints the folder, and waits to be killed.
func beVictim() {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	script := `trap '' HUP INT TERM; sleep 1000000 & exec sleep 1000000`
	for _, args := range [][]string{{"-c", script}, {"-c", "exec sleep 1000000"}} {
		if err := c.Command(context.Background(), "/bin/sh", args...).Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Println(c.Dir())
	select {}
}

func clientOf(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// whoAmI returns whom the server takes the owner of a client configuration for.
func whoAmI(t *testing.T, cfg *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review, err := clientOf(t, cfg).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// namespace creates a namespace with a new name.
func namespace(t *testing.T, client kubernetes.Interface, prefix string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	created, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created.Name
}

// eventually waits until is says true.
func eventually(t *testing.T, what string, is wait.ConditionWithContextFunc) {
	t.Helper()
	start := time.Now()
	if err := wait.PollUntilContextTimeout(t.Context(), pollPeriod, patience, true, is); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
	t.Logf("%s: after %s", what, time.Since(start).Round(time.Millisecond))
}

func auditMark(t *testing.T) Mark {
	t.Helper()
	mark, err := shared.Audit().Mark()
	if err != nil {
		t.Fatal(err)
	}
	return mark
}

func auditSince(t *testing.T, mark Mark) []Event {
	t.Helper()
	events, _, err := shared.Audit().Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	return events
}
