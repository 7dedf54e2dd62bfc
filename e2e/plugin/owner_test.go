package plugin

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// owners are the two that ask about the same sources: an admin, and a publisher,
// who has edit in the namespace of the sources. Both have the same exit code and
// the same first line.
type owners struct {
	*suite.World
	publisher *user
}

func newOwners(w *suite.World) owners { return owners{w, newMember(w, "edit", w.Home)} }

// newMirrored returns owners of a source that has arrived in 33 targets, and the names of three of these.
func newMirrored(t *testing.T) (o owners, a, b, c string) {
	t.Helper()
	o = newOwners(suite.New(t, "a", "b", "c"))
	a, b, c = o.NS("a"), o.NS("b"), o.NS("c")
	o.CreateMany(30)
	o.CreateSource(o.Home, "settings")
	o.Start(suite.Graced(time.Hour)...)
	o.arrives("33 synced", a, b, c)
	return o, a, b, c
}

func (o owners) both(code int, command string, texts ...string) {
	o.Helper()
	first, _, _ := strings.Cut(admin(o.World).says(code, command, texts...).out, "\n")
	o.publisher.says(code, command, append(texts, first)...)
}

func (o owners) bothUntil(code int, command string, texts ...string) {
	o.Helper()
	admin(o.World).until(code, command, texts...)
	o.both(code, command, texts...)
}

// arrives waits for the source, at once after a change of it.
func (o owners) arrives(counts string, targets ...string) {
	o.Helper()
	o.both(0, "wait platform/settings", "platform/settings: InSync, "+counts, "!will be deleted")
	o.ExpectInSync(o.Live(o.Home, "settings"), targets...)
}

func (o owners) edit(options ...suite.Option) { o.Edit(o.Home, "settings", options...) }

// TestC70Changes follows each change of a source by a wait at once: a report from
// before the change does not count. More targets than the first page of a list has
// are in sync.
func TestC70Changes(t *testing.T) {
	t.Parallel()
	w := newOwners(suite.New(t, "a", "b", "c"))
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.CreateMany(30)
	w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	w.Start(suite.Graced(time.Hour)...)
	w.arrives("1 synced", a)
	w.edit(suite.WithoutAnnotation(plan.PrefixAnnotation))
	w.arrives("33 synced", a, b, c)
	for _, value := range []string{"one", "two", "one"} { // within ten seconds, and back
		w.edit(suite.WithKey("key", value))
		w.arrives("33 synced", a, b, c)
	}
}

// TestC70Reach waits in the same way while fewer targets are to have a change, or a copy.
func TestC70Reach(t *testing.T) {
	t.Parallel()
	w, a, b, c := newMirrored(t)
	w.edit(suite.WithAnnotation(plan.RolloutAnnotation, "kubernetes.io/metadata.name="+a), suite.WithKey("key", "new"))
	w.arrives("1 synced, 32 held", a)
	w.edit(suite.WithoutAnnotation(plan.RolloutAnnotation))
	w.arrives("33 synced", a, b, c)
	w.edit(suite.WithAnnotation(plan.PrefixAnnotation, a))
	w.both(0, "wait platform/settings", "platform/settings: InSync, 1 synced, 32 expiring",
		"\nExpiring: 32 copies in 32 namespaces")
	w.both(0, "status -n platform", "UNTIL", "  Expiring")
	w.edit(suite.WithoutAnnotation(plan.PrefixAnnotation))
	w.arrives("33 synced", a, b, c)
}

// TestC70WithoutController asks before a controller has started, and after it has stopped: then the last report is of
// another version.
func TestC70WithoutController(t *testing.T) {
	t.Parallel()
	w := newOwners(suite.New(t, "a"))
	w.CreateSource(w.Home, "settings")
	w.both(2, "status platform/settings", "platform/settings: NotKnown\nno controller of instance ")
	w.both(2, "wait platform/settings --timeout=5s", "Timed out after ")
	p := w.Start(suite.Graced(time.Hour)...)
	w.arrives("1 synced", w.NS("a"))
	w.Stop(p)
	w.edit(suite.WithKey("key", "new"))
	for _, command := range []string{"status", "wait --timeout=5s", "wait --timeout=5s --ignore-blocked"} {
		w.both(1, command+" platform/settings", "platform/settings: Pending")
	}
	w.Start(suite.Graced(time.Hour)...)
	w.arrives("1 synced", w.NS("a"))
}

