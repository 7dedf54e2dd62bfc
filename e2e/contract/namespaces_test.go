package contract

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC29NamespaceRecreated deletes namespaces while all are written to, one of them when it has just been created,
// and creates them anew as soon as the API server takes it: each is filled, and nothing that the API server says
// meanwhile counts as an error. Case C28.
func TestC29NamespaceRecreated(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	names := w.CreateMany(9)
	recreated := names[:8] // one stays, so that there is always a target
	p := w.Start("--resync-period=0")
	sources := make([]*corev1.ConfigMap, 5)
	for i := range sources {
		sources[i] = w.CreateSource(w.Home, fmt.Sprint("settings-", i))
		w.WaitInSync(sources[i], names...)
	}
	brief := w.CreateNamespace(w.NS("brief"), nil).Name
	for _, name := range append([]string{brief}, recreated...) {
		w.DeleteNamespace(name)
	}
	for i, source := range sources {
		sources[i] = w.Edit(w.Home, source.Name, suite.WithKey("key", "two"))
	}
	anew := 0
	w.Until("the namespaces are there anew", func() error {
		for ; anew < len(recreated); anew++ {
			_, err := w.Admin.CoreV1().Namespaces().Create(w.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: recreated[anew]}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, source := range sources {
		w.WaitInSync(source, names...)
	}
	w.WaitNamespaceGone(brief)
	for _, source := range sources {
		if reasons := w.Reasons(w.Home, source.Name); reasons[plan.ReasonWriteFailed] > 0 {
			t.Errorf("events on %s: %v", source.Name, reasons)
		}
	}
	w.Stop(p)
	for line := range strings.Lines(p.Log()) {
		if strings.HasPrefix(line, "E") {
			t.Errorf("an error in the log: %s", line)
		}
	}
}
