package contract

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Labels and annotations of a copy: cases C26 and C27.

// gitOpsMarks are keys by which tools know what they have applied, injected or replicated: labels or annotations.
var gitOpsMarks = []string{
	"app.kubernetes.io/managed-by", "app.kubernetes.io/instance",
	"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/sync-wave",
	"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/namespace", "fluxcd.io/sync-gc-mark",
	"meta.helm.sh/release-name", "helm.sh/chart", "helm.sh/hook",
	"applyset.kubernetes.io/part-of", "config.k8s.io/owning-inventory", "kapp.k14s.io/app",
	"operators.coreos.com/some.operator", "olm.owner", "olm.managed",
	"objectset.rio.cattle.io/hash", "fleet.cattle.io/managed",
	"configmanagement.gke.io/managed", "configsync.gke.io/resource-id", "hnc.x-k8s.io/inherited-from",
	"config.openshift.io/inject-trusted-cabundle", "service.beta.openshift.io/inject-cabundle",
	"kubectl.kubernetes.io/last-applied-configuration", "kubectl.kubernetes.io/restartedAt",
	"replicator.v1.mittwald.de/replicate-to", "reflector.v1.k8s.emberstack.com/reflection-allowed", "kubed.appscode.com/sync",
}

// fluxWatch is the label by which Flux notices a change at once: it travels, case C59.
const fluxWatch = "reconcile.fluxcd.io/watch"

// TestC26GitOpsMarks has every mark on the source, as a label and as an annotation, and flags that ask for all keys: none of the marks
// is ever on a copy.
func TestC26GitOpsMarks(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	options := []suite.Option{
		suite.WithLabel("team", "red"), suite.WithLabel("example.com/team", "red"),
		suite.WithAnnotation("note", "x"), suite.WithAnnotation("example.com/note", "x"),
		suite.WithAnnotation(plan.PrefixAnnotation, w.Prefix), suite.WithAnnotation(plan.AdoptAnnotation, "true"),
	}
	for _, key := range gitOpsMarks {
		options = append(options, suite.WithLabel(key, "x"), suite.WithAnnotation(key, "x"))
	}
	options = append(options, suite.WithLabel(fluxWatch, "Enabled"))
	w.Start("--copy-label=*", "--copy-label="+fluxWatch, "--copy-annotation=*")
	source := w.CreateSource(w.Home, "settings", options...)
	w.WaitInSync(source, a)
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}), suite.WithLabel("argocd.argoproj.io/instance", "y"))
	w.WaitInSync(source, a)
	cm := w.Live(a, "settings")
	expectKeys(t, "labels", cm.Labels, w.Label, "app.kubernetes.io/managed-by", "team", "example.com/team", fluxWatch)
	expectKeys(t, "annotations", cm.Annotations, plan.SourceAnnotation, plan.CopyAnnotation, plan.ChecksumAnnotation,
		plan.InstanceAnnotation, plan.CopiedAnnotation, "note", "example.com/note")
}

func expectKeys(t *testing.T, what string, got map[string]string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Errorf("%s: %q, want %q", what, keys, want)
	}
}

// TestC27CopiedMetadata removes copied labels and annotations at the source, changes them on a copy, and takes them
// from the flags: the copies follow, and other people's metadata on them stays.
func TestC27CopiedMetadata(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	theirs := []suite.Option{suite.WithLabel("theirs", "x"), suite.WithAnnotation("theirs", "x")}
	expect := func(what string, labels, annotations map[string]string) {
		t.Helper()
		w.Eventually(what, func() error {
			for _, namespace := range []string{a, b} {
				cm := w.Shown(namespace, "settings")
				for _, key := range []string{"team", "example.com/tier", "stays", "theirs", "note"} {
					if cm.Labels[key] != labels[key] || cm.Annotations[key] != annotations[key] {
						return fmt.Errorf("%s of the copy in %s: label %q, annotation %q", key, namespace, cm.Labels[key], cm.Annotations[key])
					}
				}
			}
			return nil
		})
	}
	flags := []string{"--copy-label=team", "--copy-label=example.com/*", "--copy-annotation=note", "--resync-period=100ms"}
	p := w.Start(flags...)
	source := w.CreateSource(w.Home, "settings",
		suite.WithLabel("team", "red"), suite.WithLabel("example.com/tier", "front"), suite.WithLabel("stays", "x"), suite.WithLabel("note", "x"),
		suite.WithAnnotation("note", "x"), suite.WithAnnotation("team", "x"), suite.WithAnnotation("stays", "x"))
	w.WaitInSync(source, a, b)
	copies := w.Copies("settings", a, b)
	w.Edit(a, "settings", theirs...)
	w.Edit(b, "settings", theirs...)
	expect("copied", map[string]string{"team": "red", "example.com/tier": "front", "theirs": "x"},
		map[string]string{"note": "x", "theirs": "x"})
	w.Edit(a, "settings", suite.WithLabel("team", "green"), suite.WithoutAnnotation("note"))
	w.Edit(b, "settings", suite.WithoutLabel("example.com/tier"))
	expect("restored", map[string]string{"team": "red", "example.com/tier": "front", "theirs": "x"},
		map[string]string{"note": "x", "theirs": "x"})

	source = w.Edit(w.Home, "settings", suite.WithoutLabel("team"), suite.WithLabel("example.com/tier", "back"), suite.WithoutAnnotation("note"))
	expect("gone and changed", map[string]string{"example.com/tier": "back", "theirs": "x"}, map[string]string{"theirs": "x"})
	w.Stop(p)
	w.Edit(w.Home, "settings", suite.WithLabel("team", "blue"))
	p = w.Start("--copy-label=team", "--resync-period=100ms")
	expect("other flags", map[string]string{"team": "blue", "theirs": "x"}, map[string]string{"theirs": "x"})
	w.Stop(p)
	w.Start("--resync-period=100ms")
	expect("no flags", map[string]string{"theirs": "x"}, map[string]string{"theirs": "x"})
	w.SameObjects(copies)
	copies = w.Copies("settings", a, b)
	expectKeys(t, "annotations", copies[0].Annotations, plan.SourceAnnotation, plan.CopyAnnotation,
		plan.ChecksumAnnotation, plan.InstanceAnnotation, "theirs")
	w.Passes(2, b)
	w.AllUntouched(copies)
	w.WaitInSync(source, a, b)
}
