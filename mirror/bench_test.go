package mirror

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// tenKiB returns a source of 10 KiB in ten keys, with metadata as tools leave it.
func tenKiB() *corev1.ConfigMap {
	cm := sourceCM("platform", "settings", label("app", "web"), annotation("note", "n"), managed)
	delete(cm.Data, "key")
	for i := range 10 {
		cm.Data[fmt.Sprintf("key-%d", i)] = strings.Repeat("x", 1024)
	}
	return cm
}

func BenchmarkPayloadDigest(b *testing.B) {
	cm := tenKiB()
	b.SetBytes(10 << 10)
	b.ReportAllocs()
	for b.Loop() {
		payloadDigest(cm)
	}
}

// BenchmarkStrip is what the cache does with each copy that comes in.
func BenchmarkStrip(b *testing.B) {
	r := testRules()
	have := copyCM(r, tenKiB(), "team-a", managed)
	b.ReportAllocs()
	for b.Loop() {
		cm := *have // strip replaces maps and changes none
		r.strip(&cm)
	}
}

// BenchmarkDecide is what a round costs for each copy that is in line.
func BenchmarkDecide(b *testing.B) {
	r := testRules()
	src := tenKiB()
	have := copyCM(r, src, "team-a")
	r.strip(have)
	v, t := viewOf(r, "settings", src), target{namespace: "team-a", object: namespace("team-a"), have: have}
	b.ReportAllocs()
	for b.Loop() {
		if c := r.decide(v, t); c.outcome != outcomeSynced {
			b.Fatalf("got %v, want it in line", c.outcome)
		}
	}
}

// BenchmarkDesired is what each write costs before it is sent.
func BenchmarkDesired(b *testing.B) {
	r := testRules()
	src := tenKiB()
	have := copyCM(r, src, "team-a")
	r.strip(have)
	s := r.readSource(src)
	b.ReportAllocs()
	for b.Loop() {
		r.desired(s, "team-a", have)
	}
}

// BenchmarkAsWritten is what each write costs when it is answered.
func BenchmarkAsWritten(b *testing.B) {
	r := testRules()
	src := tenKiB()
	s, made := r.readSource(src), copyCM(r, src, "team-a", managed)
	b.ReportAllocs()
	for b.Loop() {
		if !r.asWritten(s, made) {
			b.Fatal("it is not as written")
		}
	}
}

// BenchmarkRound is what the round of a source over 10,000 targets costs besides deciding and writing: which target is
// next, and how each stands.
func BenchmarkRound(b *testing.B) {
	r := testRules()
	src := r.readSource(tenKiB())
	targets := numbered("team-", 10_000)
	list := func() []string { return targets }
	backlog, ledger := newBacklog(), newLedger(DefaultLabel)
	ledger.open("settings", []*source{src})
	b.ReportAllocs()
	for b.Loop() {
		backlog.markAll("settings")
		for more := true; more; {
			var jobs []job
			jobs, more = backlog.take("settings", 64, list)
			for _, j := range jobs {
				ledger.enter(src.key, j.namespace, standing{outcome: outcomeSynced, wrote: true})
				backlog.done("settings", j.namespace)
			}
		}
		ledger.statements("settings")
	}
}
