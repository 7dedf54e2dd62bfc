package faults

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC45HangingTargets has a webhook hang at each write to a hundred new namespaces, until the API server gives up after 30
// seconds. The others have their copies meanwhile: at first contact, when the source is edited, and in a namespace that is new.
// One after the other, the hanging calls would take half an hour. The hanging namespaces get their copies when the webhook answers.
// `make bench` measures how long the others wait.
func TestC45HangingTargets(t *testing.T) {
	t.Parallel()
	w := suite.NewAlone(t) // its API server has few places for requests that hang
	healthy := w.CreateMany(100)
	label := map[string]string{"hangs": "yes"}
	bad := []string{w.CreateNamespace(w.NS("bad-0"), label).Name}
	answering := make(chan struct{})
	w.StartWebhookBy(&metav1.LabelSelector{MatchLabels: label}, bad[0], func(*admissionv1.AdmissionRequest) error {
		<-answering
		return nil
	})
	answer := sync.OnceFunc(func() { close(answering) })
	w.Cleanup(answer) // before the webhook is stopped, which waits for its calls
	w.Start("--concurrent-writes=2")
	w.Settle(healthy...)
	for len(bad) < 100 {
		bad = append(bad, w.CreateNamespace(w.NS(fmt.Sprintf("bad-%d", len(bad))), label).Name)
	}
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, healthy...)
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, healthy...)
	fresh := w.CreateNamespace(w.NS("fresh"), nil).Name
	w.WaitInSync(source, fresh)
	w.WaitInSync(w.CreateSource(w.Home, "second"), append(healthy, fresh)...)
	if n := w.Count(bad, "settings"); n > 0 {
		t.Errorf("%d namespaces did not hang", n)
	}

	answer()
	w.WaitInSync(source, slices.Concat(healthy, bad, []string{fresh})...)
	made := map[string]int{}
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
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
