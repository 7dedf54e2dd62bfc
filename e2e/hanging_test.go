package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hangs is how long the webhook takes for an answer: the API server waits for a second more.
const hangs = 29 * time.Second

// TestC45HangingTargets has a webhook hang for 29 seconds at each write to a hundred new namespaces. The others have their
// copies within 3 seconds: at first contact, when the source is edited, and in a namespace that is new. The hanging
// namespaces get theirs when the webhook answers. A busy machine may take several times as long.
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
	const most = 15 * time.Second
	w := newWorldAt(t, s)
	healthy := w.createMany(100)
	label := map[string]string{"hangs": "yes"}
	bad := []string{w.createNamespace(w.ns("bad-0"), label).Name}
	answering := make(chan struct{})
	w.startWebhookBy(&metav1.LabelSelector{MatchLabels: label}, bad[0], func(*admissionv1.AdmissionRequest) error {
		select {
		case <-answering:
		case <-time.After(hangs):
		}
		return nil
	})
	w.start()
	w.settle(healthy...)
	for len(bad) < 100 {
		bad = append(bad, w.createNamespace(w.ns(fmt.Sprintf("bad-%d", len(bad))), label).Name)
	}
	within := func(what string, began time.Time, source *corev1.ConfigMap, namespaces ...string) {
		t.Helper()
		w.waitInSync(source, namespaces...)
		took := time.Since(began)
		w.figure("%s: healthy copies are there after %.2fs, beside %d namespaces that hang, %d of which have a copy; 3s are promised",
			what, took.Seconds(), len(bad), w.count(bad, source.Name))
		if took > most {
			t.Errorf("%s: %v is too late", what, took)
		}
	}

	began := time.Now()
	source := w.createSource(w.home, "settings")
	within("a new source", began, source, healthy...)
	began = time.Now()
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	within("an edited source", began, source, healthy...)
	began = time.Now()
	fresh := w.createNamespace(w.ns("fresh"), nil).Name
	within("a new namespace", began, source, fresh)
	began = time.Now()
	within("another source", began, w.createSource(w.home, "second"), append(healthy, fresh)...)

	close(answering)
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
