package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
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

func withSecrets(version int) option {
	value := fmt.Sprint(secrets, version)
	text, binary := withData(map[string]string{"text": value}), withBinaryData(map[string][]byte{"binary": []byte("\x00\xff" + value)})
	return func(cm *corev1.ConfigMap) { text(cm); binary(cm) }
}

// TestLogsHoldNoData has a controller at the highest verbosity do all that it can do with data: create, update, restore, adopt, read,
// delete, be refused. The data is nowhere in its log, of which nobody knows who reads it.
func TestLogsHoldNoData(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "good", "full", "judged", "taken")
			good, full, judged, taken := w.ns("good"), w.ns("full"), w.ns("judged"), w.ns("taken")
			w.create(taken, "settings", withSecrets(0))
			_, raiseQuota := refuseByQuota(w, full)
			hook := w.startWebhook(judged, func(*admissionv1.AdmissionRequest) error { return errors.New("not here") })
			p := w.start("-v=10", "--logging-format="+format, "--copy-annotation=example.com/*")

			source := w.createSource(w.home, "settings", withSecrets(1))
			w.waitInSync(source, good)
			w.waitEvent(w.home, "settings", mirror.ReasonForeign)
			w.waitEvent(w.home, "settings", mirror.ReasonWriteFailed)
			const key, allAnnotations = "example.com/long", 256 << 10
			w.createSource(w.home, "long", withSecrets(1), withAnnotation(key, strings.Repeat("x", allAnnotations-len(key))))
			w.waitEvent(w.home, "long", mirror.ReasonWriteFailed)

			hook.allow()
			raiseQuota()
			w.edit(taken, "settings", withAnnotation(plan.AdoptAnnotation, "true"), withLabel(w.label, plan.CopyValue))
			w.edit(good, "settings", withSecrets(2))
			source = w.edit(w.home, "settings", withSecrets(3))
			w.waitInSync(source, good, full, judged, taken)
			w.edit(w.home, "settings", withoutLabel(w.label))
			w.waitGone("settings", good, full, judged, taken)
			w.delete(w.home, "long")
			w.settle(good)
			w.stop(p)

			log := p.Log()
			for _, happened := range []string{"Copy written", "Copy out of sync", "Copy deleted", "/api/v1/namespaces/" + good + "/configmaps"} {
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

// TestC47LongValuesInTheLog has values of 250 KB in all places that the controller reads and a tenant can write, and in an answer of
// the API server. No line of the log is longer than maxLine at any verbosity: expectShortLines judges the controllers of all tests.
func TestC47LongValuesInTheLog(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 250<<10)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b", "judged")
			a, b, judged := w.ns("a"), w.ns("b"), w.ns("judged")
			w.startWebhook(judged, func(*admissionv1.AdmissionRequest) error { return errors.New(long) })
			p := w.start("-v=7", "--logging-format="+format)
			w.createSource(w.home, "selector", withAnnotation(plan.SelectorAnnotation, "a in ("+long))
			w.createSource(w.home, "prefix", withAnnotation(plan.PrefixAnnotation, "-"+long))
			for _, name := range []string{"selector", "prefix"} {
				w.waitEvent(w.home, name, mirror.ReasonInvalidAnnotation)
			}
			for i, key := range []string{plan.SourceAnnotation, plan.CopyAnnotation, plan.InstanceAnnotation, plan.AdoptAnnotation,
				plan.ChecksumAnnotation, plan.CopiedAnnotation} {
				name, orphan := fmt.Sprint("forged-", i), fmt.Sprint("orphan-", i)
				for _, name := range []string{name, orphan} {
					w.create(a, name, append(w.marksOfCopy(w.home, a, name), withAnnotation(key, long+"/"+name))...)
				}
				w.waitInSync(w.createSource(w.home, name), b)
				w.waitEvent(w.home, name, mirror.ReasonWriteFailed) // by the webhook
			}
			w.settle(b)
			w.stop(p)
			if !strings.Contains(p.Log(), "xxxx") {
				t.Errorf("there is nothing of the values in the log:\n%s", lastLines(p.Log(), 60))
			}
		})
	}
}

// lowerCamel is the style of the keys of the log.
var lowerCamel = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// TestLogsInJSON reads each line of the log of a controller that logs its decisions.
func TestLogsInJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.create(b, "settings")
	p := w.start("-v=4", "--logging-format=json", "--health-probe-bind-address=127.0.0.1:0")
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a)
	w.waitEvent(w.home, "settings", mirror.ReasonForeign)
	w.edit(a, "settings", withData(nil))
	w.waitInSync(source, a)
	w.delete(w.home, "settings")
	w.waitGone("settings", a)
	w.stop(p)
	lines, types := 0, map[string]string{} // log stores refuse a key that is now a text and now an object
	for line := range strings.Lines(p.Log()) {
		lines++
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		if message, _ := fields["msg"].(string); message == "" {
			t.Errorf("no message: %s", line)
		}
		if at, _ := fields["ts"].(float64); at == 0 {
			t.Errorf("no time: %s", line)
		}
		// An error has no verbosity: it is logged at each.
		if _, leveled := fields["v"].(float64); !leveled && fields["err"] == nil {
			t.Errorf("neither a verbosity nor an error: %s", line)
		}
		for key, value := range fields {
			if before, now := types[key], fmt.Sprintf("%T", value); before == "" {
				types[key] = now
			} else if before != now {
				t.Errorf("key %q is %s, and was %s before: %s", key, now, before, line)
			}
			if !lowerCamel.MatchString(key) {
				t.Errorf("key %q is not in lowerCamel: %s", key, line)
			}
		}
	}
	if lines < 10 {
		t.Errorf("only %d lines:\n%s", lines, p.Log())
	}
}

// TestLogsOutcomes compares the log of a controller's life with what an operator has to know. It has a line for what came of a
// source, none for each edit that comes to the same, and none for a copy.
func TestLogsOutcomes(t *testing.T) {
	t.Parallel()
	const copies = 20 // fewer than there are places for writes, so that none is cut
	var targets []string
	for n := range copies {
		targets = append(targets, fmt.Sprint(n))
	}
	w := newWorld(t, targets...)
	for n := range targets {
		targets[n] = w.ns(targets[n])
	}
	p := w.start("--logging-format=json")
	synced, deleted := fmt.Sprintf("Synced to %d namespaces", copies), fmt.Sprintf("Deleted %d copies in %d namespaces", copies, copies)
	w.createSource(w.home, "settings")
	w.waitLog(p, synced)
	w.waitInSync(w.edit(w.home, "settings", withData(map[string]string{"key": "other"})), targets...)
	w.edit(w.home, "settings", withoutLabel(w.label))
	w.waitGone("settings", targets...)
	w.waitLog(p, deleted)
	w.stop(p)
	var got []string
	for line := range strings.Lines(p.Log()) {
		var fields struct {
			Caller, Msg string
		}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		// The mutation detector is on in tests only. Other lines of client-go come from a busy machine.
		if !strings.HasPrefix(fields.Caller, "cache/") && !strings.HasPrefix(fields.Caller, "trace/") {
			what, _, _ := strings.Cut(fields.Msg, " (") // where
			got = append(got, what)
		}
	}
	want := []string{"Starting", "Mirroring", synced, deleted, "Stopping, a second signal ends the process at once", "Stopped, no write in flight"}
	if !slices.Equal(got, want) {
		t.Errorf("the log has the lines %q, want %q", got, want)
	}
}
