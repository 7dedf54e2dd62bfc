package contract

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	mostData        = 1 << 20
	mostAnnotations = 256 << 10
)

// TestC25LargeSources has a source with the longest name, 253 characters with dots, and as much data as fits, which is
// copied, and one that leaves no room for the marks of a copy: refused, reported with the reason, and others go on.
// Case C09.
func TestC25LargeSources(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.Start("--copy-annotation=example.com/*")
	longest := strings.Repeat("a.", 126) + "b"
	large := w.CreateSource(w.Home, longest, suite.WithData(map[string]string{"key": strings.Repeat("x", mostData)}))
	w.WaitInSync(large, a, b)
	w.WaitEvent(w.Home, longest, plan.ReasonMirrored)

	const key = "example.com/long"
	w.WaitInSync(w.CreateSource(w.Home, "long", suite.WithAnnotation(key, "not yet")), a, b)
	copies := w.Copies("long", a, b)
	w.Edit(w.Home, "long", suite.WithAnnotation(key, strings.Repeat("x", mostAnnotations-len(key))))
	w.WaitEvent(w.Home, "long", plan.ReasonWriteFailed, "annotations", a) // what is wrong, and where
	binary := suite.WithBinaryData(map[string][]byte{"key": make([]byte, mostData)})
	w.WaitInSync(w.Edit(w.Home, longest, suite.WithData(nil), binary), a, b)
	w.Untouched(copies...)
	w.WaitInSync(w.Edit(w.Home, "long", suite.WithAnnotation(key, "short"), suite.WithKey("key", "two")), a, b)
	w.Delete(w.Home, longest)
	w.WaitGone(longest, a, b)
}

// TestC71FilledMetadata has tenants fill the annotations or the labels of a copy up to the API server's limit, and
// edit its data: the copy is repaired in place, and their metadata stays. If they removed an annotation of ours to make
// room, the copy is too large with theirs, which go, but for the finalizer.
func TestC71FilledMetadata(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "annotations", "labels", "full")
	annotations, labels, full := w.NS("annotations"), w.NS("labels"), w.NS("full")
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, annotations, labels, full)
	before := w.Copies("settings", annotations, labels, full)

	const mine = "example.com/mine"
	fillAnnotations := func(cm *corev1.ConfigMap) {
		left := mostAnnotations - len(mine)
		for k, v := range cm.Annotations {
			left -= len(k) + len(v)
		}
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, mine, strings.Repeat("x", left))
	}
	fillLabels := func(cm *corev1.ConfigMap) {
		for i := range 4000 { // a megabyte: etcd takes a request of 1.5
			label := fmt.Sprintf("%s.example.com/mine-%04d", strings.Repeat("x", 63), i)
			metav1.SetMetaDataLabel(&cm.ObjectMeta, label, strings.Repeat("x", 63))
		}
	}
	edit := suite.WithKey("key", "edited")
	w.Edit(annotations, "settings", fillAnnotations, edit)
	w.Edit(labels, "settings", fillLabels, edit)
	w.Edit(full, "settings", func(cm *corev1.ConfigMap) {
		delete(cm.Annotations, plan.ChecksumAnnotation)
		cm.Finalizers = []string{mine}
	}, fillAnnotations, edit)
	w.WaitInSync(source, annotations, labels)
	w.Await("the mark is back", func() bool {
		return w.Seen.ConfigMap(full, "settings").Annotations[plan.ChecksumAnnotation] != ""
	})
	for i, cm := range w.Copies("settings", annotations, labels, full) {
		theirs := max(len(cm.Labels)-2, len(cm.Annotations[mine]))
		isFull := cm.Namespace == full
		if cm.UID != before[i].UID || (theirs == 0) != isFull || len(cm.Finalizers) > 0 != isFull {
			t.Errorf("%s: the same object: %v, with %d labels, %d bytes of theirs, finalizers %q", cm.Namespace,
				cm.UID == before[i].UID, len(cm.Labels), len(cm.Annotations[mine]), cm.Finalizers)
		}
	}
	w.Edit(full, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.WaitInSync(source, full)
}

// secret is what must not be in a log. It is short, and repeated, so that a part of it shows in dumps that are cut
// into lines of 16 bytes, and in base64 at each of the three places where it can begin.
const secret = "canary"

// traces are what of secrets a log could hold: as it is, in base64, and in hexadecimal.
func traces() []string {
	out := []string{secret, hex.EncodeToString([]byte(secret)), fmt.Sprintf("% x", secret)}
	for n := range 3 {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(secret[n:]+secret[:n])))
	}
	return out
}

