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
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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

func TestControllersServeNamespaces(t *testing.T) {
	client := clientOf(t, shared.Admin())
	ns := namespace(t, client, "served")

	eventually(t, "kube-root-ca.crt in a new namespace", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return found(err)
	})
	eventually(t, "the default ServiceAccount in a new namespace", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return found(err)
	})
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of a deleted namespace", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		is, err := found(err)
		return !is && err == nil, err
	})
}

func TestQuotaIsCounted(t *testing.T) {
	client := clientOf(t, shared.Admin())
	ns := namespace(t, client, "narrow")
	const configMaps = corev1.ResourceName("count/configmaps")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{configMaps: resource.MustParse("2")}},
	}
	if _, err := client.CoreV1().ResourceQuotas(ns).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a quota that counts kube-root-ca.crt", func(ctx context.Context) (bool, error) {
		q, err := client.CoreV1().ResourceQuotas(ns).Get(ctx, "few", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		used, ok := q.Status.Used[configMaps]
		return ok && used.Value() == 1, nil
	})
	create := func(ctx context.Context, name string, o metav1.CreateOptions) error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, cm, o)
		return err
	}
	if err := create(t.Context(), "second", metav1.CreateOptions{}); err != nil {
		t.Errorf("create the second of two: %v", err)
	}
	// Not at once: the API server enforces what its own cache of quotas has.
	eventually(t, "the refusal of the third of two", func(ctx context.Context) (bool, error) {
		err := create(ctx, "third", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
}

func TestServiceAccount(t *testing.T) {
	admin := clientOf(t, shared.Admin())
	ns := namespace(t, admin, "robots")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	if _, err := admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := shared.ServiceAccountKubeconfig(t.Context(), ns, "robot")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, %v, want 0600", info.Mode(), err)
	}
	mark := auditMark(t)

	user := ServiceAccountUser(ns, "robot")
	if got := whoAmI(t, fromFile(t, path)).Username; got != user {
		t.Errorf("the server knows us as %s, want %s", got, user)
	}
	whoAmI(t, shared.Admin())
	// No waiting: both answers have been read.
	events := auditSince(t, mark)
	if len(events) != 1 {
		t.Fatalf("the audit log has %v, want the request of the ServiceAccount and not the admin's", events)
	}
	e := events[0]
	if e.User.Username != user || e.Verb != "create" || e.Object.Resource != "selfsubjectreviews" ||
		e.Object.APIGroup != "authentication.k8s.io" || e.Response.Code != 201 || e.Stage != "ResponseComplete" ||
		e.Done.Before(e.Received) || e.Received.IsZero() {
		t.Errorf("the audit log has %+v", e)
	}
}

func TestUserWithCertificate(t *testing.T) {
	path, err := shared.Kubeconfig(User{Name: auditedUser, Groups: []string{"team:a"}})
	if err != nil {
		t.Fatal(err)
	}
	mark := auditMark(t)
	info := whoAmI(t, fromFile(t, path))
	if info.Username != auditedUser || !slices.Contains(info.Groups, "team:a") {
		t.Errorf("the server knows us as %+v", info)
	}
	client := clientOf(t, fromFile(t, path))
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list namespaces without any permission: %v, want forbidden", err)
	}
	events := auditSince(t, mark)
	if len(events) != 2 || events[1].User.Username != auditedUser || events[1].Verb != "list" || events[1].Response.Code != 403 {
		t.Errorf("the audit log has %v, want a review and a refused list", events)
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

func TestKubectl(t *testing.T) {
	out, err := shared.KubectlCommand(t.Context(), "get", "namespace", "default", "-o", "name").CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "namespace/default" {
		t.Errorf("kubectl said %q, %v", got, err)
	}
	// Without it kubectl must not find that of the person who runs this.
	t.Setenv("KUBECONFIG", shared.AdminKubeconfig())
	if out, err := shared.Command(t.Context(), shared.Kubectl(), "get", "namespaces").CombinedOutput(); err == nil {
		t.Errorf("kubectl without a kubeconfig worked: %s", out)
	}
}

func TestRestartAPIServer(t *testing.T) {
	admin := clientOf(t, shared.Admin())
	ns := namespace(t, admin, "survives")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	if _, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the default ServiceAccount", func(ctx context.Context) (bool, error) {
		_, err := admin.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return found(err)
	})
	token, err := shared.ServiceAccountConfig(t.Context(), ns, "default")
	if err != nil {
		t.Fatal(err)
	}

	if err := shared.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
		t.Error("the API server answered while it was stopped")
	}
	if err := shared.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}

	got, err := admin.CoreV1().ConfigMaps(ns).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || got.Data["a"] != "b" {
		t.Errorf("after the restart the ConfigMap has %v, %v", got.Data, err)
	}
	mark := auditMark(t)
	if user := whoAmI(t, token).Username; user != ServiceAccountUser(ns, "default") {
		t.Errorf("after the restart the token is that of %s", user)
	}
	if events := auditSince(t, mark); len(events) != 1 {
		t.Errorf("after the restart the audit log has %v", events)
	}
	eventuallyServed(t, admin)
}

// The API server comes back after a crash as well, and one that hangs can be stopped.
func TestAPIServerCrashes(t *testing.T) {
	admin := clientOf(t, shared.Admin())
	if err := shared.Signal(APIServer, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := admin.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
		t.Error("the API server answered while it hung")
	}
	if err := shared.Signal(APIServer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := shared.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventuallyServed(t, admin)
}

func TestCompact(t *testing.T) {
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := shared.etcd(t.Context(), "kv/range", map[string]any{"key": []byte{0}}, &now); err != nil {
		t.Fatal(err)
	}
	old := map[string]any{"key": []byte{0}, "revision": now.Header.Revision}
	namespace(t, clientOf(t, shared.Admin()), "newer")
	if err := shared.etcd(t.Context(), "kv/range", old, nil); err != nil {
		t.Fatalf("read an old revision before the compaction: %v", err)
	}
	if err := shared.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := shared.etcd(t.Context(), "kv/range", old, nil); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("read an old revision after the compaction: %v, want that it is compacted", err)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		c, err := Start(ctx, Options{})
		if err == nil {
			err = errors.Join(errors.New("it came up"), c.Stop())
		}
		failed <- err
	}()
	var dirs []string
	eventually(t, "the folder of a starting cluster", func(context.Context) (bool, error) {
		logs, err := filepath.Glob(filepath.Join(os.TempDir(), "mirror-cluster-*", "apiserver", "*.crt"))
		for _, log := range logs {
			dirs = append(dirs, filepath.Dir(filepath.Dir(log)))
		}
		return len(logs) > 0, err
	})
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the start that was broken off returned %v", err)
	}
	if err := nothingLeft(t.Context(), dirs[0]); err != nil {
		t.Error(err)
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

func fromFile(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
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

// eventuallyServed waits until the controllers work again, after the API server was away.
func eventuallyServed(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ns := namespace(t, client, "after")
	eventually(t, "kube-root-ca.crt after the API server was away", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return found(err)
	})
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

// found turns the error of a get into an answer.
func found(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
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
