package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Copies out of scope of the flags, and flags that are narrowed and widened: cases C14, C17, C44, C50 and C51.

const served = "--metrics-bind-address=127.0.0.1:0"

// outOfScope are the metrics of so many copies that are out of scope, where none expires.
func outOfScope(n int) map[string]float64 {
	return map[string]float64{`mirror_copies{state="out_of_scope"}`: float64(n), `mirror_copies{state="expiring"}`: 0}
}

// expectNoWrites fails the test if the world's controllers wrote a ConfigMap since the mark.
func expectNoWrites(w *suite.World, mark cluster.Mark) {
	w.Helper()
	if writes := suite.WritesTo(w.RequestsSince(mark), ""); len(writes) > 0 {
		w.Errorf("%d writes, the first is %v", len(writes), writes[0])
	}
}

// TestC17NarrowedFlags starts the controller with a typing error in each flag that decides. Names with one source
// and with two have 3 and 300 copies. With a grace of 0s a copy that is not out of scope goes at once.
func TestC17NarrowedFlags(t *testing.T) {
	t.Parallel()
	const few, many = 3, 300
	w := suite.New(t)
	targets, second := w.CreateMany(many), w.Elsewhere("second")
	right := map[string]string{"namespace-prefix": w.NS("n"), "exclude-namespace": w.NS("x*"),
		"source-namespace": w.Home + "," + second, "namespace-selector": "!off"}
	start := func(flag, typo string, args ...string) *shipped.Process {
		for name, value := range right {
			if name == flag {
				value = typo
			}
			args = append(args, "--"+name+"="+value)
		}
		return w.StartExactly(append(args, served)...)
	}
	first := suite.WithAnnotation(plan.PrefixAnnotation, strings.Join(targets[:few], ","))
	sources := []*corev1.ConfigMap{w.CreateSource(w.Home, "one-few", first), w.CreateSource(w.Home, "one-many"),
		w.CreateSource(w.Home, "two-few", first), w.CreateSource(w.Home, "two-many")}
	w.CreateSource(second, "two-few", first)
	w.CreateSource(second, "two-many")
	at := map[string][]string{"one-few": targets[:few], "one-many": targets, "two-few": targets[:few], "two-many": targets}
	inSync := func() {
		for _, source := range sources {
			w.WaitInSync(source, at[source.Name]...)
		}
	}
	warnings := func() (n []int) {
		for _, source := range sources {
			n = append(n, w.Reasons(w.Home, source.Name)[plan.ReasonOutOfScope])
		}
		return n
	}
	p := start("", "")
	inSync()
	w.Stop(p)

	for flag, typo := range map[string]string{"namespace-prefix": w.NS("m"), "exclude-namespace": w.NS("*"),
		"source-namespace": w.Home + "x", "namespace-selector": "off"} {
		var copies []*corev1.ConfigMap
		for _, source := range sources {
			copies = append(copies, w.Copies(source.Name, at[source.Name][:few]...)...)
		}
		mark, warned := w.AuditMark(), warnings()
		for i := range warned {
			warned[i]++
		}
		p = start(flag, typo, "--deletion-grace=0s")
		w.WaitMetrics("--"+flag+"="+typo, p, outOfScope(2*few+2*many))
		w.Eventually("one warning for each source", func() error {
			if got := warnings(); !slices.Equal(got, warned) {
				return fmt.Errorf("got %v, want %v", got, warned)
			}
			return nil
		})
		for _, source := range sources {
			n := fmt.Sprintf("%d namespaces (%s, ", len(at[source.Name]), targets[0])
			w.Eventually("the warning says what is out of scope", w.Noted(source.Name, plan.ReasonOutOfScope, n, "--"+flag, "stay unchanged"))
		}
		edited := w.Edit(targets[0], "one-few", suite.WithKey("key", "edited by a tenant"))
		sources[0] = w.Edit(w.Home, "one-few", suite.WithKey("key", "edited after --"+flag))
		w.Delete(targets[2], "two-many") // an event behind the others
		w.WaitMetrics("one is deleted by somebody else", p, outOfScope(2*few+2*many-1))
		w.Stop(p)
		w.Untouched(edited)
		w.Absent("two-many", targets[2])
		w.AllUntouched(slices.DeleteFunc(copies, func(cm *corev1.ConfigMap) bool {
			return cm.Name == "one-few" && cm.Namespace == targets[0] || cm.Name == "two-many" && cm.Namespace == targets[2]
		}))
		expectNoWrites(w, mark)

		p = start("", "")
		inSync()
		w.Stop(p)
		p = start(flag, typo, "--prune", "--deletion-grace=1h")
		w.WaitMetrics("--"+flag+"="+typo+" with --prune", p, map[string]float64{
			`mirror_copies{state="out_of_scope"}`: 0, `mirror_copies{state="expiring"}`: 2*few + 2*many})
		for _, source := range sources {
			n := fmt.Sprintf("%d copies in ", len(at[source.Name]))
			w.Eventually("it is announced", w.Noted(source.Name, plan.ReasonExpiring, n, "--"+flag))
		}
		w.Stop(p)
		p = start(flag, typo, "--prune", "--deletion-grace=1s")
		for _, source := range sources {
			w.WaitGone(source.Name, at[source.Name]...)
		}
		w.Stop(p)
		p = start("", "")
		inSync()
		w.Stop(p)
	}
}