func withSecrets(version int) suite.Option {
	value := fmt.Sprint(strings.Repeat(secret, 40), version)
	return func(cm *corev1.ConfigMap) {
		cm.Data = map[string]string{"text": value}
		cm.BinaryData = map[string][]byte{"binary": []byte("\x00\xff" + value)}
	}
}

// TestC47LogHoldsNoData has a controller at the highest verbosity do all that it can do with data: create, update,
// restore, adopt, read, delete, be refused by a quota and a webhook until they let it pass. The data is nowhere in its
// log, whoever reads that. Values of 250 KB are in all places that the controller reads and a tenant can write, and in
// an answer of the API server: the suite fails a test whose controller logs a long line. Case C30.
func TestC47LogHoldsNoData(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 250<<10)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "good", "full", "judged", "taken")
			good, full, judged, taken := w.NS("good"), w.NS("full"), w.NS("judged"), w.NS("taken")
			w.Create(taken, "settings", withSecrets(0))
			raiseQuota := w.FillQuota(full, 1)
			hook := w.StartWebhook(judged, func(*admissionv1.AdmissionRequest) error { return errors.New(long) })
			p := w.Start("-v=10", "--logging-format="+format, "--copy-annotation=example.com/*")

			for name, frozen := range map[string]suite.Option{
				"selector": suite.WithAnnotation(plan.SelectorAnnotation, "a in ("+long),
				"prefix":   suite.WithAnnotation(plan.PrefixAnnotation, "-"+long),
			} {
				w.CreateSource(w.Home, name, frozen)
				w.WaitEvent(w.Home, name, plan.ReasonInvalidAnnotation)
			}
			for i, key := range []string{plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation,
				plan.AdoptAnnotation, plan.ChecksumAnnotation, plan.CopiedAnnotation} {
				for _, name := range []string{fmt.Sprint("forged-", i), fmt.Sprint("orphan-", i)} {
					w.Create(taken, name, append(w.MarksOfCopy(w.Home, taken, name), suite.WithAnnotation(key, long+"/"+name))...)
				}
				w.WaitInSync(w.CreateSource(w.Home, fmt.Sprint("forged-", i), withSecrets(0)), good)
			}
			const key = "example.com/long"
			tooLong := suite.WithAnnotation(key, strings.Repeat("x", mostAnnotations-len(key)))
			w.CreateSource(w.Home, "long", withSecrets(1), tooLong)
			w.WaitEvent(w.Home, "long", plan.ReasonWriteFailed)
			w.Delete(w.Home, "long")
			source := w.CreateSource(w.Home, "settings", withSecrets(1))
			w.WaitInSync(source, good)
			w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
			w.WaitEvent(w.Home, "settings", plan.ReasonWriteFailed, full, judged, "exceeded quota: no-more")

			hook.Allow()
			raiseQuota()
			w.WaitInSync(source, good, full, judged)
			w.Edit(taken, "settings", handOver(w)...)
			w.Edit(good, "settings", withSecrets(2))
			w.WaitInSync(w.Edit(w.Home, "settings", withSecrets(3)), good, full, judged, taken)
			w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
			w.WaitGone("settings", good, full, judged, taken)
			n := 0
			// What was cut, and took effect all the same, is not in the log.
			w.Until("a write and a deletion are logged", func() error {
				log := p.Log()
				if strings.Contains(log, "Copy written") && strings.Contains(log, "Copy deleted") {
					return nil
				}
				n++
				again := w.CreateSource(w.Home, fmt.Sprint("again-", n), withSecrets(n))
				w.WaitInSync(again, good)
				w.Edit(w.Home, again.Name, suite.WithoutLabel(w.Label))
				w.WaitGone(again.Name, good)
				return fmt.Errorf("not after %d more sources", n)
			})
			w.Stop(p)

			log := p.Log()
			request := "/api/v1/namespaces/" + good + "/configmaps"
			for _, happened := range []string{"Copy out of sync", request, "xxxx"} {
				if !strings.Contains(log, happened) {
					t.Errorf("there is no %q in the log", happened)
				}
			}
			for _, trace := range traces() {
				if n := strings.Count(log, trace); n > 0 {
					i := strings.Index(log, trace)
					t.Errorf("%q is in the log %d times, first here:\n%s", trace, n, log[max(0, i-300):min(len(log), i+100)])
				}
			}
		})
	}
}
