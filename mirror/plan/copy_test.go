package plan

import (
	"cmp"
	"maps"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestDesiredIsTheContract writes out a copy as section 1 of the contract lists it, with another label, another
// instance (C10), and the longest name (C09). If the checksum changes, the next version writes every copy of every
// cluster again (C18).
func TestDesiredIsTheContract(t *testing.T) {
	r := testRules(func(o *Options) {
		o.Label, o.Instance = "example.com/mirror", "second"
		o.CopyLabels, o.CopyAnnotations = []string{"app*"}, []string{"note"}
	})
	src := plantest.ConfigMap("platform", longName, plantest.Data("key", "value"), plantest.Data("a", ""),
		plantest.BinaryData("bin", 0, 255), plantest.Label("example.com/mirror", "true"), plantest.Label("app", "web"),
		plantest.Label("app2", ""), plantest.Label("other", "1"), plantest.Annotation("note", "n"),
		plantest.Annotation("other", "1"), plantest.Immutable, plantest.Managed, plantest.Finalizer)
	src.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
	got := r.Desired(r.ParseSource(src), "team-a", nil)
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: longName,
			Labels: texts{"example.com/mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller", "app": "web",
				"app2": ""},
			Annotations: texts{
				"mirror-controller.github.io/source":   "platform/" + longName,
				"mirror-controller.github.io/copy":     "team-a/" + longName,
				"mirror-controller.github.io/checksum": "sha256:f9619aa13b34d806b0c32cc04d5ef128b2ba8555530cbf59c66af0b1f5fde5f7",
				"mirror-controller.github.io/instance": "second",
				"mirror-controller.github.io/copied":   "annotation:note,label:app,label:app2",
				"note":                                 "n",
			},
		},
		Data:       texts{"key": "value", "a": ""},
		BinaryData: blobs{"bin": {0, 255}},
		Immutable:  new(true),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if source, ours := r.SourceOf(got); !ours || source != KeyOf(src) {
		t.Errorf("got a copy of %v, ours %v, want one of %v", source, ours, KeyOf(src))
	}
	delete(got.Annotations, SourceAnnotation)
	if _, ours := r.SourceOf(got); ours {
		t.Error("C07: got a copy of ours that names no source")
	}
}

