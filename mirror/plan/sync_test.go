package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestInSync changes one thing at a time of a copy that is in sync.
func TestInSync(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app*"}, []string{"note*"} })
	src := plantest.Source("platform", "settings", plantest.BinaryData("raw", 1, 2),
		plantest.Label("app", "web"), plantest.Label("app-empty", ""), plantest.Annotation("note", "n"))
	s := r.ParseSource(src)
	mark := func(key, value string) plantest.Option {
		return plantest.Annotation("mirror-controller.github.io/"+key, value)
	}
	others := func(cm *corev1.ConfigMap) { cm.ResourceVersion, cm.UID = "99", "uid-99" }
	// The moved key keeps its place in the digest: before the other binary key.
	moved := func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData["key"] = nil, []byte("value") }
	for name, tc := range map[string]struct {
		edit plantest.Option
		want bool
	}{
		"untouched": {func(*corev1.ConfigMap) {}, true},

		"C19 data edited":                  {plantest.Data("key", "edited"), false},
		"C19 a key added":                  {plantest.Data("more", "1"), false},
		"C19 an empty key added":           {plantest.Data("more", ""), false},
		"C19 a key removed":                {func(cm *corev1.ConfigMap) { delete(cm.Data, "key") }, false},
		"C19 all data removed":             {func(cm *corev1.ConfigMap) { cm.Data = nil }, false},
		"C20 binaryData edited":            {plantest.BinaryData("raw", 1, 3), false},
		"C20 a binary key added":           {plantest.BinaryData("more"), false},
		"C20 a binary key removed":         {func(cm *corev1.ConfigMap) { cm.BinaryData = nil }, false},
		"C20 a key moved":                  {moved, false},
		"C23 made immutable":               {plantest.Immutable, false},
		"C21 immutable false":              {func(cm *corev1.ConfigMap) { cm.Immutable = new(false) }, true},
		"C08 label removed":                {plantest.Without("mirror"), false},
		"C02 label true":                   {plantest.Label("mirror", "true"), false},
		"label of another value":           {plantest.Label("mirror", "Copy"), false},
		"managed-by removed":               {plantest.Without("app.kubernetes.io/managed-by"), false},
		"managed-by of another tool":       {plantest.Label("app.kubernetes.io/managed-by", "Helm"), false},
		"C08 source removed":               {plantest.Without("mirror-controller.github.io/source"), false},
		"source elsewhere":                 {mark("source", "base/settings"), false},
		"source of another name":           {mark("source", "platform/other"), false},
		"C08 copy removed":                 {plantest.Without("mirror-controller.github.io/copy"), false},
		"C06 copy names another":           {mark("copy", "team-b/settings"), false},
		"C08 instance removed":             {plantest.Without("mirror-controller.github.io/instance"), false},
		"C10 another instance":             {mark("instance", "other"), false},
		"checksum removed":                 {plantest.Without("mirror-controller.github.io/checksum"), false},
		"checksum edited":                  {mark("checksum", "sha256:00"), false},
		"copied removed":                   {plantest.Without("mirror-controller.github.io/copied"), false},
		"copied lists less":                {mark("copied", "label:app"), false},
		"C27 copied lists more":            {mark("copied", "annotation:note,label:app,label:apps"), false},
		"C12 adopt left over":              {mark("adopt", "true"), false},
		"adopt of another value left over": {mark("adopt", ""), false},
		"copied label removed":             {plantest.Without("app"), false},
		"copied label edited":              {plantest.Label("app", "db"), false},
		"copied label, empty, removed":     {plantest.Without("app-empty"), false},
		"copied annotation removed":        {plantest.Without("note"), false},
		"copied annotation edited":         {plantest.Annotation("note", ""), false},

		"C27 a label of other people":       {plantest.Label("theirs", "1"), true},
		"C27 an annotation of other people": {plantest.Annotation("theirs", "1"), true},
		"a label that the flags would copy": {plantest.Label("apps", "1"), true},
		"a finalizer of other people":       {plantest.Finalizer, true},
		"another resourceVersion":           {others, true},
		"C21 equal bytes":                   {func(cm *corev1.ConfigMap) { cm.BinaryData["raw"] = []byte{1, 2} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			have := plantest.Copy(r, src, "team-a", tc.edit)
			if got := r.Differs(s, have); (got == "") != tc.want {
				t.Errorf("in the answer to a write: got %q, want none %v", got, tc.want)
			}
			if got := r.inSync(s, stripped(r, have)); got != tc.want {
				t.Errorf("from the cache: got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestC23InSyncImmutable: the API server lets nobody end it, so a copy is in sync
// if it is immutable though its source is not. The answer to a write shows
// whether the write made the copy as it was asked to.
func TestC23InSyncImmutable(t *testing.T) {
	r := testRules()
	source := plantest.Source("platform", "settings", plantest.Immutable)
	if got := r.Differs(r.ParseSource(source), plantest.Copy(r, source, "team-a")); got != "" {
		t.Errorf("got that a copy that is immutable, as its source is, differs in %q", got)
	}
}

// TestC71ListOfCopied: a copy is in sync only with the list of copied keys that
// the controller writes, however long that is. The cache holds a digest of it.
func TestC71ListOfCopied(t *testing.T) {
	r := testRules(func(o *Options) { o.CopyLabels = []string{"*"} })
	bare := plantest.Source("platform", "settings")
	one := plantest.Source("platform", "settings", plantest.Label("app", "web"))
	many := plantest.Source("platform", "settings")
	for _, k := range numbered(100) {
		many.Labels[strings.Repeat("a", 50)+k] = ""
	}
	list := func(value string) plantest.Option { return plantest.Annotation(CopiedAnnotation, value) }
	for name, tc := range map[string]struct {
		src    *corev1.ConfigMap
		have   *corev1.ConfigMap
		inSync bool
	}{
		"long":                   {many, plantest.Copy(r, many, "team-a"), true},
		"of another content":     {bare, plantest.Copy(r, many, "team-a"), false},
		"missing":                {one, plantest.Copy(r, one, "team-a", plantest.Without(CopiedAnnotation)), false},
		"not wanted":             {bare, plantest.Copy(r, bare, "team-a", list("")), false},
		"a key that is absent":   {one, plantest.Copy(r, one, "team-a", list("label:app,label:x")), false},
		"a key twice":            {one, plantest.Copy(r, one, "team-a", list("label:app,label:app")), false},
		"a key of somebody else": {bare, plantest.Copy(r, bare, "team-a", list("label:x"), plantest.Label("x", "")), false},
	} {
		t.Run(name, func(t *testing.T) {
			have := stripped(r, tc.have)
			if got := r.inSync(r.ParseSource(tc.src), have); got != tc.inSync {
				t.Errorf("got in sync %v, want %v", got, tc.inSync)
			}
			if size := have.ObjectMeta.Size(); size > 1<<10 {
				t.Errorf("got %d bytes of metadata in the cache, want at most 1 KiB", size)
			}
		})
	}
}
