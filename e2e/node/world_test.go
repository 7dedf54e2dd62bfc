package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// patient is how long a test waits before it fails.
	patient = 10 * time.Minute
	// home is the namespace of all sources.
	home = "platform"
	// system is that of the controller.
	system = "mirror-system"
)

// world is the cluster, with the helpers of a test.
type world struct {
	*testing.T
	*site
	ctx context.Context
}

// newWorld returns a world with a hundred targets. They stay for the other tests: to delete them would take longer than
// all that is tested.
func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithCancel(context.Background()) // that of the test ends before its clean-ups
	t.Cleanup(cancel)
	w := &world{T: t, site: shared, ctx: ctx}
	w.parallel(100, func(i int) error { return w.createNamespace(target(i)) })
	if err := w.createNamespace(home); err != nil {
		t.Fatal(err)
	}
	return w
}

// target is the name of a namespace with copies.
func target(i int) string { return fmt.Sprintf("team-%03d", i) }

func targets() []string {
	var out []string
	for i := range 100 {
		out = append(out, target(i))
	}
	return out
}

func (w *world) createNamespace(name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := w.admin.CoreV1().Namespaces().Create(w.ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// parallel calls f with 0 to n-1, ten at a time, and fails the test if a call does.
func (w *world) parallel(n int, f func(i int) error) {
	w.Helper()
	errs := make([]error, n)
	places := make(chan struct{}, 10)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			errs[i] = f(i)
			<-places
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		w.Fatal(err)
	}
}

// sh runs a command of the shell in the folder of the repository, as a user would, and returns what it prints. Where kubectl gets
// no answer in time, as on a slow machine, it runs the command again.
func (w *world) sh(command string) string {
	w.Helper()
	var out string
	var err error
	w.until("an answer to "+command, func() error {
		if out, err = w.try(w.ctx, repository, command); strings.Contains(out, "Unable to connect to the server") {
			return errors.New(out)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// try is sh in another folder, for a command that may fail.
func (w *world) try(ctx context.Context, dir, command string) (string, error) {
	bin, err := filepath.Abs(filepath.Join(repository, "bin"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", command)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + w.node.bin + ":" + bin + ":" + os.Getenv("PATH"),
		"KUBECONFIG=" + w.node.kubeconfig(admin), "HOME=" + filepath.Join(w.node.dir, "home"), "KUBERC=off",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s\n%w\n%s", command, err, out)
	}
	return string(out), err
}

// eventually waits until the condition returns nil. It is asked again at each change of a ConfigMap or a namespace.
func (w *world) eventually(what string, condition func() error) {
	w.Helper()
	if err := w.seen.Eventually(w.ctx, patient, condition); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// until is eventually for what the watch does not show.
func (w *world) until(what string, condition func() error) {
	w.Helper()
	if err := w.node.until(w.ctx, condition); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// source makes a ConfigMap in the home namespace, or replaces its data, and labels it. It is unlabelled at the end of the
// test, if not before.
func (w *world) source(name string, data map[string]string) {
	w.Helper()
	configMaps := w.admin.CoreV1().ConfigMaps(home)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mirror": "true"}}, Data: data}
	_, err := configMaps.Create(w.ctx, cm, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = configMaps.Update(w.ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// waitInSync waits until the namespaces have copies with that data.
func (w *world) waitInSync(name string, data map[string]string, namespaces ...string) {
	w.Helper()
	w.eventually("copies of "+name+" in sync", func() error {
		for _, namespace := range namespaces {
			cm := w.seen.ConfigMap(namespace, name)
			if cm == nil || cm.Labels["mirror"] != "copy" || !maps.Equal(cm.Data, data) {
				return fmt.Errorf("not in %s", namespace)
			}
		}
		return nil
	})
}

// waitGone waits until there is no ConfigMap of the name in the namespaces.
func (w *world) waitGone(name string, namespaces ...string) {
	w.Helper()
	w.eventually("copies of "+name+" gone", func() error {
		for _, namespace := range namespaces {
			if w.seen.ConfigMap(namespace, name) != nil {
				return fmt.Errorf("there is one in %s", namespace)
			}
		}
		return nil
	})
}

// expectMirrors publishes something and waits until it is everywhere.
func (w *world) expectMirrors(value string) {
	w.Helper()
	data := map[string]string{"key": value}
	w.source("settings", data)
	w.waitInSync("settings", data, targets()...)
}
