package contract

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What the controller reads live, and namespaces: case C47. Each of these objects has some 1.3 MB of labels, which have no
// limit but that of a request.

// manyLabels returns labels of 1.3 MB in all, others for each n.
func manyLabels(n int) map[string]string {
	out := map[string]string{}
	for i := range 3500 {
		out[fmt.Sprintf("%0253d/%063d", n, i)] = fmt.Sprintf("%063d", n)
	}
	return out
}

// TestC47LabelsOfNamespaces fills targets with labels: nothing is changed in such a namespace until it has fewer.
func TestC47LabelsOfNamespaces(t *testing.T) {
	w := suite.New(t, "a", "b")
	p := startAsShipped(w)
	expectMirroring(w)
	const large = 100
	name := func(i int) string { return w.NS(fmt.Sprint("large-", i)) }
	ofAll := func(verb func(i int) error) error { return inParallel(large, verb) }
	relabel := func(i int, labels map[string]string) error {
		_, err := w.Admin.CoreV1().Namespaces().Update(w.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: labels}}, metav1.UpdateOptions{})
		return err
	}
	w.Cleanup(func() {
		w.CleanUp(ofAll(func(i int) error {
			return w.Admin.CoreV1().Namespaces().Delete(w.Background(), name(i), metav1.DeleteOptions{})
		}))
	})
	err := ofAll(func(i int) error {
		labels := manyLabels(i)
		labels[w.Label] = plan.OptOutValue // so that other controllers pass it by
		_, err := w.Admin.CoreV1().Namespaces().Create(w.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: labels}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	expectMirroring(w)
	expectBounded(w, "while they came", p, maxMemory)
	w.Stop(p)
	p = startAsShipped(w)
	expectMirroring(w)
	expectBounded(w, "started with them", p, maxMemory)
	if err := ofAll(func(i int) error { return relabel(i, map[string]string{}) }); err != nil {
		t.Fatal(err)
	}
	source := w.CreateSource(w.Home, "after")
	w.WaitInSync(source, name(0), name(large-1))
	if err := relabel(0, manyLabels(0)); err != nil {
		t.Fatal(err)
	}
	w.Delete(w.Home, source.Name)
	w.WaitGone(source.Name, name(large-1))
	w.Live(name(0), source.Name) // it stays
	expectBounded(w, "when they have few labels", p, maxMemory)
}

// TestC47SourcesOfForgedCopies has forged copies name large objects as their sources: the controller reads each of them live.
func TestC47SourcesOfForgedCopies(t *testing.T) {
	w := suite.New(t, "a", "b")
	sources, copies := w.Elsewhere("sources"), w.NS("a")
	p := startAsShipped(w)
	expectMirroring(w)
	const forged = 80
	name := func(i int) string { return fmt.Sprint("forged-", i) }
	w.Cleanup(func() {
		w.CleanUp(inParallel(forged, func(i int) error {
			return w.Admin.CoreV1().ConfigMaps(sources).Delete(w.Background(), name(i), metav1.DeleteOptions{})
		}))
	})
	err := inParallel(forged, func(i int) error {
		cm := suite.ConfigMap(sources, name(i))
		cm.Labels = manyLabels(i)
		_, err := w.Admin.CoreV1().ConfigMaps(sources).Create(w.Context(), cm, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = inParallel(forged, func(i int) error {
		cm := suite.ConfigMap(copies, name(i), w.MarksOfCopy(sources, copies, name(i))...)
		_, err := w.Admin.CoreV1().ConfigMaps(copies).Create(w.Context(), cm, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range forged {
		w.WaitGone(name(i), copies)
	}
	expectBounded(w, "reading their sources", p, maxMemory)
}
