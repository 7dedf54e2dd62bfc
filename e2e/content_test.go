package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What a copy holds, and how it is kept so: cases C19 to C27.

func withBinaryData(data map[string][]byte) option {
	return func(cm *corev1.ConfigMap) { cm.BinaryData = maps.Clone(data) }
}

func withKey(k, v string) option { return func(cm *corev1.ConfigMap) { put(&cm.Data, k, v) } }
func withoutKey(k string) option { return func(cm *corev1.ConfigMap) { delete(cm.Data, k) } }

// shown returns a ConfigMap as the outside watch has shown it, an empty one if there is none.
func (w *world) shown(namespace, name string) *corev1.ConfigMap {
	if cm := w.seen.ConfigMap(namespace, name); cm != nil {
		return cm
	}
	return &corev1.ConfigMap{}
}

// TestC19CopyEdited edits a copy in every way, the checksum annotation untouched or it alone: put right in place, also
// if nobody watched.
func TestC19CopyEdited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	edits := map[string][]option{
		"changed value":  {withKey("one", "other")},
		"extra key":      {withKey("three", "3")},
		"removed key":    {withoutKey("one")},
		"renamed key":    {withoutKey("one"), withKey("eno", "1")},
		"swapped values": {withKey("one", "2"), withKey("two", "1")},
		"extra binary":   {withBinaryData(map[string][]byte{"three": {3}})},
		"emptied":        {withData(nil)},
		"checksum alone": {withAnnotation(plan.ChecksumAnnotation, "sha256:"+strings.Repeat("0", 64))},
		"all at once":    {withKey("three", "3"), withoutKey("one"), withoutAnnotation(plan.ChecksumAnnotation)},
	}
	p := w.start()
	source := w.createSource(w.home, "settings", withData(map[string]string{"one": "1", "two": "2"}))
	w.waitInLine(source, a, b)
	copies := w.copies("settings", a, b)
	right := copies[0].Annotations[plan.ChecksumAnnotation]
	waitHealed := func(what string) {
		t.Helper()
		w.eventually(what+" is put right", func() error {
			if now := w.shown(a, "settings").Annotations[plan.ChecksumAnnotation]; now != right {
				return fmt.Errorf("the checksum is %s, want %s", now, right)
			}
			return w.inLine(source, a)
		})
	}
	for what, edit := range edits {
		w.edit(a, "settings", edit...)
		waitHealed(what)
	}
	for what, edit := range edits {
		w.stop(p)
		w.edit(a, "settings", edit...)
		p = w.start()
		waitHealed(what + " before the start")
	}
	w.sameObjects(copies)
	w.untouched(copies[1])
}

// TestC20BinaryData moves keys between data and binaryData, takes them away, and has empty values and keys only in
// binaryData: the copies follow whole.
func TestC20BinaryData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	w.start()
	source := w.createSource(w.home, "settings", withData(nil))
	w.waitInLine(source, a)
	copies := w.copies("settings", a)
	type data map[string]string
	type binary map[string][]byte
	for _, step := range []struct {
		data   data
		binary binary
	}{
		{data{"key": "value", "stays": "here"}, nil},
		{data{"stays": "here"}, binary{"key": []byte("value")}}, // moved, its bytes the same
		{data{"key": "value", "stays": "here"}, nil},
		{data{"stays": "here"}, binary{"key": {0, 255}, "other": {1}}},
		{data{"stays": "here"}, binary{"other": {1}}},
		{nil, binary{"other": {1}}},
		{nil, binary{"other": {}}},
		{data{"other": ""}, nil},
		{data{"other": "", "another": ""}, binary{"third": {}}},
		{nil, nil},
		{nil, binary{"only": {0}}},
	} {
		source = w.edit(w.home, "settings", withData(step.data), withBinaryData(step.binary))
		w.waitInLine(source, a)
	}
	w.edit(a, "settings", withData(map[string]string{"only": "\x00"}), withBinaryData(nil)) // the same bytes elsewhere
	w.waitInLine(source, a)
	w.sameObjects(copies)
}

