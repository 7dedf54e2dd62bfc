package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// patience is how long a test waits for what takes a second on an idle machine.
const patience = 5 * time.Minute

// auditedUser is a user whose requests are logged beside those of ServiceAccounts.
const auditedUser = "carol"

// shared is the cluster of all tests that do not break it.
var shared *Cluster

func TestMain(m *testing.M) { os.Exit(run(m)) }

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