// TestC27UpdateKeepsAndRemoves is about the metadata of the object that is
// there. Case C39: whatever is done to the result changes no argument.
func TestC27UpdateKeepsAndRemoves(t *testing.T) {
	copying := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"app"}, []string{"note"} })
	src := plantest.Source("platform", "settings", plantest.Label("app", "web"), plantest.Annotation("note", "n"))
	bare := plantest.Source("platform", "settings")
	older := plantest.Source("platform", "settings", plantest.Label("app", "old"), plantest.Label("gone", "1"),
		plantest.Annotation("gone", "1"))
	before := testRules(func(o *Options) { o.CopyLabels, o.CopyAnnotations = []string{"*"}, []string{"*"} })
	for name, tc := range map[string]struct {
		rules               *Rules            // nil: copying
		src                 *corev1.ConfigMap // nil: src
		have                *corev1.ConfigMap
		labels, annotations texts // besides the contract's
	}{
		"C27 the flags list it no longer": {rules: testRules(),
			have:        plantest.Copy(copying, src, "team-a", plantest.Label("theirs", "1")),
			labels:      texts{"theirs": "1"},
			annotations: texts{}},
		"C27 the source has it no longer": {src: bare,
			have: plantest.Copy(copying, src, "team-a", plantest.Label("theirs", "1"),
				plantest.Annotation(ChecksumAnnotation, copying.ParseSource(bare).Checksum)),
			labels:      texts{"theirs": "1"},
			annotations: texts{}},
		"C27 copied metadata goes, that of other people stays": {
			have: plantest.Copy(before, older, "team-a", plantest.Label("theirs", "1"),
				plantest.Annotation("theirs", "1")),
			labels:      texts{"app": "web", "theirs": "1"},
			annotations: texts{"note": "n", "theirs": "1"}},
		"C12 adopted: the annotation goes, other metadata stays": {
			have: plantest.ConfigMap("team-a", "settings", plantest.Annotation(AdoptAnnotation, "true"),
				plantest.Data("mine", "1"),
				plantest.Annotation("theirs", "1"), plantest.Label("theirs", "1")),
			labels:      texts{"app": "web", "theirs": "1"},
			annotations: texts{"note": "n", "theirs": "1"}},
		"C12 adopted, without labels": {
			have: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings",
				Annotations: texts{AdoptAnnotation: "true"}}},
			labels:      texts{"app": "web"},
			annotations: texts{"note": "n"}},
		"C27 a forged list of what was copied": {
			have: plantest.Copy(copying, src, "team-a", plantest.Label("helm.sh/chart", "1"), plantest.Label("theirs", "1"),
				plantest.Annotation("helm.sh/chart", "1"), plantest.Annotation("theirs", "1"), plantest.Annotation(CopiedAnnotation,
					"label:helm.sh/chart,label:mirror,theirs,annotation:helm.sh/chart,annotation:"+CopyAnnotation)),
			labels:      texts{"app": "web", "helm.sh/chart": "1", "theirs": "1"},
			annotations: texts{"note": "n", "helm.sh/chart": "1", "theirs": "1"}},
		"C27 what was copied is gone": {
			have:        plantest.Copy(before, older, "team-a", plantest.Without("gone"), plantest.Without("app")),
			labels:      texts{"app": "web"},
			annotations: texts{"note": "n"}},
		"keys with / and ~": {
			have: plantest.Copy(before, plantest.Source("platform", "settings", plantest.Label("a.b/c", "1"),
				plantest.Annotation("a~1/b", "1")), "team-a", plantest.Label("d.e/f", "1")),
			labels:      texts{"app": "web", "d.e/f": "1"},
			annotations: texts{"note": "n"}},
		"C71 no label is ours, some are theirs": {
			have:        plantest.Copy(copying, src, "team-a", func(cm *corev1.ConfigMap) { cm.Labels = texts{"theirs": "1"} }),
			labels:      texts{"app": "web", "theirs": "1"},
			annotations: texts{"note": "n"}},
		"other data, not immutable": {
			have: plantest.Copy(copying, src, "team-a", plantest.BinaryData("more", 1), func(cm *corev1.ConfigMap) {
				cm.Data, cm.Immutable = nil, new(false)
			}),
			labels:      texts{"app": "web"},
			annotations: texts{"note": "n"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := cmp.Or(tc.rules, copying)
			s := r.ParseSource(cmp.Or(tc.src, src))
			tc.have.UID, tc.have.ResourceVersion, tc.have.Finalizers = "uid-7", "77", []string{"example.com/keep", "b"}
			tc.have.OwnerReferences = []metav1.OwnerReference{{Name: "theirs"}}
			if r.inSync(s, stripped(r, tc.have)) {
				t.Error("got it in sync before the update")
			}
			created, haveBefore, srcBefore := r.Desired(s, "team-a", nil).DeepCopy(), tc.have.DeepCopy(), s.ConfigMap.DeepCopy()
			maps.Copy(tc.labels, texts{"mirror": "copy", "app.kubernetes.io/managed-by": "mirror-controller"})
			for k, v := range created.Annotations {
				if strings.HasPrefix(k, "mirror-controller.github.io/") {
					tc.annotations[k] = v
				}
			}
			got := r.Desired(s, "team-a", tc.have)
			if !reflect.DeepEqual(got.Labels, tc.labels) {
				t.Errorf("got labels %v, want %v", got.Labels, tc.labels)
			}
			if !reflect.DeepEqual(got.Annotations, tc.annotations) {
				t.Errorf("got annotations %v, want %v", got.Annotations, tc.annotations)
			}
			if !reflect.DeepEqual(got.Data, src.Data) || len(got.BinaryData) > 0 {
				t.Errorf("got data %v, %v, want that of the source", got.Data, got.BinaryData)
			}
			if got.UID != "uid-7" || got.ResourceVersion != "77" {
				t.Errorf("got UID %s, resourceVersion %s, want those of the object that was read",
					got.UID, got.ResourceVersion)
			}
			if !reflect.DeepEqual(got.Finalizers, tc.have.Finalizers) {
				t.Errorf("got finalizers %v, want those of other people kept", got.Finalizers)
			}
			if !r.inSync(s, stripped(r, got)) || r.Differs(s, got) != "" {
				t.Errorf("got it out of sync by %q", r.Differs(s, got))
			}
			for _, have := range []*corev1.ConfigMap{nil, tc.have} {
				got := r.Desired(s, "team-a", have)
				got.Labels["changed"], got.Annotations["changed"] = "1", "1"
				for i := range got.Finalizers {
					got.Finalizers[i], got.OwnerReferences[0].Name = "changed", "changed"
				}
			}
			if !reflect.DeepEqual(tc.have, haveBefore) || !reflect.DeepEqual(s.ConfigMap, srcBefore) ||
				!reflect.DeepEqual(r.Desired(s, "team-a", nil), created) {
				t.Errorf("got arguments changed to %v and %v, want %v and %v", tc.have, s.ConfigMap, haveBefore, srcBefore)
			}
		})
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

