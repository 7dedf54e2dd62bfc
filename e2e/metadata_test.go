package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

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
	w := newWorld(t, "a")
	a := w.ns("a")
	options := []option{
		withLabel("team", "red"), withLabel("example.com/team", "red"),
		withAnnotation("note", "x"), withAnnotation("example.com/note", "x"),
		withAnnotation(plan.PrefixAnnotation, w.prefix), withAnnotation(plan.AdoptAnnotation, "true"),
	}
	for _, key := range gitOpsMarks {
		options = append(options, withLabel(key, "x"), withAnnotation(key, "x"))
	}
	options = append(options, withLabel(fluxWatch, "Enabled"))
	w.start("--copy-label=*", "--copy-label="+fluxWatch, "--copy-annotation=*")
	source := w.createSource(w.home, "settings", options...)
	w.waitInSync(source, a)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}), withLabel("argocd.argoproj.io/instance", "y"))
	w.waitInSync(source, a)
	cm := w.live(a, "settings")
	expectKeys(t, "labels", cm.Labels, w.label, "app.kubernetes.io/managed-by", "team", "example.com/team", fluxWatch)
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
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	theirs := []option{withLabel("theirs", "x"), withAnnotation("theirs", "x")}
	expect := func(what string, labels, annotations map[string]string) {
		t.Helper()
		w.eventually(what, func() error {
			for _, namespace := range []string{a, b} {
				cm := w.shown(namespace, "settings")
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
	p := w.start(flags...)
	source := w.createSource(w.home, "settings",
		withLabel("team", "red"), withLabel("example.com/tier", "front"), withLabel("stays", "x"), withLabel("note", "x"),
		withAnnotation("note", "x"), withAnnotation("team", "x"), withAnnotation("stays", "x"))
	w.waitInSync(source, a, b)
	copies := w.copies("settings", a, b)
	w.edit(a, "settings", theirs...)
	w.edit(b, "settings", theirs...)
	expect("copied", map[string]string{"team": "red", "example.com/tier": "front", "theirs": "x"},
		map[string]string{"note": "x", "theirs": "x"})
	w.edit(a, "settings", withLabel("team", "green"), withoutAnnotation("note"))
	w.edit(b, "settings", withoutLabel("example.com/tier"))
	expect("restored", map[string]string{"team": "red", "example.com/tier": "front", "theirs": "x"},
		map[string]string{"note": "x", "theirs": "x"})

	source = w.edit(w.home, "settings", withoutLabel("team"), withLabel("example.com/tier", "back"), withoutAnnotation("note"))
	expect("gone and changed", map[string]string{"example.com/tier": "back", "theirs": "x"}, map[string]string{"theirs": "x"})
	w.stop(p)
	w.edit(w.home, "settings", withLabel("team", "blue"))
	p = w.start("--copy-label=team", "--resync-period=100ms")
	expect("other flags", map[string]string{"team": "blue", "theirs": "x"}, map[string]string{"theirs": "x"})
	w.stop(p)
	w.start("--resync-period=100ms")
	expect("no flags", map[string]string{"theirs": "x"}, map[string]string{"theirs": "x"})
	w.sameObjects(copies)
	copies = w.copies("settings", a, b)
	expectKeys(t, "annotations", copies[0].Annotations, plan.SourceAnnotation, plan.CopyAnnotation,
		plan.ChecksumAnnotation, plan.InstanceAnnotation, "theirs")
	w.passes(2, b)
	w.allUntouched(copies)
	w.waitInSync(source, a, b)
}