// TestWidenedFlags narrows each flag that decides, and widens it again: the controller creates copies, another
// source may win, and unclaimed copies come into scope and expire, announced.
func TestWidenedFlags(t *testing.T) {
	t.Parallel()
	for flag, test := range map[string]struct {
		narrow, wide func(w *suite.World) string
		outOfScope   int    // copies while the flag is narrow
		winner       string // of the name shared then: a short name, or empty for the home namespace
	}{
		"namespace-prefix": {func(w *suite.World) string { return w.NS("a") }, func(w *suite.World) string { return w.Prefix }, 5, "dev"},
		"exclude-namespace": {func(w *suite.World) string { return w.NS("b") + "," + w.NS("dev") },
			func(*suite.World) string { return "kube-*" }, 5, "dev"},
		"source-namespace":   {func(w *suite.World) string { return w.NS("dev") }, func(w *suite.World) string { return w.NS("dev") + "," + w.Home }, 6, "dev"},
		"namespace-selector": {func(*suite.World) string { return "tier=front" }, func(*suite.World) string { return "tier!=back" }, 5, ""},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b", "dev")
			a, b, dev := w.NS("a"), w.NS("b"), w.NS("dev")
			w.LabelNamespace(a, "tier", "front")
			start := func(value string, args ...string) *shipped.Process {
				if args = append(args, "--"+flag+"="+value, served); flag != "namespace-prefix" {
					args = append(args, "--namespace-prefix="+w.Prefix)
				}
				return w.StartExactly(args...)
			}
			older := w.CreateSource(dev, "shared")
			w.WaitYounger(older)
			shared := w.CreateSource(w.Home, "shared")
			settings, leaving := w.CreateSource(w.Home, "settings"), w.CreateSource(w.Home, "leaving")
			p := start(test.wide(w))
			for _, source := range []*corev1.ConfigMap{settings, leaving} {
				w.WaitInSync(source, a, b, dev)
			}
			w.WaitInSync(shared, a, b)
			w.Stop(p)

			copies := append(w.Copies("settings", b, dev), w.Copies("leaving", b, dev)...)
			taken := w.Copies("shared", a)
			settings = w.Edit(w.Home, "settings", suite.WithKey("key", "two"))
			w.Edit(w.Home, "leaving", suite.WithoutLabel(w.Label))
			fresh := w.CreateSource(w.Home, "fresh")
			p = start(test.narrow(w), "--deletion-grace=0s")
			w.WaitMetrics("narrow", p, outOfScope(test.outOfScope))
			if test.winner != "" {
				w.WaitInSync(older, a)
			}
			if flag != "source-namespace" {
				w.WaitInSync(fresh, a)
				w.WaitInSync(settings, a)
				w.WaitGone("leaving", a)
			}
			w.Stop(p)
			w.Absent("fresh", b, dev)
			w.AllUntouched(copies)

			p = start(test.wide(w), "--deletion-grace=1s")
			w.WaitInSync(fresh, a, b, dev)
			w.WaitInSync(settings, a, b, dev)
			w.WaitInSync(shared, a, b)
			w.WaitGone("leaving", a, b, dev)
			w.Eventually("it is announced", w.Noted("leaving", plan.ReasonExpiring, b, dev, "or has lost its label"))
			w.WaitMetrics("wide", p, outOfScope(0))
			w.SameObjects(append(taken, copies[:2]...))
		})
	}
}

