package cluster

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience is how long a test waits for what takes a second on an idle machine.
const patience = 5 * time.Minute

// shared is the cluster of all tests.
var shared *Cluster

func TestMain(m *testing.M) {
	ctx := context.Background()
	code := 1
	var err error
	if shared, err = Start(ctx, Options{}); err == nil {
		code = m.Run()
		err = stopLeavesNothing(ctx, shared)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

// stopLeavesNothing stops a cluster and looks for its processes, its folder and its ports.
func stopLeavesNothing(ctx context.Context, c *Cluster) error {
	if err := c.Stop(); err != nil {
		return err
	}
	server, err := url.Parse(c.Admin().Host)
	if err != nil {
		return err
	}
	for _, address := range []string{server.Host, c.plane.Etcd.URL.Host} {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return fmt.Errorf("after Stop somebody still listens on %s", address)
		}
	}
	return Until(ctx, patience, func() error {
		left := processesOf(c.Dir())
		if _, err := os.Stat(c.Dir()); err == nil {
			left = append(left, "the folder "+c.Dir())
		}
		if len(left) > 0 {
			return fmt.Errorf("after Stop there are %s", strings.Join(left, "; "))
		}
		return nil
	})
}

// processesOf returns the command lines of processes that carry the mark of a folder, or name it in their command line.
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

// TestAuditHasRequestsOfServiceAccounts has a ServiceAccount and the admin send a request: the log has the first alone,
// as soon as its answer has been read.
func TestAuditHasRequestsOfServiceAccounts(t *testing.T) {
	kubeconfig, err := shared.ServiceAccountKubeconfig(t.Context(), metav1.NamespaceDefault, "default")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	mark := auditMark(t)
	user := ServiceAccountUser(metav1.NamespaceDefault, "default")
	if got := whoAmI(t, cfg); got != user {
		t.Errorf("the server knows us as %s, want %s", got, user)
	}
	whoAmI(t, shared.Admin())
	events := auditSince(t, mark)
	if len(events) != 1 {
		t.Fatalf("the audit log has %v, want the request of the ServiceAccount and not the admin's", events)
	}
	e := events[0]
	if e.User.Username != user || e.Verb != "create" || e.Object.Resource != "selfsubjectreviews" ||
		e.Response.Code != 201 || e.Done.Before(e.Received) || e.Received.IsZero() {
		t.Errorf("the audit log has %+v", e)
	}
}

// TestAuditHasWatchesOnce has a watch that lasts: it is in the log when it has begun, and does not appear again when it
// ends.
func TestAuditHasWatchesOnce(t *testing.T) {
	cfg, err := shared.Config(User{Name: "carol", Groups: []string{"system:masters", "system:serviceaccounts"}})
	if err != nil {
		t.Fatal(err)
	}
	mark := auditMark(t)
	w, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(metav1.NamespaceDefault).
		Watch(t.Context(), metav1.ListOptions{})
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

// whoAmI returns the user that the server takes the owner of a client configuration for.
func whoAmI(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	review, err := kubernetes.NewForConfigOrDie(cfg).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
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