// TestC70States is the table of the help.
func TestC70States(t *testing.T) {
	t.Parallel()
	w, a, b, c := newMirrored(t)

	lift := w.FillQuota(c, 2)
	w.CreateSource(w.Home, "rejected")
	w.Create(b, "blocked")
	w.CreateSource(w.Home, "blocked", suite.WithAnnotation(plan.PrefixAnnotation, a+","+b))
	fought := w.CreateSource(w.Home, "fought", suite.WithAnnotation(plan.PrefixAnnotation, a))
	// Ten repairs are a fight. One that was cut, and took effect all the same,
	// may not count.
	w.Until("the fight is reported", func() error {
		w.WaitInSync(fought, a)
		w.Edit(a, "fought", suite.WithKey("key", "theirs"))
		if w.Reasons(w.Home, "fought")[plan.ReasonFight] == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	w.WaitInSync(fought, a) // the fight is not over for that
	w.WaitEvent(w.Home, "fought", plan.ReasonMirrored, "(see "+plan.ReasonFight+")")
	w.CreateSource(w.Home, "frozen", suite.WithAnnotation(plan.PausedAnnotation, "yes"))
	w.CreateSource(w.Home, "nowhere", suite.WithAnnotation(plan.PrefixAnnotation, "none-"))
	for _, row := range []struct {
		ignoring, wait, status int // exit codes
		source, first          string
	}{
		{0, 1, 1, "rejected", "platform/rejected: Rejected, 32 synced, 1 rejected\n"},
		{0, 1, 1, "blocked", "platform/blocked: Blocked, 1 synced, 1 foreign"},
		{0, 1, 1, "fought", "platform/fought: Blocked, 1 fight\n"},
		{1, 1, 1, "frozen", "platform/frozen: Frozen\n"},
		{1, 1, 1, "nowhere", "platform/nowhere: NoTargets\n"},
	} {
		w.Row(row.source, func(in *suite.World) {
			for _, u := range []*user{admin(in), w.publisher.in(in)} {
				u.says(row.ignoring, "wait --ignore-blocked platform/"+row.source, row.first)
				u.says(row.wait, "wait --timeout=5s platform/"+row.source, row.first)
				u.says(row.status, "status platform/"+row.source, row.first)
			}
		})
	}
	w.both(1, "status platform/rejected", "\nWriteFailed: ", "exceeded quota: no-more")
	w.both(1, "status -n platform --problems", "blocked  Foreign  ", "rejected  WriteFailed  ",
		"frozen  InvalidAnnotation  ",
		"nowhere  NoTargets  ", "!settings  ")
	lift()
	w.both(0, "wait platform/rejected platform/settings", "platform/rejected: InSync", "platform/settings: InSync")
	w.both(1, "wait platform/rejected platform/blocked", "platform/rejected: InSync", "platform/blocked: Blocked")
	for _, u := range []*user{admin(w.World), w.publisher} {
		u.says(0, "explain platform/blocked", "ConfigMap platform/blocked is a source: kubectl mirror status ")
	}
	w.both(1, "status -n platform", "settings  InSync", "blocked  Blocked", "frozen  Frozen", "nowhere  NoTargets")
}

// TestC70Unblocked deletes what is in the way of a copy, which the controller notices within a minute.
func TestC70Unblocked(t *testing.T) {
	t.Parallel()
	w := newOwners(suite.New(t, "a", "b"))
	inTheWay := w.Create(w.NS("b"), "settings")
	w.CreateSource(w.Home, "settings")
	w.Start()
	w.both(1, "wait platform/settings", "platform/settings: Blocked, 1 synced, 1 foreign")
	w.Delete(w.NS("b"), inTheWay.Name)
	w.bothUntil(0, "status platform/settings", "platform/settings: InSync, 2 synced", "!Foreign")
}

// TestC70Gone has a source that is gone, and one with another label: until when their copies stay, and how to keep
// them. A tenant has view in a target: no command is for another namespace.
func TestC70Gone(t *testing.T) {
	t.Parallel()
	w := newOwners(suite.New(t, "a", "b", "c"))
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.CreateMany(30)
	tenant := newMember(w.World, "view", a)
	for _, name := range []string{"settings", "gone"} {
		w.CreateSource(w.Home, name)
	}
	w.CreateSource(w.Home, "unlabelled", suite.WithAnnotation(plan.PrefixAnnotation, a+","+b))
	p := w.Start(suite.Graced(time.Hour)...)
	w.both(0, "wait platform/settings platform/gone platform/unlabelled", "platform/settings: InSync, 33 synced",
		"platform/gone: InSync, 33 synced", "platform/unlabelled: InSync, 2 synced")
	w.Delete(w.Home, "gone")
	w.Edit(w.Home, "unlabelled", suite.WithLabel(w.Label, "True"))
	w.WaitEvent(w.Home, "gone", plan.ReasonExpiring, "33 copies in ")
	w.WaitEvent(w.Home, "unlabelled", plan.ReasonExpiring, "2 copies in ")
	for _, command := range []string{"status", "wait"} {
		w.both(1, command+" platform/gone", "platform/gone: Gone, 33 expiring",
			"Expiring: 33 copies in 33 namespaces")
		w.both(1, command+" platform/unlabelled", "platform/unlabelled: Gone, 2 expiring",
			"its label mirror=True does not publish it: "+
				"kubectl label configmap/unlabelled -n platform mirror=true --overwrite")
	}
	w.Edit(w.Home, "unlabelled", suite.WithLabel(w.Label, plan.SourceValue))
	w.both(0, "wait platform/unlabelled", "platform/unlabelled: InSync, 2 synced", "!will be deleted")
	for _, u := range []*user{admin(w.World), tenant} {
		u.says(2, "wait team-a/settings",
			"no source team-a/settings: ConfigMap team-a/settings is a copy of platform/settings, ")
	}
	w.Stop(p)

	// The flags rule out a source, which changes then, and one that is gone expires soon after.
	p = w.Start("--source-namespace=elsewhere", "--deletion-grace=1s")
	w.edit(suite.WithKey("key", "five"))
	w.bothUntil(1, "status platform/settings", "platform/settings: OutOfScope, 33 out_of_scope\n", "OutOfScope: Version ")
	w.both(1, "wait platform/settings", "platform/settings: OutOfScope")
	w.Stop(p)
	p = w.Start("--deletion-grace=15s") // a busy machine sends no event within a second
	w.WaitGone("gone", a, b, c)
	w.bothUntil(1, "status platform/gone", "platform/gone: Gone\nit is no source any more: its copies in scope "+
		"were to be deleted by ", "!Expiring: ")
	w.both(1, "wait platform/gone", "platform/gone: Gone\n")
	w.arrives("33 synced", a, b, c)
	w.Stop(p)
	const copied = "ConfigMap team-a/settings is a copy of platform/settings, by its annotations, of instance "
	tenant.prints(0, "explain settings", copied+w.Instance+`. Its content matches its checksum.
To change that: ask the owner of platform/settings to leave your namespace out, or opt out of all copies: `+
		"if you may patch the namespace, kubectl label namespace team-a mirror=false")
	w.OptOut(plan.OptOutValue, "a")
	tenant.says(0, "explain settings", "It is deleted at the end of the deletion grace", "\nTo change that: remove that ")
	w.Sh("kubectl delete events -n " + w.Home + " --all") // the API server does that after an hour
	w.both(2, "status platform/settings", "platform/settings: NotKnown")
	w.both(2, "status platform/gone", "no source platform/gone: ")
	w.publisher.says(2, "status -A", " is forbidden: ")
	blind := newPerson(w.World, "blind", may("", "configmaps", "list", "get"))
	blind.says(2, "status platform/settings", "events is forbidden: ")
	blind.says(0, "explain platform/unlabelled", "ConfigMap platform/unlabelled is a source: ")
}

// TestC69OddData has data that no YAML can hold: the copies are identical, and only JSON has a control character.
func TestC69OddData(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	odd := suite.WithData(map[string]string{
		"controls": "\x7f\u0080\u009f\ufffe\x1b[2J", "bom": "\ufefftext\r\nmore\r\n", "invalid": "\xff\xfe",
	})
	raw := suite.WithBinaryData(map[string][]byte{"raw": {0, 0xff, 0xfe}})
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings", odd, raw), a, b)
	w.Edit(a, "settings", suite.WithLabel("theirs", "x")) // so the copy is read before its update
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithKey("more", "\xff")), a, b)
	admin(w).says(0, "wait platform/settings", "platform/settings: InSync")
	w.Stop(p)
	w.Edit(a, "settings", suite.WithKey("controls", "\x7f\x1b[2J"), suite.WithAnnotation("theirs", "\x7f\x1b[2J"))
	w.Delete(b, "settings")
	w.Create(b, "settings", odd, suite.WithAnnotation(plan.CopyAnnotation, b+"/settings"),
		suite.WithAnnotation(plan.InstanceAnnotation, "\x7f\x1b[2J")) // So it is foreign.
	prints := func(w *suite.World, command string, code int) {
		out := admin(w).says(code, command, "").out
		admin(w).says(code, command+" -o json", "")
		isControl := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
		if at := strings.IndexFunc(out, isControl); at >= 0 {
			w.Errorf("%s: control character at %d of %q", command, at, out)
		}
	}
	for command, code := range map[string]int{
		"plan": 1, "plan platform/settings": 1, "explain team-b/settings": 0, "explain team-a/settings": 0,
		"purge --dry-run": 0,
	} {
		w.Row(command, func(w *suite.World) { prints(w, command, code) })
	}
	w.Start()
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
	admin(w).until(1, "wait platform/settings", "Foreign: Not copied to namespace team-b: a copy of instance ")
	for _, command := range []string{"status -A", "status platform/settings", "status -A --problems"} {
		w.Row(command, func(w *suite.World) { prints(w, command, 1) })
	}
}