// TestC21NothingToDo changes what makes no difference: absent against empty maps, the order of keys, immutable absent
// against false, metadata that does not travel. Then it lets many resyncs pass. No object is written.
func TestC21NothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(10)
	w.start("--resync-period=100ms", "--copy-label=team", "--copy-annotation=note")
	sources := []*corev1.ConfigMap{
		w.createSource(w.home, "empty", withData(nil)),
		w.createSource(w.home, "text", withData(map[string]string{"a": "1", "b": "2", "c": "3"})),
		w.createSource(w.home, "binary", withData(nil), withBinaryData(map[string][]byte{"a": {1}, "b": {}})),
		w.createSource(w.home, "fixed", setImmutable),
		w.createSource(w.home, "travels", withLabel("team", "red"), withAnnotation("note", "x"), withLabel("stays", "x")),
	}
	var copies []*corev1.ConfigMap
	for _, source := range sources {
		w.waitInLine(source, targets...)
		copies = append(copies, w.copies(source.Name, targets...)...)
	}
	w.passes(1, targets[0])
	mark := w.auditMark()
	for name, content := range map[string]string{
		"empty":  `"data": {}, "binaryData": {}, "immutable": false`,
		"text":   `"binaryData": {}, "data": {"c": "3", "a": "1", "b": "2"}`,
		"binary": `"immutable": null, "binaryData": {"b": "", "a": "AQ=="}`,
	} {
		w.replaceJSON(w.home, name, content)
	}
	before := w.versions(targets...)
	w.passes(5, targets[0])
	if after := w.versions(targets...); !maps.Equal(before, after) {
		t.Errorf("objects were written: %v, before %v", after, before)
	}
	w.allUntouched(copies)
	for _, source := range sources {
		if writes := writesTo(w.requestsSince(mark), source.Name); len(writes) > 0 {
			t.Errorf("writes, if only tried: %v", writes)
		}
	}
}

