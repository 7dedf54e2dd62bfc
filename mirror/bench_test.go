package mirror

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
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

// BenchmarkPlan is what a slice of a round costs in which a third of the copies is missing, a third out of date, and a third
// in line, with two sources of the name.
func BenchmarkPlan(b *testing.B) {
	r := testRules()
	src, newer := tenKiB(), tenKiB()
	newer.Data["key-0"] = "new"
	v := viewOf(r, "settings", newer, sourceCM("workshop", "settings"))
	var targets []target
	for i, ns := range numbered("team", sliceSize) {
		t := target{namespace: ns, object: namespace(ns)}
		if i%3 > 0 {
			t.have = copyCM(r, []*corev1.ConfigMap{src, newer}[i%3-1], ns)
			r.strip(t.have)
		}
		targets = append(targets, t)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.plan(v, targets)
	}
}

// inCaches returns a controller that leads, with 10,000 namespaces and 100 sources in its caches, and no copies.
func inCaches(b *testing.B) *Controller {
	b.Helper()
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	c, err := New(fake.NewClientset(), &diary{}, o)
	if err != nil {
		b.Fatal(err)
	}
	for _, ns := range numbered("team", 10_000) {
		if err := c.namespaces.GetIndexer().Add(namespace(ns)); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range numbered("settings", 100) {
		if err := c.configMaps.GetIndexer().Add(sourceCM("platform", name)); err != nil {
			b.Fatal(err)
		}
	}
	c.active.Store(true)
	return c
}

// BenchmarkCopyEvent is an event about one copy, up to the plan for it.
func BenchmarkCopyEvent(b *testing.B) {
	c := inCaches(b)
	have := copyCM(c.rules, sourceCM("platform", "settings-000"), "team-000")
	c.rules.strip(have)
	if err := c.configMaps.GetIndexer().Add(have); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.configMapChanged(have)
		jobs := c.takeAll("settings-000")
		if len(jobs) != 1 {
			b.Fatalf("got %d targets to look at, want 1", len(jobs))
		}
		c.rules.plan(c.view("settings-000"), []target{c.target("settings-000", jobs[0])})
	}
}

// BenchmarkNewNamespace is an event about a namespace, up to the plan for each of its copies.
func BenchmarkNewNamespace(b *testing.B) {
	c := inCaches(b)
	names := numbered("settings", 100)
	b.ReportAllocs()
	for b.Loop() {
		c.namespaceChanged("team-000")
		for _, name := range names {
			jobs := c.takeAll(name)
			if len(jobs) != 1 {
				b.Fatalf("%s: got %d targets to look at, want 1", name, len(jobs))
			}
			c.rules.plan(c.view(name), []target{c.target(name, jobs[0])})
		}
	}
}

// takeAll takes what is due of a name, and notes that it is done.
func (c *Controller) takeAll(name string) (jobs []job) {
	jobs, _ = c.backlog.take(name, sliceSize, func() []string { return nil })
	for _, j := range jobs {
		c.backlog.done(name, j.namespace)
	}
	return jobs
}

// BenchmarkTargets is what it costs to find the targets of a changed source.
func BenchmarkTargets(b *testing.B) {
	c := inCaches(b)
	b.ReportAllocs()
	for b.Loop() {
		if n := len(c.targetsOf("settings-000")); n < 10_000 {
			b.Fatalf("got %d targets, want 10,000 or more", n)
		}
	}
}

// BenchmarkReadSource is what a changed source costs before it is compared with its copies.
func BenchmarkReadSource(b *testing.B) {
	r := testRules()
	src := tenKiB()
	b.ReportAllocs()
	for b.Loop() {
		r.readSource(src)
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
	targets := numbered("team", 10_000)
	list := func() []string { return targets }
	backlog, ledger := newBacklog(), newLedger(DefaultLabel)
	ledger.opens("settings", src)
	b.ReportAllocs()
	for b.Loop() {
		backlog.markAll("settings")
		for more := true; more; {
			var jobs []job
			jobs, more = backlog.take("settings", 64, list)
			for _, j := range jobs {
				ledger.enter(src, j.namespace, standing{outcome: outcomeSynced, wrote: true})
				backlog.done("settings", j.namespace)
			}
		}
		ledger.says("settings")
	}
}

// BenchmarkLook measures what comes before each write: the sources of the name are read, and the ledger knows them already.
func BenchmarkLook(b *testing.B) {
	for _, sources := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("%d sources of the name", sources), func(b *testing.B) {
			o := NewOptions()
			o.NamespacePrefixes = []string{"team-"}
			c, err := New(fake.NewClientset(), &diary{}, o)
			if err != nil {
				b.Fatal(err)
			}
			for i := range sources {
				if err := c.configMaps.GetIndexer().Add(sourceCM(fmt.Sprintf("platform-%04d", i), "settings")); err != nil {
					b.Fatal(err)
				}
			}
			c.look("settings")
			b.ReportAllocs()
			for b.Loop() {
				c.lookBehind("settings")
			}
		})
	}
}
