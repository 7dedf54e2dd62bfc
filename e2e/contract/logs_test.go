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

// secret is what must not be in a log. It is short, and repeated, so that a part of it shows in dumps that are cut
// into lines of 16 bytes, and in base64 at each of the three places where it can begin.
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
			w.Stop(p)

			log := p.Log()
			request := "/api/v1/namespaces/" + good + "/configmaps"
			for _, happened := range []string{"Copy written", "Copy out of sync", "Copy deleted", request, "xxxx"} {
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