// versions returns the resourceVersions of all there is in the home namespace and in others, by kind, namespace and
// name, but for what passes needs and what the cluster itself writes.
func (w *world) versions(namespaces ...string) map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, namespace := range append(namespaces, w.home) {
		ns, err := w.admin.CoreV1().Namespaces().Get(w.ctx, namespace, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		out["namespace "+namespace] = ns.ResourceVersion
		cms, err := w.admin.CoreV1().ConfigMaps(namespace).List(w.ctx, metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		for _, cm := range cms.Items {
			if !strings.HasPrefix(cm.Name, "pass-") && cm.Name != "kube-root-ca.crt" {
				out["configmap "+namespace+"/"+cm.Name] = cm.ResourceVersion
			}
		}
	}
	return out
}

// replaceJSON replaces a source by what is written in JSON, in that order, and a change in its metadata that does
// not travel.
func (w *world) replaceJSON(namespace, name, content string) {
	w.Helper()
	before := w.live(namespace, name)
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", %s, "metadata": {"name": %q, "labels": {%q: "true"},
		"annotations": {"after": %q}}}`, content, name, w.label, before.ResourceVersion)
	err := w.admin.CoreV1().RESTClient().Put().Namespace(namespace).Resource("configmaps").Name(name).
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.ctx).Error()
	if err != nil {
		w.Fatal(err)
	}
	if now := w.live(namespace, name); now.ResourceVersion == before.ResourceVersion {
		w.Errorf("%s was not written", name)
	}
}

// TestC22ImmutableSource has an immutable source, replaces it by the same and by other data, immutable and not: the
// copies are immutable as it is, follow, and are left alone where nothing differs.
func TestC22ImmutableSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.start()
	replace := func(options ...option) *corev1.ConfigMap {
		source, _ := w.replaceSource("settings", options...)
		return source
	}
	w.waitInLine(w.createSource(w.home, "settings", setImmutable), a, b)
	copies := w.copies("settings", a, b)
	w.inTime(func() bool {
		source, inTime := w.replaceSource("settings", setImmutable)
		w.settle(a, b)
		if !inTime {
			w.waitInLine(source, a, b)
			copies = w.copies("settings", a, b)
			return false
		}
		w.allUntouched(copies)
		return true
	})
	two := withData(map[string]string{"key": "two"})
	w.waitInLine(replace(setImmutable, two), a, b)
	w.waitInLine(replace(two), a, b)
	copies = w.copies("settings", a, b)
	w.waitInLine(w.edit(w.home, "settings", setImmutable), a, b)
	w.sameObjects(copies) // nothing forbids to make them immutable where they are
	w.waitInLine(replace(setImmutable, withData(nil), withBinaryData(map[string][]byte{"key": {2}})), a, b)
	w.delete(w.home, "settings")
	w.waitGone("settings", a, b)
}

// TestC23CopyMadeImmutable has a user make copies immutable, with the data as they were or changed, and put other data
// into the place of an immutable one: put right.
func TestC23CopyMadeImmutable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	source := w.createSource(w.home, "settings")
	fixed := w.createSource(w.home, "fixed", setImmutable)
	w.waitInLine(source, a, b)
	w.waitInLine(fixed, a, b)
	other := withData(map[string]string{"key": "other"})
	spoil := func() {
		w.edit(a, "settings", setImmutable)
		w.edit(b, "settings", setImmutable, other)
	}
	spoil()
	w.waitInLine(source, a, b)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, a, b)
	for _, namespace := range []string{a, b} {
		backup := w.live(namespace, "fixed")
		backup.Data = map[string]string{"key": "other"}
		w.replaceBy(backup)
	}
	w.waitInLine(fixed, a, b)
	w.stop(p)
	spoil()
	w.start()
	w.waitInLine(source, a, b)
}

// replaceBy deletes a ConfigMap and creates this one in its place, unless somebody else is faster: then anew.
func (w *world) replaceBy(cm *corev1.ConfigMap) {
	w.Helper()
	w.until(cm.Namespace+"/"+cm.Name+" is replaced", func() error {
		err := w.admin.CoreV1().ConfigMaps(cm.Namespace).Delete(w.ctx, cm.Name, metav1.DeleteOptions{})
		if err == nil {
			fresh := configMap(cm.Namespace, cm.Name)
			fresh.Labels, fresh.Annotations, fresh.Data, fresh.Immutable = cm.Labels, cm.Annotations, cm.Data, cm.Immutable
			_, err = w.admin.CoreV1().ConfigMaps(cm.Namespace).Create(w.ctx, fresh, metav1.CreateOptions{})
		}
		return err
	})
}

// TestC24CopyWithFinalizer has a foreign finalizer keep copies that are to be deleted, by a user, with their source,
// and to be made again: nothing spins while it does, and the copy is made again once it is gone, if it is wanted.
func TestC24CopyWithFinalizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	held := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free := func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	w.start("--resync-period=100ms")
	source := w.createSource(w.home, "settings")
	fixed := w.createSource(w.home, "fixed", setImmutable)
	w.waitInLine(source, a, b)
	w.waitInLine(fixed, a, b)

	// The finalizer alone is other people's metadata.
	w.edit(a, "settings", held)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, b)
	w.eventually("the held copy follows", func() error {
		if !maps.Equal(w.shown(a, "settings").Data, source.Data) {
			return errors.New("it does not")
		}
		return nil
	})

	// Deleted by a user.
	w.passes(1, b) // so that the audit log has what was done before
	w.delete(a, "settings")
	mark := w.auditMark()
	deleting := w.live(a, "settings")
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "three"}))
	w.waitInLine(source, b)
	w.passes(3, b)
	w.untouched(deleting)
	w.expectFew(0, w.requestsSince(mark), a, "settings")
	w.edit(a, "settings", free)
	w.waitInLine(source, a)

	// Deleted with its source, and to be made again as it is immutable.
	w.passes(1, b)
	w.edit(a, "settings", held)
	w.edit(a, "fixed", held)
	mark = w.auditMark()
	w.edit(w.home, "settings", withoutLabel(w.label))
	w.delete(w.home, "fixed")
	fixed = w.createSource(w.home, "fixed", setImmutable, withData(map[string]string{"key": "two"}))
	w.waitGone("settings", b)
	w.waitInLine(fixed, b)
	w.passes(3, b)
	w.expectFew(1, w.requestsSince(mark), a, "settings")
	w.expectFew(4, w.requestsSince(mark), a, "fixed") // the deletion, and creates until its own watch shows it
	w.edit(a, "settings", free)
	w.edit(a, "fixed", free)
	w.waitInLine(fixed, a)
	w.passes(1, b)
	w.absent("settings", a)
}

// expectFew fails the test if there are more than most requests for the ConfigMap. Those count that have no name in
// the audit log, as they were refused before they were read.
func (w *world) expectFew(most int, requests []cluster.Event, namespace, name string) {
	w.Helper()
	var found []string
	for _, e := range requests {
		named := e.Object.Name == name || e.Object.Name == ""
		if e.Object.Resource == "configmaps" && e.Object.Namespace == namespace && named {
			found = append(found, fmt.Sprintf("%s %d", e.Verb, e.Response.Code))
		}
	}
	if len(found) > most {
		w.Errorf("requests for %s/%s: %v, want %d at most", namespace, name, found, most)
	}
}

// TestC25LargeSources has a source with as much data as fits, which is copied, and one that leaves no room for the
// marks of a copy: refused, reported with the reason, tried again without haste, and others go on.
func TestC25LargeSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	const mebibyte, allAnnotations = 1 << 20, 256 << 10
	w.start("--copy-annotation=example.com/*", "--resync-period=0")
	large := w.createSource(w.home, "large", withData(map[string]string{"key": strings.Repeat("x", mebibyte)}))
	w.waitInLine(large, a, b)
	large = w.edit(w.home, "large", withData(nil), withBinaryData(map[string][]byte{"key": make([]byte, mebibyte)}))
	w.waitInLine(large, a, b)

	const key = "example.com/long"
	w.waitInLine(w.createSource(w.home, "long", withAnnotation(key, "not yet")), a, b)
	copies := w.copies("long", a, b)
	w.edit(w.home, "long", withAnnotation(key, strings.Repeat("x", allAnnotations-len(key))))
	note := w.waitEvent(w.home, "long", "WriteFailed")
	if !strings.Contains(note, "annotations") || !strings.Contains(note, a) {
		t.Errorf("the event does not say what is wrong, and where: %s", note)
	}
	refused := func(e cluster.Event) bool {
		return e.Object.Name == "long" && e.Response.Code == http.StatusUnprocessableEntity
	}
	w.waitRequests("it is tried again", 2*3, refused)
	for range 5 { // time in which what is tried without patience would be tried often
		w.settle(a, b)
	}
	w.allUntouched(copies)
	large = w.edit(w.home, "large", withBinaryData(nil))
	w.waitInLine(large, a, b)
	for _, namespace := range []string{a, b} {
		w.expectFew(15, w.requests(), namespace, "long")
	}
	long := w.edit(w.home, "long", withAnnotation(key, "short"))
	w.eventually("the copies follow", func() error {
		for _, namespace := range []string{a, b} {
			if w.shown(namespace, "long").Annotations[key] != "short" {
				return errors.New("not in " + namespace)
			}
		}
		return nil
	})
	w.waitInLine(long, a, b)
	if n := w.reasons(w.home, "long")["WriteFailed"]; n > 2 {
		t.Errorf("%d events about one refusal, want one, or two if it came in two", n)
	}
}

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

// TestC26GitOpsMarks has every mark on the source, as a label and as an annotation, and flags that ask for all of
// them: none is ever on a copy.
func TestC26GitOpsMarks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	options := []option{
		withLabel("team", "red"), withLabel("example.com/team", "red"),
		withAnnotation("note", "x"), withAnnotation("example.com/note", "x"),
		withAnnotation(plan.PrefixAnnotation, w.prefix), withAnnotation(plan.AdoptAnnotation, "true"),
	}
	flags := []string{"--copy-label=*", "--copy-annotation=*"}
	for _, key := range gitOpsMarks {
		options = append(options, withLabel(key, "x"), withAnnotation(key, "x"))
		flags = append(flags, "--copy-label="+key, "--copy-annotation="+key)
	}
	w.start(flags...)
	source := w.createSource(w.home, "settings", options...)
	w.waitInLine(source, a)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}), withLabel("argocd.argoproj.io/instance", "y"))
	w.waitInLine(source, a)
	cm := w.live(a, "settings")
	expectKeys(t, "labels", cm.Labels, w.label, "app.kubernetes.io/managed-by", "team", "example.com/team")
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
	w.waitInLine(source, a, b)
	copies := w.copies("settings", a, b)
	w.edit(a, "settings", theirs...)
	w.edit(b, "settings", theirs...)
	expect("copied", map[string]string{"team": "red", "example.com/tier": "front", "theirs": "x"},
		map[string]string{"note": "x", "theirs": "x"})
	w.edit(a, "settings", withLabel("team", "green"), withoutAnnotation("note"))
	w.edit(b, "settings", withoutLabel("example.com/tier"))
	expect("put right", map[string]string{"team": "red", "example.com/tier": "front", "theirs": "x"},
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
	w.waitInLine(source, a, b)
}
