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

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// secret is what must not be in a log. It is short, and repeated, so that a part of it shows in dumps that are cut into lines of
// 16 bytes, and in base64 at each of the three places where it can begin.
const secret = "canary"

var secrets = strings.Repeat(secret, 40)

// traces are what of secrets a log could hold: as it is, in base64, and in hexadecimal.
func traces() []string {
	out := []string{secret, hex.EncodeToString([]byte(secret)), fmt.Sprintf("% x", secret)}
	for n := range 3 {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(secret[n:]+secret[:n])))
	}
	return out
}

func withSecrets(version int) suite.Option {
	value := fmt.Sprint(secrets, version)
	text := suite.WithData(map[string]string{"text": value})
	binary := suite.WithBinaryData(map[string][]byte{"binary": []byte("\x00\xff" + value)})
	return func(cm *corev1.ConfigMap) { text(cm); binary(cm) }
}

// TestLogsHoldNoData has a controller at the highest verbosity do all that it can do with data: create, update, restore,
// adopt, read, delete, be refused. The data is nowhere in its log, of which nobody knows who reads it.
func TestLogsHoldNoData(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "good", "full", "judged", "taken")
			good, full, judged, taken := w.NS("good"), w.NS("full"), w.NS("judged"), w.NS("taken")
			w.Create(taken, "settings", withSecrets(0))
			_, raiseQuota := suite.RefuseByQuota(w, full)
			hook := w.StartWebhook(judged, func(*admissionv1.AdmissionRequest) error { return errors.New("not here") })
			p := w.Start("-v=10", "--logging-format="+format, "--copy-annotation=example.com/*")

			source := w.CreateSource(w.Home, "settings", withSecrets(1))
			w.WaitInSync(source, good)
			w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
			w.WaitEvent(w.Home, "settings", plan.ReasonWriteFailed)
			const key, allAnnotations = "example.com/long", 256 << 10
			w.CreateSource(w.Home, "long", withSecrets(1), suite.WithAnnotation(key, strings.Repeat("x", allAnnotations-len(key))))
			w.WaitEvent(w.Home, "long", plan.ReasonWriteFailed)

			hook.Allow()
			raiseQuota()
			w.Edit(taken, "settings", suite.WithAnnotation(plan.AdoptAnnotation, "true"), suite.WithLabel(w.Label, plan.CopyValue))
			w.Edit(good, "settings", withSecrets(2))
			source = w.Edit(w.Home, "settings", withSecrets(3))
			w.WaitInSync(source, good, full, judged, taken)
			w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
			w.WaitGone("settings", good, full, judged, taken)
			w.Delete(w.Home, "long")
			w.Settle(good)
			w.Stop(p)

			log := p.Log()
			request := "/api/v1/namespaces/" + good + "/configmaps"
			for _, happened := range []string{"Copy written", "Copy out of sync", "Copy deleted", request} {
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

// TestC47LongValuesInTheLog has values of 250 KB in all places that the controller reads and a tenant can write, and in an
// answer of the API server. No line of the log is longer than maxLine at any verbosity: expectShortLines judges the
// controllers of all tests.
func TestC47LongValuesInTheLog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 250<<10)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b", "judged")
			a, b, judged := w.NS("a"), w.NS("b"), w.NS("judged")
			w.StartWebhook(judged, func(*admissionv1.AdmissionRequest) error { return errors.New(long) })
			p := w.Start("-v=7", "--logging-format="+format)
			w.CreateSource(w.Home, "selector", suite.WithAnnotation(plan.SelectorAnnotation, "a in ("+long))
			w.CreateSource(w.Home, "prefix", suite.WithAnnotation(plan.PrefixAnnotation, "-"+long))
			for _, name := range []string{"selector", "prefix"} {
				w.WaitEvent(w.Home, name, plan.ReasonInvalidAnnotation)
			}
			for i, key := range []string{plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation, plan.AdoptAnnotation,
				plan.ChecksumAnnotation, plan.CopiedAnnotation} {
				name, orphan := fmt.Sprint("forged-", i), fmt.Sprint("orphan-", i)
				for _, name := range []string{name, orphan} {
					w.Create(a, name, append(w.MarksOfCopy(w.Home, a, name), suite.WithAnnotation(key, long+"/"+name))...)
				}
				w.WaitInSync(w.CreateSource(w.Home, name), b)
				w.WaitEvent(w.Home, name, plan.ReasonWriteFailed) // by the webhook
			}
			w.Settle(b)
			w.Stop(p)
			if !strings.Contains(p.Log(), "xxxx") {
				t.Errorf("there is nothing of the values in the log:\n%s", suite.LastLines(p.Log(), 60))
			}
		})
	}
}
