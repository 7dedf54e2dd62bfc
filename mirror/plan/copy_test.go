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

// TestDesiredIsTheContract writes out a copy as deploy/docs/reference.md lists it, with another label, another
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
		labels, annotations texts // besides the controller's own
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
			have := stripped(r, tc.have)
			liveBefore, haveBefore := tc.live.DeepCopy(), have.DeepCopy()
			if got := r.DiffersInOthersAlone(tc.live, have); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if !reflect.DeepEqual(have, haveBefore) {
				t.Errorf("C39: got what is in the cache changed to %v, want %v", have, haveBefore)
			}
			if !reflect.DeepEqual(tc.live, liveBefore) {
				t.Errorf("got the argument changed to %v, want %v", tc.live, liveBefore)
			}
		})
	}
}