// TestC71DiffersInOthersAlone is about an object that is read before an update,
// and the one in the cache, which was judged.
func TestC71DiffersInOthersAlone(t *testing.T) {
	r := testRules()
	src := plantest.Source("platform", "settings")
	theirs := plantest.Label("theirs", "1")
	adopt := plantest.Annotation(AdoptAnnotation, "true")
	copied := func(o ...plantest.Option) *corev1.ConfigMap { return plantest.Copy(r, src, "team-a", o...) }
	foreign := func(o ...plantest.Option) *corev1.ConfigMap {
		return plantest.ConfigMap("team-a", "settings", append(o, adopt)...)
	}
	version := func(cm *corev1.ConfigMap) { cm.ResourceVersion = "8" }
	owned := func(cm *corev1.ConfigMap) { cm.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }
	for name, tc := range map[string]struct {
		have, live *corev1.ConfigMap
		want       bool
	}{
		"nothing":                {copied(theirs), copied(theirs), true},
		"a resourceVersion":      {copied(theirs), copied(theirs, version), true},
		"a label of theirs":      {copied(theirs), copied(plantest.Label("theirs", "2")), true},
		"their label is gone":    {copied(theirs), copied(), true},
		"an annotation":          {copied(theirs), copied(plantest.Annotation("theirs", "2")), true},
		"a finalizer and owners": {copied(theirs), copied(plantest.Finalizer, owned), true},
		"data":                   {copied(theirs), copied(theirs, plantest.Data("key", "x")), false},
		"immutable":              {copied(theirs), copied(theirs, plantest.Immutable), false},
		"the mirror label":       {copied(theirs), copied(theirs, plantest.Without("mirror")), false},
		"the copy annotation":    {copied(theirs), copied(theirs, plantest.Without(CopyAnnotation)), false},
		"the checksum":           {copied(theirs), copied(theirs, plantest.Annotation(ChecksumAnnotation, "x")), false},
		"the list of copied":     {copied(theirs), copied(theirs, plantest.Annotation(CopiedAnnotation, "")), false},
		"it is being deleted":    {copied(theirs), copied(theirs, plantest.Deleting), false},
		"a UID":                  {copied(theirs), copied(theirs, func(cm *corev1.ConfigMap) { cm.UID = "other" }), false},
		"a label of a foreign":   {foreign(), foreign(theirs), true},
		"it is not handed over":  {foreign(), plantest.ConfigMap("team-a", "settings"), false},
		"a finalizer of it":      {foreign(), foreign(plantest.Finalizer), false},
		"it is a source":         {foreign(theirs), plantest.Source("team-a", "settings", theirs), false},
	} {
		t.Run(name, func(t *testing.T) {
			liveBefore := tc.live.DeepCopy()
			if got := r.DiffersInOthersAlone(tc.live, stripped(r, tc.have)); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if !reflect.DeepEqual(tc.live, liveBefore) {
				t.Errorf("got the argument changed to %v, want %v", tc.live, liveBefore)
			}
		})
	}
}
