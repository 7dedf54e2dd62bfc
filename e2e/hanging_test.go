package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestC45HangingTargets has a webhook hang at each write to a hundred new namespaces, until the API server gives up after 30
// seconds. The others have their copies meanwhile: at first contact, when the source is edited, and in a namespace that is new.
// One after the other, the hanging calls would take half an hour. The hanging namespaces get their copies when the webhook answers.
// `make bench` measures how long the others wait.
func TestC45HangingTargets(t *testing.T) {
	t.Parallel()
	s, err := newSite(t.Context()) // its API server has few places for requests that hang
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorldAt(t, s)
	healthy := w.createMany(100)
	label := map[string]string{"hangs": "yes"}
	bad := []string{w.createNamespace(w.ns("bad-0"), label).Name}
	answering := make(chan struct{})
	w.startWebhookBy(&metav1.LabelSelector{MatchLabels: label}, bad[0], func(*admissionv1.AdmissionRequest) error {
		<-answering
		return nil
	})
	answer := sync.OnceFunc(func() { close(answering) })
	w.Cleanup(answer) // before the webhook is stopped, which waits for its calls
	w.start("--concurrent-writes=2")
	w.settle(healthy...)
	for len(bad) < 100 {
		bad = append(bad, w.createNamespace(w.ns(fmt.Sprintf("bad-%d", len(bad))), label).Name)
	}
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, healthy...)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, healthy...)
	fresh := w.createNamespace(w.ns("fresh"), nil).Name
	w.waitInSync(source, fresh)
	w.waitInSync(w.createSource(w.home, "second"), append(healthy, fresh)...)
	if n := w.count(bad, "settings"); n > 0 {
		t.Errorf("%d namespaces did not hang", n)
	}

	answer()
	w.waitInSync(source, slices.Concat(healthy, bad, []string{fresh})...)
	made := map[string]int{}
	for _, e := range writesTo(w.requests(), "settings") {
		switch {
		case e.Verb == "delete":
			t.Errorf("a copy was deleted: %v", e)
		case e.Verb == "create" && e.Response.Code == http.StatusCreated:
			made[e.Object.Namespace]++
		}
	}
	for namespace, n := range made {
		if n > 1 {
			t.Errorf("%d copies were created in %s", n, namespace)
		}
	}
}