// TestC44SharedInstance runs two controllers of one instance with different prefixes: neither touches what the
// other made, and both report it.
func TestC44SharedInstance(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	ours, theirs := createNamed(w, "ours-", 15), createNamed(w, "theirs-", 15)
	first := w.StartExactly("--namespace-prefix="+w.NS("ours-"), served)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, ours...)
	second := w.StartExactly("--namespace-prefix="+w.NS("theirs-"), served)
	w.WaitInSync(source, theirs...)
	w.Eventually("the first reports it", w.Noted("settings", plan.ReasonOutOfScope, theirs[0], "an instance of its own"))
	w.Eventually("the second reports it", w.Noted("settings", plan.ReasonOutOfScope, ours[0], "an instance of its own"))
	for name, p := range map[string]*shipped.Process{"first": first, "second": second} {
		w.WaitMetrics("the "+name, p, map[string]float64{
			`mirror_copies{state="synced"}`:       15,
			`mirror_copies{state="out_of_scope"}`: 15,
			`mirror_copies{state="foreign"}`:      0,
		})
	}
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, slices.Concat(ours, theirs)...)
	w.Pause(first)
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", theirs...)
	w.WaitMetrics("the second", second, outOfScope(15))
	w.Copies("settings", ours...)
	w.Resume(first)
	w.WaitGone("settings", ours...)
	var want []string
	for _, namespace := range slices.Concat(ours, theirs) {
		want = append(want, "create "+namespace, "update "+namespace, "delete "+namespace)
	}
	w.ExpectWrites("settings", want...)
}

// createNamed creates n target namespaces whose names begin so.
func createNamed(w *suite.World, prefix string, n int) (names []string) {
	w.Helper()
	for i := range n {
		names = append(names, w.CreateNamespace(w.NS(fmt.Sprint(prefix, i)), nil).Name)
	}
	return names
}

// TestC50Clone has a copy cloned by sed s/team-a/other/g, which edits its copy annotation along, into a namespace
// that the flags do not allow. Without --prune the clone is never touched, also when its source goes.
func TestC50Clone(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "team-a", "other")
	team, other := w.NS("team-a"), w.NS("other")
	args := []string{"--namespace-prefix=" + w.NS("team-"), "--deletion-grace=0s", served}
	p := w.StartExactly(args...)
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, team)
	clone := clone(w, team, "settings", "team-a", "other")
	w.WaitMetrics("the clone", p, outOfScope(1))
	w.Eventually("it is reported", w.Noted("settings", plan.ReasonOutOfScope, other))

	source = w.Edit(w.Home, "settings", suite.WithKey("key", "two"))
	w.WaitInSync(source, team)
	w.Settle(team)
	w.Untouched(clone)
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", team)
	w.Settle(team)
	w.Untouched(clone)
	w.WaitMetrics("the clone without its source", p, outOfScope(1))
	w.Stop(p)

	p = w.StartExactly(args...)
	w.WaitMetrics("after a restart", p, outOfScope(1))
	w.Settle(team)
	w.Untouched(clone)
	w.Stop(p)
	w.StartExactly(append(args, "--prune")...)
	w.WaitGone("settings", other)
}

// clone applies the YAML of a ConfigMap after sed s/from/to/g, and returns what it made.
func clone(w *suite.World, namespace, name, from, to string) *corev1.ConfigMap {
	w.Helper()
	text, err := json.Marshal(w.Live(namespace, name))
	if err != nil {
		w.Fatal(err)
	}
	cm := &corev1.ConfigMap{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), from, to)), cm); err != nil {
		w.Fatal(err)
	}
	cm.UID, cm.ResourceVersion, cm.ManagedFields = "", "", nil
	if cm, err = w.Admin.CoreV1().ConfigMaps(cm.Namespace).Create(w.Context(), cm, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return cm
}

// TestC51LabelRemoved has a tenant take the label off their namespace that --namespace-selector asks for: their
// older source does not outrank that of the platform, and the copy there stays unless --prune is set.
func TestC51LabelRemoved(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.LabelNamespace(a, "tier", "front")
	w.LabelNamespace(b, "tier", "front")
	args := []string{"--namespace-prefix=" + w.Prefix, "--namespace-selector=tier=front", "--deletion-grace=0s", served}
	w.WaitYounger(w.CreateSource(a, "settings"))
	source, other := w.CreateSource(w.Home, "settings"), w.CreateSource(w.Home, "other")
	p := w.StartExactly(args...)
	w.WaitInSync(source, b)
	w.WaitInSync(other, a, b)
	copies := append(w.Copies("other", a, b), w.Copies("settings", b)...)

	w.LabelNamespace(a, "tier", "")
	w.WaitMetrics("out of scope", p, outOfScope(1))
	w.Eventually("it is reported", w.Noted("other", plan.ReasonOutOfScope, a, "--namespace-selector"))
	w.Settle(b)
	w.AllUntouched(copies)
	w.Stop(p)
	w.StartExactly(append(args, "--prune")...)
	w.WaitGone("other", a)
	w.Settle(b)
	w.AllUntouched(copies[1:])
}

// TestC71FilledMetadata has tenants fill the annotations or the labels of a copy up to the API server's limit, and
// edit its data: the copy is created again. One with a finalizer is updated, and the metadata of others goes.
func TestC71FilledMetadata(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "annotations", "labels", "held")
	annotations, labels, held := w.NS("annotations"), w.NS("labels"), w.NS("held")
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, annotations, labels, held)
	before := w.Copies("settings", annotations, labels, held)

	const mine = "example.com/mine"
	fillAnnotations := func(cm *corev1.ConfigMap) {
		left := 256<<10 - len(mine)
		for k, v := range cm.Annotations {
			left -= len(k) + len(v)
		}
		suite.Put(&cm.Annotations, mine, strings.Repeat("x", left))
	}
	fillLabels := func(cm *corev1.ConfigMap) {
		for i := range 4000 { // a megabyte: etcd takes a request of 1.5
			suite.Put(&cm.Labels, fmt.Sprintf("%s.example.com/mine-%04d", strings.Repeat("x", 63), i), strings.Repeat("x", 63))
		}
	}
	edit := suite.WithKey("key", "edited")
	w.Edit(annotations, "settings", fillAnnotations, edit)
	w.Edit(labels, "settings", fillLabels, edit)
	w.Edit(held, "settings", fillAnnotations, edit, func(cm *corev1.ConfigMap) { cm.Finalizers = []string{mine} })
	w.WaitInSync(source, annotations, labels)
	w.Eventually("the held one is repaired", func() error {
		cm := w.Seen.ConfigMap(held, "settings")
		if cm.Data["key"] != source.Data["key"] || cm.Annotations[mine] != "" || len(cm.Finalizers) != 1 {
			return fmt.Errorf("it has key %q, %d annotations", cm.Data["key"], len(cm.Annotations))
		}
		return nil
	})
	w.Edit(held, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	after := w.Copies("settings", annotations, labels, held)
	for i, cm := range after {
		if kept := cm.UID == before[i].UID; kept != (cm.Namespace == held) || len(cm.Labels) != 2 {
			t.Errorf("%s: the same object: %v, with %d labels", cm.Namespace, kept, len(cm.Labels))
		}
	}
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithKey("key", "two")), annotations, labels, held)
	w.SameObjects(after)
}
